"""The polyphonic corpora: JSON, and pickles that may try anything."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latflow.config import DataConfig
from latflow.data.music import load_music, read_music, read_pickle
from latflow.errors import LatflowError, LatflowWarning

NOTES = {
    "train": [[[60, 64, 67], [], [21, 108]], [[60]]],
    "valid": [[[62], [62]]],
    "test": [[[64]], [[65], [66]]],
}


def save_json(path: Path, content: Any) -> Path:
    path.write_bytes(gzip.compress(content if isinstance(content, bytes) else json.dumps(content).encode()))
    return path


def like_the_public_pickles(protocol: int) -> bytes:
    """Tuples of numpy scalars, as in the published files."""
    return pickle.dumps(
        {s: [[tuple(np.int64(n) for n in step) for step in x] for x in xs] for s, xs in NOTES.items()},
        protocol,
    )


def check_notes(path: Path) -> None:
    splits = read_music(path)
    for split, pieces in NOTES.items():
        found = [[(np.flatnonzero(step) + 21).tolist() for step in roll] for roll in splits[split]]
        assert found == pieces


@pytest.mark.parametrize("indent", [None, 1])
def test_json_is_read(tmp_path: Path, indent: int | None) -> None:
    check_notes(save_json(tmp_path / "a.json.gz", json.dumps(NOTES, indent=indent).encode()))


def test_lengths_without_probability_and_beyond_the_limit_are_left_out(tmp_path: Path) -> None:
    path = save_json(tmp_path / "a.json.gz", NOTES)
    with pytest.warns(LatflowWarning, match="longer than max_length 2"):
        corpus = load_music("jsb", path, DataConfig("jsb", max_length=2))
    assert {split: x.lengths.tolist() for split, x in corpus.splits.items()} == {
        "train": [1],
        "valid": [2],
        "test": [1, 2],
    }
    notes = {**NOTES, "test": [[[64]], [[65]] * 9]}
    with pytest.warns(LatflowWarning, match="1 of 2 test sequences left out"):
        corpus = load_music("jsb", save_json(path, notes), DataConfig("jsb", smooth_lengths=False))
    assert corpus.splits["test"].lengths.tolist() == [1]
    with pytest.raises(LatflowError, match="no sequence of valid"), pytest.warns(LatflowWarning):
        load_music("jsb", path, DataConfig("jsb", max_length=1))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("module", ["numpy._core.multiarray", "numpy.core.multiarray"])
def test_pickles_of_numpy_scalars_are_read_without_numpy(tmp_path: Path, protocol: int, module: str) -> None:
    content = like_the_public_pickles(protocol)
    if protocol < 4:  # names stand on lines of their own; later protocols count their bytes
        content = content.replace(b"cnumpy._core.multiarray\n", f"c{module}\n".encode())
    path = tmp_path / "a.pickle"
    path.write_bytes(content)
    check_notes(path)
    assert all(type(n) is int for x in read_pickle(path)["train"] for step in x for n in step)


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    """Its bytes are plain strings: dtype("i8", 0, 1), state (3, "<", ...), 8 bytes."""
    scalar = (
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(U\x02i8K\x00K\x01tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ"
        b"\xff\xff\xff\xffK\x00tbU\x08\xbc\x00\x00\x00\x00\x00\x00\x00tR"
    )
    path = tmp_path / "a.pickle"
    path.write_bytes(b"\x80\x02]" + scalar + b"a.")
    assert read_pickle(path) == [0xBC]


class Runs:
    """Unpickled by plain pickle.load, calls what it is told."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call, self.args


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("way", ["system", "eval", "nested", "late", "open"])
def test_a_pickle_that_tries_to_run_code_does_not(tmp_path: Path, way: str, protocol: int) -> None:
    trace = tmp_path / "trace"
    expression = f"open({str(trace)!r}, 'w').close()"
    attack: Any = {
        "system": Runs(os.system, f"touch {trace}"),
        "eval": Runs(eval, expression),
        "nested": [[Runs(getattr, Runs(__import__, "os"), "system")], Runs(eval, expression)],
        "late": {**NOTES, "test": [[[np.int64(60)]], Runs(exec, expression)]},
        "open": Runs(open, str(trace), "w"),
    }[way]
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(attack, protocol))
    with pytest.raises(LatflowError, match=r"a\.pickle: the pickle asks for .*; only plain data"):
        read_pickle(path)
    assert not trace.exists()
    if way in ("system", "eval"):  # the attack is a real one: the standard unpickler falls for it
        pickle.loads(path.read_bytes())
        assert trace.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"cnumpy\ndtype\n}U\x03abcK\x01sb.",  # state set on the stand-in for a function
        b"cnumpy\ndtype\n(U\x02O8tR.",  # dtype of objects
        b"cnumpy.core.multiarray\nscalar\n(K\x01U\x08\x00\x00\x00\x00\x00\x00\x00\x00tR.",  # no dtype
        b"cnumpy\ndtype.__class__\n.",  # an attribute of a name that is allowed
        b"cnumpy.core.multiarray\n_reconstruct\n.",
        b"c_codecs\nencode\n(U\x01aU\x06rot_13tR.",  # any other codec
        b"\x82\x01.",  # an extension code
        b"Pid\n.",  # a persistent id
        b"]K\x01",  # cut off
        b"garbage",
        b"",
    ],
)
def test_crafted_pickles_are_refused(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(b"\x80\x02" + body if body else b"")
    with pytest.raises(LatflowError, match=r"a\.pickle: ") as caught:
        read_pickle(path)
    assert "\n" not in str(caught.value)


def test_a_small_pickle_that_stands_for_a_huge_one_is_refused(tmp_path: Path) -> None:
    step: list = [60]
    piece = [step] * 3000
    content = pickle.dumps({"train": [piece] * 5000, "valid": [piece], "test": [piece]})
    assert len(content) < 50_000
    path = tmp_path / "a.pickle"
    path.write_bytes(content)
    with pytest.raises(LatflowError, match="more than 10000000 time steps"):
        read_music(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not JSON"),
        (b"[]", "not JSON of the form"),
        (b'{"train": [], "valid": [], "test": []}', "not JSON of the form"),
        ({**NOTES, "train": [[[109]]]}, "train, sequence 1: step 1: MIDI note 109"),
        ({**NOTES, "valid": [[[60]], [["C4"]]]}, "valid, sequence 2: 'C4' is no MIDI note"),
        ({**NOTES, "valid": [[[True]]]}, "True is no MIDI note"),
        ({**NOTES, "test": [[60]]}, "test, sequence 1: a time step must be a list"),
        ({**NOTES, "test": [[]]}, "test, sequence 1: expected a list of time steps"),
        ({**NOTES, "test": [7]}, "test, sequence 1: expected a list of time steps"),
        ({"train": NOTES["train"]}, "expected sequences for train, valid and test"),
    ],
)
def test_bad_json_is_named(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(LatflowError, match=r"a\.json\.gz.*" + said):
        read_music(save_json(tmp_path / "a.json.gz", content))


def test_json_that_is_cut_off_or_not_packed_is_named(tmp_path: Path) -> None:
    whole = save_json(tmp_path / "a.json.gz", NOTES).read_bytes()
    for content in (whole[:-12], b"plain text", whole[:15] + b"\xff" * 20):
        (tmp_path / "a.json.gz").write_bytes(content)
        with pytest.raises(LatflowError, match=r"a\.json\.gz: cut off, or not"):
            read_music(tmp_path / "a.json.gz")
