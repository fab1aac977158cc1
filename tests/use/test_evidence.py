"""What is known: prefixes, templates, and the rules for pieces of music."""

from __future__ import annotations

import numpy as np
import pytest

from latflow.data.base import LOWEST, DataSpec
from latflow.errors import LatflowError
from latflow.use import Evidence
from latflow.use.evidence import marked

SPEC = DataSpec("text", tuple(" abc?"), (0, 1, 1, 1, 1, 1, 1))
TOKENS = DataSpec("tokens", (3, 5, "x"), (0, 1, 1))


def roll_of(*steps: tuple[int, ...]) -> np.ndarray:
    roll = np.zeros((len(steps), 88), np.uint8)
    for step, notes in zip(roll, steps, strict=True):
        step[[note - LOWEST for note in notes]] = 1
    return roll


def test_a_template_knows_what_is_not_marked():
    found = Evidence.template(SPEC, "a?c", length=5)
    assert found.known.tolist() == [True, False, True, False, False]
    assert found.x[found.known].tolist() == [1, 3]
    assert found.last == 3
    assert found.free_steps.tolist() == [1, 3, 4]
    assert Evidence.template(SPEC, "a?*", mark="*").x.tolist()[:2] == [1, 4]  # ? is a symbol like others
    assert Evidence.template(TOKENS, [3, None, "x"], mark=None).known.tolist() == [True, False, True]


def test_a_prefix_has_an_open_end_unless_its_length_is_given():
    assert Evidence.prefix(SPEC, "ab").open_end
    assert not Evidence.prefix(SPEC, "ab", length=3).open_end
    assert Evidence.prefix(SPEC, "ab", length=3).known.tolist() == [True, True, False]
    assert Evidence.prefix(SPEC, "").last == 0


def test_rules_of_music():
    roll = roll_of((48, 60, 72), (), (50, 74))
    top = marked(roll, "top")
    assert top[0].tolist() == [False] * (72 - LOWEST) + [True] * (
        88 - (72 - LOWEST)
    )  # and the silence above it
    assert not top[1].any()
    bass = marked(roll, "bass")
    assert np.flatnonzero(bass[2]).tolist() == list(range(50 - LOWEST + 1))
    assert (marked(roll, "top, bass") == (top | bass)).all()
    assert marked(roll, "2-3").all(1).tolist() == [False, True, True]
    assert marked(roll, "2-").all(1).tolist() == [False, True, True]
    assert np.flatnonzero(marked(roll, "C4-D4")[1]).tolist() == [60 - LOWEST, 61 - LOWEST, 62 - LOWEST]
    assert np.flatnonzero(marked(roll, "Bb3,c#5")[0]).tolist() == [58 - LOWEST, 73 - LOWEST]
    found = Evidence.music(roll, keep="top", free="3", length=4)
    assert (found.known[0] == top[0]).all()
    assert not found.known[1:].any()
    assert Evidence.music(roll, free="2").known.all(1).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("4", "the piece has the steps 1 to 3"),
        ("0-2", "the piece has the steps 1 to 3"),
        ("soprano", r"accepted: steps \(1-16\), notes \(C4, C4-B5\) or a voice"),
        ("C9", "A0 to C8"),
        ("C5-C4", "the first note is above the last"),
        ("", "accepted: steps"),
    ],
)
def test_a_wrong_rule_is_told_what_fits(rule, said):
    with pytest.raises(LatflowError, match=said):
        marked(roll_of((60,), (60,), (60,)), rule, "--keep")


def test_wrong_evidence_is_told():
    with pytest.raises(LatflowError, match="length 1, but 2 steps are given"):
        Evidence.template(SPEC, "ab", length=1)
    with pytest.raises(LatflowError, match="must be one character"):
        Evidence.template(SPEC, "ab", mark="??")
    with pytest.raises(LatflowError, match="the length is 0"):
        Evidence.template(SPEC, "")
    with pytest.raises(LatflowError, match="'z' at position 2"):
        Evidence.template(SPEC, "az")
    with pytest.raises(LatflowError, match="a mask of the same shape"):
        Evidence(np.zeros(3, np.int64), np.ones(2, bool))
    with pytest.raises(LatflowError, match="a template is of text or tokens"):
        Evidence.template(DataSpec("music", (), (0, 1)), "C4")
