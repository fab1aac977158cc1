"""The symbol for what training never saw."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from latflow.config import DataConfig
from latflow.data import Batches, Corpus, DataSpec, Sequences, like, load
from latflow.data.stats import describe
from latflow.errors import LatflowError

SPLITS = ("train", "valid", "test")


def text_folder(folder: Path, train: str, valid: str, test: str) -> Path:
    for name, content in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"{name}.txt").write_text(content, encoding="utf-8")
    return folder


def decoded(corpus: Corpus, split: str) -> list:
    return [corpus.spec.decode(x) for x in corpus.splits[split]]


def test_the_vocabulary_is_that_of_training_and_a_mark_for_the_rest(tmp_path: Path) -> None:
    text_folder(tmp_path, "abba\nbab\n", "abc\n", "é\ufeffa\nba\n")
    corpus = load(DataConfig(f"text:{tmp_path}"))
    assert corpus.spec.symbols == ("a", "b", "\ufffd")
    assert corpus.spec.unknown_index == 2
    assert [decoded(corpus, s) for s in SPLITS] == [
        ["abba", "bab"],
        ["ab\ufffd"],
        ["\ufffd\ufffda", "ba"],
    ]
    assert corpus.spec.symbol_counts == (3, 4, 0)
    rows = describe(corpus)["splits"]
    assert [rows[split]["unknown"] for split in SPLITS] == [0, 1, 2]
    without = load(DataConfig(f"text:{tmp_path}", unknown=False))
    assert without.spec.symbols == ("a", "b", "c", "é", "\ufeff")
    assert decoded(without, "test") == ["é\ufeffa", "ba"]
    assert "unknown" not in describe(without)["splits"]["train"]


def test_tokens_have_one_too(tmp_path: Path) -> None:
    for name, rows in (("train", [[1, "1"], [1]]), ("valid", [[2]]), ("test", [["new", 1]])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = load(DataConfig(f"tokens:{tmp_path}"))
    assert corpus.spec.symbols == (1, "1", "<unknown>")
    assert [decoded(corpus, s) for s in SPLITS] == [
        [[1, "1"], [1]],
        [["<unknown>"]],
        [["<unknown>", 1]],
    ]


def test_what_is_new_is_encoded_and_counted_and_what_is_no_symbol_is_refused() -> None:
    spec = DataSpec("tokens", (1, "x", "<unknown>"), (0, 1), unknown=True)
    array = spec.encode([1, "y", 10**40, "x", "<unknown>"])
    assert array.tolist() == [0, 2, 2, 1, 2]
    assert spec.unknowns(array) == 3
    assert spec.decode(array) == [1, "<unknown>", "<unknown>", "x", "<unknown>"]
    for wrong in ([True], [1.5], [[1]], [None], [("x",)], [b"x"]):
        with pytest.raises(LatflowError):
            spec.encode(wrong)
    text = DataSpec("text", ("a", "\ufffd"), (0, 1), unknown=True)
    assert text.encode("aéa").tolist() == [0, 1, 0]
    with pytest.raises(LatflowError, match="'ab' at position 2 is no character"):
        text.encode(["a", "ab"])
    assert DataSpec("text", ("a", "b"), (0, 1)).unknowns(np.array([0, 1])) == 0


def test_a_mark_that_the_data_has_already_is_refused(tmp_path: Path) -> None:
    text_folder(tmp_path, "a\ufffd\n", "a\n", "a\n")
    with pytest.raises(LatflowError, match=r"occurs in it, the symbol .* turn unknown off"):
        load(DataConfig(f"text:{tmp_path}"))
    assert load(DataConfig(f"text:{tmp_path}", unknown=False)).spec.symbols == ("a", "\ufffd")
    path = tmp_path / "log.jsonl"
    path.write_text('[1]\n["<unknown>"]\n[1]\n[1]\n')
    with pytest.raises(LatflowError, match=r"'<unknown>' occurs in it"):
        load(DataConfig(f"tokens:{path}"))


def test_named_data_and_music_have_none() -> None:
    for name in ("hmm", "pydoc"):
        assert not load(DataConfig(name)).spec.unknown
    for name in ("hmm", "pydoc", "ptb", "chords", "midi:x"):
        with pytest.raises(LatflowError, match="unknown is for text:PATH and tokens:PATH"):
            load(DataConfig(name, unknown=True))


def test_a_run_of_before_reads_its_data_as_it_did(tmp_path: Path) -> None:
    config = DataConfig(f"text:{text_folder(tmp_path, 'ab', 'b', 'c')}", smooth_lengths=True)
    before = DataSpec("text", ("a", "b", "c"), (0, 2, 2))
    assert load(like(config, before)).spec == before
    now = load(config).spec
    assert like(config, now) == config
    assert like(DataConfig("hmm"), before) == DataConfig("hmm")


def replaced(sequences: Sequences, batches: Batches, epoch: int, start: int = 0) -> list[tuple[int, int]]:
    """(sequence, step) of the steps that are another symbol than in the store; all of them must be the mark."""
    found = []
    for batch in batches.epoch(epoch, start):
        for x, i, length, weight in zip(
            batch.x, batch.index.tolist(), batch.lengths, batch.weight, strict=True
        ):
            steps = np.flatnonzero(x[:length].numpy() != sequences[i])
            assert (x[steps] == batches.unknown).all()
            found += [(i, int(t)) for t in steps] if weight else []
    return sorted(found)


def once_and_often() -> tuple[Sequences, set[tuple[int, int]]]:
    """Symbols 0 and 1 often, 2 to 21 once each, 22 twice, 23 for unknown."""
    items = [np.array([0, 1, 2 + i, 1, 0]) for i in range(20)] + [np.array([22, 0, 22])]
    return Sequences.of_symbols(items, [len(x) for x in items], 24), {(i, 2) for i in range(20)}


def test_what_occurs_once_is_unknown_half_of_the_time() -> None:
    sequences, once = once_and_often()
    batches = Batches(sequences, 4, unknown=23, seed=3)
    epochs = [replaced(sequences, batches, epoch) for epoch in range(300)]
    counts = {place: sum(place in epoch for epoch in epochs) for place in once}
    assert set().union(*epochs) == once  # there are enough of them: nothing else is touched
    deviation = np.sqrt(300 / 4)
    assert all(abs(count - 150) < 4 * deviation for count in counts.values())
    assert abs(sum(counts.values()) - 3000) < 4 * np.sqrt(20 * 300 / 4)
    assert len({tuple(epoch) for epoch in epochs}) > 290  # anew in each epoch
    assert replaced(sequences, Batches(sequences, 4, unknown=23, seed=4), 0) != epochs[0]


def test_what_is_replaced_depends_on_seed_and_epoch_alone() -> None:
    sequences, _ = once_and_often()
    whole = replaced(sequences, Batches(sequences, 4, unknown=23, seed=3), 7)
    assert whole
    assert whole == replaced(sequences, Batches(sequences, 9, unknown=23, seed=3), 7)
    shares = [Batches(sequences, 4, unknown=23, seed=3, rank=rank, world=3) for rank in range(3)]
    assert whole == sorted(place for share in shares for place in replaced(sequences, share, 7))
    batches = Batches(sequences, 4, unknown=23, seed=3)
    rest = {int(i) for batch in batches.plan(7)[2:] for i in batch}
    assert [place for place in whole if place[0] in rest] == replaced(sequences, batches, 7, start=2)


def test_where_nothing_occurs_once_any_step_may_be_unknown() -> None:
    items = [np.array([0, 1, 0, 1]), np.array([1, 1, 0])]
    sequences = Sequences.of_symbols(items, [4, 3], 3)
    epochs = [replaced(sequences, Batches(sequences, 2, unknown=2), epoch) for epoch in range(4000)]
    drawn = sum(map(len, epochs))
    rate = 1 / (7 + 1)
    # Places are drawn with replacement, so of those that meet only one counts: less than rate^2 / 2 a step and place.
    assert abs(drawn / (7 * 4000) - rate) < 4 * np.sqrt(rate / (7 * 4000)) + rate**2 / 2
    assert set().union(*epochs) == {(0, t) for t in range(4)} | {(1, t) for t in range(3)}


def test_evaluation_is_never_altered() -> None:
    sequences, _ = once_and_often()
    for batch in Batches(sequences, 4, shuffle=False).epoch(0):
        for x, i, length in zip(batch.x, batch.index.tolist(), batch.lengths, strict=True):
            assert torch.equal(x[:length], torch.from_numpy(sequences[i]))
    with pytest.raises(LatflowError, match="music has no symbols"):
        Batches(Sequences.of_rolls([np.zeros((2, 88), np.uint8)]), 1, unknown=3)
