"""Labels: folders, fields, keys."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latflow.config import DataConfig
from latflow.data import Corpus, load
from latflow.data.labels import KEYS, key_of, moved_keys
from latflow.data.midi import write_midi
from latflow.data.stats import describe
from latflow.errors import LatflowError, LatflowWarning

SPLITS = ("train", "valid", "test")


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def labelled(corpus: Corpus, split: str) -> list[tuple]:
    sequences = corpus.splits[split]
    assert sequences.labels is not None
    assert sequences.labels.dtype == np.int64
    names = [corpus.spec.labels[i] for i in sequences.labels]
    return [(corpus.spec.decode(x), name) for x, name in zip(sequences, names, strict=True)]


def test_the_first_folder_names_the_sequences_in_it(tmp_path: Path) -> None:
    write(tmp_path / "zebra" / "1.txt", "zz\n" * 8)
    write(tmp_path / "ape" / "deep" / "2.txt", "aa\n" * 6)
    write(tmp_path / "ape" / "3.txt", "bbbb\n" * 6)
    with pytest.warns(LatflowWarning, match="longer than max_length"):
        corpus = load(DataConfig(f"text:{tmp_path}", labels="folder", max_length=3))
    assert corpus.spec.labels == ("ape", "zebra")
    everything = [pair for split in SPLITS for pair in labelled(corpus, split)]
    assert sorted(everything) == [("aa", "ape")] * 6 + [("zz", "zebra")] * 8
    counts = describe(corpus)["labels"]
    assert sum(counts[split]["zebra"] for split in SPLITS) == 8
    plain = load(DataConfig(f"text:{tmp_path}"))
    assert plain.spec.labels == ()
    assert plain.splits["train"].labels is None


def test_folders_below_train_valid_and_test(tmp_path: Path) -> None:
    for split, names in (("train", "ab"), ("valid", "c"), ("test", "ba")):
        for name in names:
            write(tmp_path / split / name / "x.txt", f"{name}x\n")
    corpus = load(DataConfig(f"text:{tmp_path}", labels="folder"))
    assert corpus.spec.labels == ("a", "b", "c")
    assert labelled(corpus, "test") == [("ax", "a"), ("bx", "b")]
    write(tmp_path / "test" / "new" / "x.txt", "ax\n")
    with pytest.raises(LatflowError, match="test has sequences labelled 'new', and neither train nor valid"):
        load(DataConfig(f"text:{tmp_path}", labels="folder"))


def test_music_in_folders_and_around_bad_files(tmp_path: Path) -> None:
    for i in range(6):
        for name, note in (("high", 90), ("low", 30)):
            (tmp_path / name).mkdir(exist_ok=True)
            write_midi(tmp_path / name / f"{i}.mid", [[note]] * (4 + i))
    (tmp_path / "low" / "0.mid").write_bytes(b"broken")
    with pytest.warns(LatflowWarning, match="1 files left out"):
        corpus = load(DataConfig(f"midi:{tmp_path}", labels="folder"))
    found = [pair for split in SPLITS for pair in labelled(corpus, split)]
    assert len(found) == 11
    assert all((steps[0] == [90]) == (name == "high") for steps, name in found)


@pytest.mark.parametrize("seed", range(6))
def test_a_label_of_one_sequence_is_trained_on(tmp_path: Path, seed: int) -> None:
    for i in range(4):
        write(tmp_path / f"only{i}" / "x.txt", "ab\n")
    write(tmp_path / "many" / "x.txt", "cd\n" * 16)
    config = DataConfig(f"text:{tmp_path}", labels="folder", split_seed=seed, test_fraction=0.3)
    corpus = load(config)
    seen = {name for split in ("train", "valid") for _, name in labelled(corpus, split)}
    assert set(corpus.spec.labels) == seen == {"many", *(f"only{i}" for i in range(4))}
    assert sum(len(corpus.splits[split]) for split in SPLITS) == 20


def test_a_field_of_a_line(tmp_path: Path) -> None:
    rows = [
        {"tokens": [i, "x"], "user": name, "other": None} for i, name in enumerate(["b", "a", 7, "a"] * 5)
    ]
    path = write(tmp_path / "log.jsonl", "\n".join(map(json.dumps, rows)))
    corpus = load(DataConfig(f"tokens:{path}", labels="field:user", unknown=False))
    assert corpus.spec.labels == ("7", "a", "b")
    found = [pair for split in SPLITS for pair in labelled(corpus, split)]
    assert sorted(found, key=lambda pair: pair[0][0]) == [(row["tokens"], str(row["user"])) for row in rows]
    assert load(DataConfig(f"tokens:{path}")).spec.labels == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1, 2]", "line 2: no 'user' in it"),
        ('{"tokens": [1]}', "line 2: no 'user' in it"),
        ('{"tokens": [1], "user": true}', "line 2: its 'user' is true"),
        ('{"tokens": [1], "user": ["x"]}', r"line 2: its 'user' is \[\"x\"\]"),
        (r'{"tokens": [1], "user": "\ud83d"}', "line 2: half of a surrogate pair"),
    ],
)
def test_lines_without_a_label_are_named(tmp_path: Path, line: str, said: str) -> None:
    path = write(tmp_path / "log.jsonl", '{"tokens": [1], "user": "a"}\n' + line)
    with pytest.raises(LatflowError, match=said):
        load(DataConfig(f"tokens:{path}", labels="field:user"))


def test_labels_that_data_cannot_have_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", "a\nb\nc\nd\n")
    for name, labels, said in (
        ("hmm", "folder", "no folder of yours"),
        ("hmm", "key", "which music has; hmm is text"),
        (f"text:{path}", "key", "which music has; .* is text"),
        (f"text:{path}", "field:x", "tokens:FILE"),
        (f"text:{path}", "folder", "lies in no folder below"),
        (f"text:{tmp_path}", "folder", "lies in no folder below"),
        (f"tokens:{path}", "field:", "accepted: folder, field:NAME, key"),
        (f"tokens:{path}", "field:tokens", "accepted: folder, field:NAME, key"),
        ("chords", "mood", "'mood'; accepted: folder"),
    ):
        with pytest.raises(LatflowError, match=said):
            load(DataConfig(name, labels=labels))


SCALES = {"major": [0, 2, 4, 5, 7, 9, 11], "minor": [0, 2, 3, 5, 7, 8, 11]}
NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")


@pytest.mark.parametrize("mode", SCALES)
@pytest.mark.parametrize("tonic", range(12))
def test_the_key_of_a_cadence(mode: str, tonic: int) -> None:
    """I IV V I over a pedal of the tonic, in two octaves: nobody would call it another key."""
    scale = SCALES[mode]
    steps = [
        [48 + tonic] + [60 + tonic + scale[(degree + third) % 7] for third in (0, 2, 4)]
        for degree in (0, 3, 4, 0)
    ]
    roll = np.zeros((len(steps), 88), np.uint8)
    for step, notes in zip(roll, steps, strict=True):
        step[np.array(notes) - 21] = 1
    assert KEYS[key_of(roll)] == f"{NAMES[tonic]} {mode}"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(-12, 12))
def test_a_key_moves_with_its_music(seed: int, shift: int) -> None:
    rng = np.random.default_rng(seed)
    roll = np.zeros((50, 88), np.uint8)
    roll[:, 20:60] = rng.random((50, 40)) < rng.random(40) / 2  # some notes far more than others: no ties
    moved = np.roll(roll, shift, axis=1)
    assert key_of(moved) == moved_keys(np.array([key_of(roll)]), np.array([shift]))[0]


def test_pieces_are_labelled_with_their_keys() -> None:
    corpus = load(DataConfig("chords", labels="key", train_size=40, eval_size=5))
    assert corpus.spec.labels == KEYS
    for sequences in corpus.splits.values():
        assert sequences.keys
        assert sequences.labels is not None
        assert sequences.labels.tolist() == [key_of(roll) for roll in sequences]
    assert corpus.splits["test"][:3].keys
    every = np.arange(88) < 84  # seven of each tone
    assert key_of(np.zeros((3, 88))) == key_of(np.stack([every] * 3)) == 0
