"""The corpora themselves, where they lie: $LATFLOW_DATA names the folder."""

from __future__ import annotations

import os

import pytest

from latflow.config import DataConfig
from latflow.data import load
from latflow.data.stats import describe

pytestmark = pytest.mark.skipif(
    not os.environ.get("LATFLOW_DATA"), reason="$LATFLOW_DATA is not set: no real corpora to read"
)

SPLITS = ("train", "valid", "test")
EXPECTED = {
    "ptb": ((41740, 3356, 3735), (4868454, 385082, 430371), (288, 286, 287)),
    "jsb": ((229, 76, 77), (13807, 4602, 4725), (129, 144, 160)),
    "nottingham": ((694, 173, 170), (176561, 45513, 44463), (1788, 1473, 1793)),
    "piano-midi": ((87, 12, 25), (75911, 8540, 19036), (3857, 1637, 2645)),
    "musedata": ((524, 135, 124), (245202, 82755, 64339), (3457, 3723, 4273)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_counts_are_those_published(name: str) -> None:
    corpus = load(DataConfig(name))
    found = describe(corpus)
    sequences, steps, longest = EXPECTED[name]
    assert tuple(found["splits"][s]["sequences"] for s in SPLITS) == sequences
    assert tuple(found["splits"][s]["steps"] for s in SPLITS) == steps
    assert tuple(found["splits"][s]["longest"] for s in SPLITS) == longest
    assert found["max_T"] == (288 if name == "ptb" else int(1.25 * max(longest[:2])))
    assert found["stored_bytes"] < 4 * (sum(steps) if name == "ptb" else 11 * sum(steps))
    if name == "ptb":
        assert found["size"] == 49
        assert found["splits"]["test"]["length_cost"] == pytest.approx(0.067, abs=5e-4)
    else:
        assert all(row["length_cost"] is not None for row in found["splits"].values())
        assert all(row["silent"] < 0.0785 for row in found["splits"].values())


def test_unk_is_spelled_out() -> None:
    corpus = load(DataConfig("ptb"))
    sentences = [corpus.spec.decode(corpus.splits["train"][i]) for i in range(200)]
    assert any("<unk>" in sentence for sentence in sentences)
    assert all(sentence == sentence.strip() for sentence in sentences)
