"""The spec, the store and the batches."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latflow.config import DataConfig
from latflow.data import Batch, Batches, DataSpec, Sequences, collate, load
from latflow.data.base import length_counts, roll_of
from latflow.errors import LatflowError

texts = st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=8)
tokens = st.lists(st.one_of(st.integers(), st.text(max_size=3)), min_size=1, max_size=20)
rolls = st.integers(1, 12).flatmap(
    lambda t: st.lists(st.sets(st.integers(21, 108), max_size=6).map(sorted), min_size=t, max_size=t)
)


def spec_of(items: list, kind: str) -> DataSpec:
    symbols = () if kind == "music" else tuple(dict.fromkeys(symbol for item in items for symbol in item))
    return DataSpec(kind, symbols, (0, *[1] * max(map(len, items))))


def store(lengths: list[int]) -> Sequences:
    """Sequence i is i + 1 repeated."""
    return Sequences.of_symbols([np.full(n, i + 1) for i, n in enumerate(lengths)], lengths, len(lengths) + 1)


def random_rolls(lengths: list[int], seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    return Sequences.of_rolls(
        np.pad((rng.random((n, 60)) < 0.2).astype(np.uint8), ((0, 0), (14, 14))) for n in lengths
    )


def shifts_of(batch: Batch) -> list[int]:
    assert batch.shift is not None
    return batch.shift.tolist()


@settings(deadline=None, max_examples=60)
@given(texts)
def test_any_text_survives_encode_and_decode(items: list[str]) -> None:
    spec = spec_of(items, "text")
    for item in items:
        array = spec.encode(item)
        assert array.dtype == np.int64
        assert array.shape == (len(item),)
        assert spec.decode(array) == item


@settings(deadline=None, max_examples=60)
@given(tokens)
def test_any_tokens_survive_encode_and_decode(item: list[str | int]) -> None:
    spec = spec_of([item], "tokens")
    assert spec.decode(torch.from_numpy(spec.encode(item))) == item


@settings(deadline=None, max_examples=40)
@given(rolls)
def test_any_music_survives_encode_and_decode(item: list[list[int]]) -> None:
    spec = spec_of([item], "music")
    roll = spec.encode(item)
    assert roll.dtype == np.uint8
    assert roll.shape == (len(item), 88)
    assert spec.decode(roll) == item
    assert (spec.encode(roll) == roll).all()


@settings(deadline=None, max_examples=40)
@given(tokens, st.lists(st.integers(0, 9), max_size=10))
def test_a_spec_survives_json(item: list[str | int], counts: list[int]) -> None:
    spec = DataSpec("tokens", tuple(dict.fromkeys(item)), (0, *counts, 1))
    again = DataSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert [type(symbol) for symbol in again.symbols] == [type(symbol) for symbol in spec.symbols]


def test_what_a_spec_says_of_itself() -> None:
    text, music = DataSpec("text", ("a", "b"), (0, 3, 1)), DataSpec("music", (), (0, 1))
    assert (text.size, text.emission, text.max_T, text.unit, text.step_name) == (
        2,
        "categorical",
        2,
        "bits",
        "character",
    )
    assert (music.size, music.emission, music.unit, music.step_name) == (88, "bernoulli", "nats", "time step")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "video"}, "kind"),
        ({"kind": ["text"]}, "kind"),
        ({"symbols": "ab"}, "list"),
        ({"symbols": ["a", "a"]}, "twice"),
        ({"symbols": ["ab"]}, "one character"),
        ({"symbols": []}, "without symbols"),
        ({"kind": "tokens", "symbols": [True]}, "True"),
        ({"kind": "tokens", "symbols": [1.5]}, "1.5"),
        ({"kind": "tokens", "symbols": [["nested"]]}, "nested"),
        ({"kind": "music"}, "no symbols"),
        ({"length_counts": [0, 1.0]}, "whole numbers"),
        ({"length_counts": [0, -1]}, "whole numbers"),
        ({"length_counts": [0, True]}, "whole numbers"),
        ({"length_counts": [1, 1]}, "start with 0"),
        ({"length_counts": [0, 1, 0]}, "longest"),
        ({"length_counts": [0]}, "longest"),
        ({"extra": 1}, "expected"),
        ({"symbol_counts": [1]}, "1 symbol_counts for 2 symbols"),
        ({"symbol_counts": [1, 0.5]}, "whole numbers"),
        ({"symbol_counts": 3}, "list"),
        ({"train_steps": -1}, "train_steps is -1"),
        ({"shifts": 2}, "only music"),
        ({"shifts": True}, "shifts is True"),
        ({"labels": ["x", "x"]}, "each once"),
        ({"labels": [1]}, "strings"),
        ({"labels": "x"}, "list"),
        ({"unknown": 1}, "true or false"),
        ({"unknown": True}, "the last symbol"),
        ({"unknown": True, "symbols": ["\ufffd", "a"]}, "the last symbol"),
        ({"kind": "music", "symbols": [], "unknown": True}, "the last symbol"),
        ({"kind": "music", "symbols": [], "shifts": 88}, "below 88"),
    ],
)
def test_a_spec_from_a_file_is_checked(change: dict, said: str) -> None:
    good = {"kind": "text", "symbols": ["a", "b"], "length_counts": [0, 1]}
    DataSpec.from_dict(good)
    with pytest.raises(LatflowError, match=said):
        DataSpec.from_dict({**good, **change})
    with pytest.raises(LatflowError, match="expected an object"):
        DataSpec.from_dict([good])


def test_all_of_a_spec_survives_json_and_what_was_written_before_it_still_reads() -> None:
    full = DataSpec("tokens", (7, "<unknown>"), (0, 2), (3, 0), 3, ("a", "b"), unknown=True)
    music = DataSpec("music", (), (0, 2), (1,) * 88, 9, shifts=6)
    for spec in (full, music):
        again = DataSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
        assert again == spec
        assert again.to_dict() == spec.to_dict()  # what does not count as a difference is kept too
    before = DataSpec.from_dict({"kind": "music", "symbols": [], "length_counts": [0, 2]})
    assert before == music  # counts and shifts are of the training, not of the data
    assert (before.symbol_counts, before.train_steps, before.shifts) == ((), 0, 0)
    assert full != DataSpec("tokens", (7, "<unknown>"), (0, 2), (3, 0), 3, ("a",), unknown=True)
    assert full != DataSpec("tokens", (7, "<unknown>"), (0, 2), (3, 0), 3, ("a", "b"))


def test_what_cannot_be_encoded_is_named() -> None:
    with pytest.raises(LatflowError, match=r"'x' at position 3 .* 2 of this data"):
        DataSpec("text", ("a", "b"), (0, 1)).encode("abx")
    ints = DataSpec("tokens", (1, 2), (0, 1))
    for wrong in ([True], [1.0], ["1"], [[1]]):
        with pytest.raises(LatflowError):
            ints.encode(wrong)
    with pytest.raises(ValueError, match=r"0\.\.1"):
        ints.decode(np.array([2]))
    with pytest.raises(LatflowError, match="step 2: MIDI note 109"):
        roll_of([[60], [109]])
    with pytest.raises(LatflowError, match=r"60\.5"):
        roll_of([[60.5]])
    with pytest.raises(LatflowError, match="zeros and ones"):
        roll_of(np.full((2, 88), 2))


def test_the_histogram_of_lengths() -> None:
    train, valid = np.array([2, 2, 8]), np.array([3])
    assert length_counts([train, valid], smooth=False) == (0, 0, 2, 1, 0, 0, 0, 0, 1)
    assert length_counts([train, valid], smooth=True) == (0, 1, 3, 2, 1, 1, 1, 1, 2, 1, 1)  # up to 1.25 x 8
    assert length_counts([np.array([1])], smooth=True) == (0, 2)


@pytest.mark.parametrize(
    ("size", "dtype"), [(2, np.uint8), (256, np.uint8), (257, np.uint16), (70000, np.uint32)]
)
def test_the_store_is_compact_and_faithful(size: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    items = [rng.integers(size, size=n) for n in (1, 5, 3)]
    kept = Sequences.of_symbols(items, [1, 5, 3], size)
    assert kept.flat.dtype == dtype
    assert len(kept) == 3
    for got, item in zip(kept, items, strict=True):
        assert got.dtype == np.int64
        assert (got == item).all()
    assert (kept[-1] == items[-1]).all()
    assert [x.tolist() for x in kept.select(np.array([2, 0]))] == [items[2].tolist(), items[0].tolist()]
    with pytest.raises(IndexError):
        kept[3]


def test_symbols_and_notes_are_counted() -> None:
    rng = np.random.default_rng(0)
    items = [rng.integers(300, size=n) for n in (5, 1, (1 << 18) + 3)]  # longer than one block
    found = Sequences.of_symbols(items, [len(x) for x in items], 301).counts(301)
    assert (found == np.bincount(np.concatenate(items), minlength=301)).all()
    sequences = random_rolls([4, 9])
    assert (sequences.counts(88) == np.concatenate(list(sequences)).sum(axis=0)).all()


def test_a_corpus_counts_its_training_split() -> None:
    for name in ("hmm", "chords"):
        corpus = load(DataConfig(name, train_size=40, eval_size=5))
        spec, train = corpus.spec, corpus.splits["train"]
        assert spec.train_steps == train.lengths.sum()
        assert spec.symbol_counts == tuple(train.counts(spec.size).tolist())
        assert (sum(spec.symbol_counts) == spec.train_steps) == (name == "hmm")
        assert spec.shifts == 0
    assert load(DataConfig("chords", train_size=40, eval_size=5, transpose=4)).spec.shifts == 4


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.data())
def test_slices_and_lists_give_sequences(lengths: list[int], data: st.DataObject) -> None:
    sequences = store(lengths).labelled(np.arange(len(lengths)) * 10)
    items = [x.tolist() for x in sequences]
    key = data.draw(st.one_of(st.slices(len(items)), st.lists(st.integers(-len(items), len(items) - 1))))
    chosen = range(len(items))[key] if isinstance(key, slice) else [i % len(items) for i in key]
    part = sequences[key]
    assert isinstance(part, Sequences)
    assert [x.tolist() for x in part] == [items[i] for i in chosen]
    assert part.labels is not None
    assert part.labels.tolist() == [10 * i for i in chosen]
    with pytest.raises(IndexError):
        sequences[[len(items)]]
    assert len(sequences[np.array([False] * len(items))]) == 0


def test_labels_are_part_of_what_a_store_holds() -> None:
    sequences = store([3, 2])
    assert sequences.sha256() != sequences.labelled(np.array([0, 1])).sha256()
    assert sequences.labelled(np.array([1, 1])).sha256() != sequences.labelled(np.array([0, 1])).sha256()
    with pytest.raises(ValueError, match="3 labels for 2"):
        sequences.labelled(np.zeros(3))


def test_a_step_of_music_takes_eleven_bytes() -> None:
    roll = (np.random.default_rng(0).random((7, 88)) < 0.5).astype(np.uint8)
    kept = Sequences.of_rolls([roll, roll[:2]])
    assert kept.flat.nbytes == 9 * 11
    assert (kept[0] == roll).all()
    assert (kept.steps(0, 2, 5) == roll[2:5]).all()
    with pytest.raises(ValueError, match="a step at least"):
        Sequences.of_rolls([roll[:0]])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=40),
    st.integers(1, 9),
    st.integers(0, 5),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
def test_an_epoch_visits_every_sequence_once_for_1_2_and_3_processes(
    lengths: list[int], batch_size: int, seed: int, shuffle: bool, even: bool, epoch: int
) -> None:
    options: dict[str, Any] = {"seed": seed, "shuffle": shuffle, "even": even}
    sequences = store(lengths)
    seen: dict[int, list[list[int]]] = {}
    for world in (1, 2, 3):
        shares = [
            list(Batches(sequences, batch_size, rank=r, world=world, **options).epoch(epoch))
            for r in range(world)
        ]
        assert {len(share) for share in shares} == {-(-len(lengths) // batch_size)}
        seen[world] = []
        for parts in zip(*shares, strict=True):
            indices = [i for part in parts for i in part.index[part.weight > 0].tolist()]
            assert sum(part.weight.sum().item() for part in parts) == len(indices)
            seen[world].append(sorted(indices))
            for part in parts:
                assert part.lengths.min() >= 1
                assert part.x.shape == (len(part.index), part.lengths.max())
                for x, length, i in zip(part.x, part.lengths, part.index, strict=True):
                    assert (x[:length] == i + 1).all()
                    assert (x[length:] == 0).all()
        assert sorted(i for batch in seen[world] for i in batch) == list(range(len(lengths)))
    assert seen[1] == seen[2] == seen[3]  # the global batches do not depend on the number of processes


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 5), st.integers(0, 12))
def test_an_epoch_resumes_in_the_middle(lengths: list[int], batch_size: int, start: int) -> None:
    batches = Batches(store(lengths), batch_size, seed=3)
    whole, rest = list(batches.epoch(2)), list(batches.epoch(2, start=start))
    assert len(rest) == max(0, len(whole) - start)
    for a, b in zip(whole[start:], rest, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.index, b.index)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 3))
def test_even_batches_have_the_same_number_of_steps(lengths: list[int], batch_size: int, epoch: int) -> None:
    """As many batches as else, in the order of lengths, none of them empty; the steps up to the end of each are its
    share of all, to less than a sequence, where no sequence has to be moved on for a batch to have one."""
    batches = Batches(store(lengths), batch_size, even=True)
    plan = sorted((b.tolist() for b in batches.plan(epoch)), key=lambda b: max(lengths[i] for i in b))
    assert len(plan) == len(batches) == -(-len(lengths) // batch_size)
    assert all(plan)
    steps = np.array([sum(lengths[i] + 1 for i in b) for b in plan])
    longest, share = max(lengths) + 1, steps.sum() / len(plan)
    if share >= longest:  # then each share holds a sequence
        assert (np.abs(steps - share) < longest).all()


def test_even_batches_by_hand() -> None:
    """Steps 2, 2, 3, 3, 4, 5, 5 in order, 24 in all, three batches of about 8: the second begins with the sequence
    that passes 8, the third with the one that passes 16."""
    lengths = [4, 1, 2, 1, 3, 4, 2]
    batches = Batches(store(lengths), 3, shuffle=False, even=True)
    assert [[lengths[i] + 1 for i in b] for b in batches.plan(0)] == [[2, 2, 3], [3, 4], [5, 5]]
    long = Batches(store([1, 90, 1, 1]), 1, shuffle=False, even=True)
    assert [len(b) for b in long.plan(0)] == [1, 1, 1, 1]


def test_epochs_and_seeds_differ_and_repeat() -> None:
    sequences = store(list(range(1, 60)))
    order = lambda seed, epoch: [b.tolist() for b in Batches(sequences, 4, seed=seed).plan(epoch)]  # noqa: E731
    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)
    # Not only the order of the batches but their company changes.
    assert {tuple(sorted(b)) for b in order(0, 0)} != {tuple(sorted(b)) for b in order(0, 1)}


def test_evaluation_goes_by_length() -> None:
    lengths = [9, 2, 7, 2, 5]
    batches = list(Batches(store(lengths), 2, shuffle=False).epoch(0))
    assert [b.lengths.tolist() for b in batches] == [[2, 2], [5, 7], [9]]
    assert [b.index.tolist() for b in batches] == [[1, 3], [4, 2], [0]]


def test_buckets_waste_little() -> None:
    lengths = np.random.default_rng(0).integers(1, 300, 3000).tolist()
    padded = sum(b.x.numel() for b in Batches(store(lengths), 15).epoch(0))
    assert padded < 1.1 * sum(lengths)  # at random it would be about 1.9 x


def test_an_empty_share_is_filled_with_weight_0() -> None:
    (batch,) = Batches(store([3, 5]), 4, rank=2, world=3).epoch(0)
    assert batch.weight.tolist() == [0.0]
    assert batch.lengths.tolist() == [3]


def test_music_batches_are_floats_padded_with_silence() -> None:
    sequences = random_rolls([4, 6])
    (batch,) = Batches(sequences, 2, shuffle=False).epoch(0)
    assert batch.x.shape == (2, 6, 88)
    assert batch.x.dtype == torch.float32
    assert (batch.x[0, :4].numpy() == sequences[0]).all()
    assert not batch.x[0, 4:].any()
    assert batch.to("cpu").x.shape == batch.x.shape


def test_collate_makes_the_batches_of_an_epoch() -> None:
    spec = DataSpec("text", tuple("abcd"), (0, 1, 1, 1, 1), labels=("dull", "loud"))
    sequences = Sequences.of_symbols(map(spec.encode, ["ab", "dcb", "a"]), [2, 3, 1], 4)
    (batch,) = Batches(sequences.labelled(np.array([1, 0, 1])), 3, shuffle=False).epoch(0)
    made = collate(["a", spec.encode("ab"), "dcb"], spec, ["loud", "loud", "dull"])
    for name in ("x", "lengths", "weight", "label"):
        assert torch.equal(getattr(made, name), getattr(batch, name)), name
        assert getattr(made, name).dtype == getattr(batch, name).dtype
    assert made.index.tolist() == [0, 1, 2]
    assert made.shift is batch.shift is None
    assert collate(["a"], spec).label is None
    with pytest.raises(LatflowError, match="label 'new'; accepted: 'dull', 'loud'"):
        collate(["a"], spec, ["new"])
    with pytest.raises(LatflowError, match="have no labels"):
        DataSpec("text", ("a",), (0, 1)).label_index("new")


def test_what_is_not_varied_is_as_it_was_before_shifts_were_told() -> None:
    rng = np.random.default_rng(0)
    pieces = Sequences.of_rolls((rng.integers(0, 10, (n, 88)) < 1).astype(np.uint8) for n in [30, 5, 18, 44])
    text = Sequences.of_symbols([rng.integers(9, size=n) for n in (5, 9, 2, 7)], [5, 9, 2, 7], 9)
    found = hashlib.sha256()
    for batches in (Batches(pieces, 3, crop=8, seed=5), Batches(pieces, 3, seed=5), Batches(text, 3, seed=5)):
        for batch in batches.epoch(2):
            for tensor in (batch.x, batch.lengths, batch.index, batch.weight):
                found.update(tensor.numpy().tobytes())
    assert found.hexdigest() == "01768a4f4761e56f2cf41859988931bee2cd4d5a87e2ba25feacadc00d766d19"


def test_crops_are_stretches_of_their_piece() -> None:
    sequences = random_rolls([30, 5, 18])
    starts = set()
    for epoch in range(6):
        (batch,) = Batches(sequences, 3, crop=8).epoch(epoch)
        assert sorted(batch.lengths.tolist()) == [5, 8, 8]
        for x, length, i in zip(batch.x, batch.lengths.tolist(), batch.index.tolist(), strict=True):
            piece, part = sequences[i], x[:length].numpy()
            found = [s for s in range(len(piece) - length + 1) if (piece[s : s + length] == part).all()]
            assert found
            starts.add((i, found[0]))
    assert len({start for i, start in starts if i == 0}) > 2


def test_transposition_keeps_the_music_and_says_by_how_much() -> None:
    sequences = random_rolls([12, 12, 12])
    shifts = []
    for epoch in range(40):
        for batch in Batches(sequences, 2, transpose=20, seed=1).epoch(epoch):
            assert batch.shift is not None
            assert batch.shift.dtype == torch.int64
            for x, i, shift in zip(batch.x.numpy(), batch.index.tolist(), batch.shift.tolist(), strict=True):
                piece = sequences[i]
                assert shift == np.flatnonzero(x.any(0))[0] - np.flatnonzero(piece.any(0))[0]
                assert (np.roll(piece, shift, axis=1) == x).all()
                assert x.sum() == piece.sum()
                shifts.append(shift)
    assert -14 <= min(shifts) < 0 < max(shifts) <= 14  # the keyboard ends before 20
    assert len(set(shifts)) > 20


@pytest.mark.parametrize("zero", [0.0, 0.3, 1.0])
def test_a_share_of_pieces_stays_and_the_others_go_anywhere_alike(zero: float) -> None:
    sequences = random_rolls([2] * 4000)
    (batch,) = Batches(sequences, 4000, transpose=3, transpose_zero=zero, seed=1).epoch(0)
    assert batch.shift is not None
    counts = np.bincount(batch.shift.numpy() + 3, minlength=7)
    expected = 4000 * np.where(np.arange(7) == 3, zero, (1 - zero) / 6)
    assert len(counts) == 7
    assert (
        np.abs(counts - expected) <= 4 * np.sqrt(expected)
    ).all()  # four standard deviations, or none at all


def test_pieces_that_cannot_move_and_evaluation_have_shift_0() -> None:
    wide = np.zeros((4, 88), np.uint8)
    wide[:, [0, 87]] = 1
    sequences = Sequences.of_rolls([wide, np.zeros((3, 88), np.uint8)])
    for batches in (
        Batches(sequences, 2, transpose=5, transpose_zero=0.0),
        Batches(random_rolls([3, 4]), 2, shuffle=False),
    ):
        (batch,) = batches.epoch(0)
        assert batch.shift is not None
        assert batch.shift.tolist() == [0, 0]
        moved = batch.to("meta")
        assert moved.shift is not None
        assert moved.shift.device == moved.x.device == torch.device("meta")


def test_keys_move_with_the_music() -> None:
    sequences = random_rolls([9, 9, 9, 9])
    keys = np.array([0, 1, 23, 12])
    for turning in (True, False):
        labelled = sequences.labelled(keys, keys=turning)
        (batch,) = Batches(labelled, 4, transpose=5, transpose_zero=0.0).epoch(0)
        assert batch.label is not None
        assert batch.shift is not None
        assert batch.shift.all()
        for i, label, shift in zip(batch.index, batch.label, batch.shift, strict=True):
            assert int(label) == (keys[i] + (2 * int(shift) if turning else 0)) % 24


def test_variation_does_not_depend_on_the_number_of_processes_nor_on_where_one_begins() -> None:
    sequences = random_rolls([30, 25, 40, 12, 33])
    options: dict[str, Any] = {"crop": 10, "transpose": 5, "seed": 2}
    whole = list(Batches(sequences, 2, **options).epoch(1))
    alone = {i: (x, t) for b in whole for i, x, t in zip(b.index.tolist(), b.x, shifts_of(b), strict=True)}
    others = [Batches(sequences, 2, rank=rank, world=2, **options).epoch(1) for rank in range(2)]
    for batch in (*others[0], *others[1], *Batches(sequences, 2, **options).epoch(1, start=2)):
        rows = zip(batch.index.tolist(), batch.x, shifts_of(batch), batch.weight, strict=True)
        for i, x, shift, weight in rows:
            assert not weight or (torch.equal(x, alone[i][0]) and shift == alone[i][1])


def test_batches_refuse_what_makes_no_sense() -> None:
    with pytest.raises(LatflowError, match="batch size 0"):
        Batches(store([1]), 0)
    with pytest.raises(LatflowError, match="for music only"):
        Batches(store([1]), 1, crop=3)
    with pytest.raises(LatflowError, match=r"transpose_zero is 1\.5"):
        Batches(store([1]), 1, transpose_zero=1.5)
    with pytest.raises(ValueError, match="rank"):
        Batches(store([1]), 1, rank=2, world=2)
