"""A user's own text and tokens, Penn Treebank, the help topics."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latflow.config import DataConfig
from latflow.data import Corpus, load
from latflow.data.own import seeded_split
from latflow.data.text import read_chunks, read_lines
from latflow.errors import LatflowError, LatflowWarning

WORDS = ["one", "two", "three", "four", "fünf", "шесть", "七七七", "eight"] * 5


def own(path: Path, kind: str = "text", **options: object) -> Corpus:
    return load(DataConfig(f"{kind}:{path}", **options))  # type: ignore[arg-type]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def decoded(corpus: Corpus, split: str) -> list:
    return [corpus.spec.decode(x) for x in corpus.splits[split]]


def test_a_file_is_split_without_loss_under_a_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", "\n".join(WORDS) + "\n")
    corpus = own(path, unknown=False)
    assert [len(corpus.splits[s]) for s in ("train", "valid", "test")] == [32, 4, 4]
    parts = [decoded(corpus, split) for split in ("train", "valid", "test")]
    assert sorted(line for part in parts for line in part) == sorted(WORDS)
    assert corpus.spec.symbols == tuple(sorted(set("".join(WORDS))))
    again = own(path, unknown=False)
    assert [decoded(again, split) for split in ("train", "valid", "test")] == parts
    assert decoded(own(path, split_seed=1), "test") != parts[2]
    assert len(own(path, test_fraction=0.5).splits["test"]) == 20
    assert str(path) in corpus.files


def test_files_named_train_valid_test_are_taken_at_their_word(tmp_path: Path) -> None:
    for name, text in (("train", "aa\nab\n"), ("valid", "b\n"), ("test", "cc\r\nba")):
        write(tmp_path / f"{name}.txt", text)
    corpus = own(tmp_path, unknown=False)
    assert [decoded(corpus, s) for s in ("train", "valid", "test")] == [["aa", "ab"], ["b"], ["cc", "ba"]]
    assert corpus.spec.symbols == ("a", "b", "c")  # c is in the test alone, yet has its place
    (tmp_path / "valid.txt").unlink()
    with pytest.raises(LatflowError, match="train and test but no valid"):
        own(tmp_path)


def test_a_folder_of_other_files_is_one_heap(tmp_path: Path) -> None:
    write(tmp_path / "b" / "2.txt", "cc\ndd\n")
    write(tmp_path / "1.TXT", "aa\nbb\n")
    write(tmp_path / "notes.md", "zz\n")
    assert own(tmp_path, unknown=False).spec.symbols == ("a", "b", "c", "d")
    with pytest.raises(LatflowError, match="no files ending in"):
        own(write(tmp_path / "empty" / "x.md", "").parent)


def test_chunks_cut_everything_and_lose_nothing(tmp_path: Path) -> None:
    text = "\n".join(WORDS)
    path = write(tmp_path / "my.txt", "\ufeff" + text)
    assert "".join(read_chunks(path, 7)) == text
    corpus = own(path, chunk=7)
    lengths = np.concatenate([corpus.splits[s].lengths for s in ("train", "valid", "test")])
    assert lengths.sum() == len(text)
    assert sorted(set(lengths.tolist())) == sorted({7, len(text) % 7})
    assert "\n" in corpus.spec.symbols


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=20), max_size=10))
def test_any_lines_are_read_as_written(tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path / "any.txt", "".join(line + "\n" for line in ["first", *lines]))
    assert [line for _, line in read_lines(path)] == ["first", *lines]
    assert "".join(read_chunks(path, 3)) == path.read_bytes().decode()


def test_tokens_of_any_kind(tmp_path: Path) -> None:
    rows = [["login", 7, "7", -1], [7], ["läuft", ""], [10**30, 7]] * 4
    path = write(tmp_path / "log.jsonl", "\n".join(map(json.dumps, rows)))
    corpus = own(path, "tokens")
    assert corpus.spec.symbols == (-1, 7, 10**30, "", "7", "login", "läuft", "<unknown>")
    everything = [row for split in ("train", "valid", "test") for row in decoded(corpus, split)]
    assert sorted(map(json.dumps, everything)) == sorted(map(json.dumps, rows))
    assert corpus.spec.unit == "bits"


@contextmanager
def powerless() -> Iterator[None]:
    """Root may read everything; act as someone who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"my\.txt: empty"),
        (b"\n\n\n", r"my\.txt: empty"),
        (b"good\nbad \xff\n", r"my\.txt, line 2: byte 5 is 0xff, not UTF-8"),
        (b"a\nb\n" + b"x" * 30_000 + b"\nc\n", r"my\.txt, line 3: more than 20000 characters.*chunk"),
        (b"a\nb\n" + "é".encode() * 90_000, r"my\.txt, line 3: more than 20000 characters.*chunk"),
        (b"only\ntwo\n", "2 sequences; train, valid and test need one each"),
    ],
)
def test_bad_text_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = write(tmp_path / "my.txt", content)
    with pytest.raises(LatflowError, match=said) as caught:
        own(path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_bad_bytes_are_named_when_cut_into_chunks_too(tmp_path: Path) -> None:
    with pytest.raises(LatflowError, match=r"my\.txt, line 2: not UTF-8"):
        own(write(tmp_path / "my.txt", b"good\nbad \xff\n"), chunk=3)


def test_empty_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", "aa\n\nbb\n\ncc\n")
    with pytest.warns(LatflowWarning, match=r"my\.txt: line 2 and 1 others empty, skipped"):
        corpus = own(path)
    assert sum(map(len, corpus.splits.values())) == 3


def test_long_lines_are_left_out_if_a_limit_is_set(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", "a\nbb\ncc\n" + "x" * 30_000 + "\n")
    with pytest.warns(LatflowWarning, match="1 of 4 sequences, longer than max_length 2, left out"):
        corpus = own(path, max_length=2)
    assert sum(map(len, corpus.splits.values())) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a": 1}', "line 2: not a list"),
        ("7", "line 2: not a list but 7"),
        ('{"tokens": 1}', "line 2: not a list"),
        ('{"tokens": [1.5]}', r"line 2: 1\.5 is no token"),
        ("[1, 2", "line 2: not JSON"),
        ("[1.5]", r"line 2: 1\.5 is no token"),
        ("[true]", "line 2: true is no token"),
        ("[[1]]", r"line 2: \[1\] is no token"),
        ("[]", "line 2: an empty list"),
        ("[" * 100_000, "line 2: not JSON"),
        ("[" + "9" * 5000 + "]", "line 2: not JSON"),
        ("[" + "1," * 20_000 + "1]", "line 2: 20001 tokens"),
        (r'["a\ud83d"]', "line 2: half of a surrogate pair"),
    ],
)
def test_bad_tokens_are_named(tmp_path: Path, line: str, said: str) -> None:
    path = write(tmp_path / "log.jsonl", f"[1]\n{line}\n")
    with pytest.raises(LatflowError, match=r"log\.jsonl, " + said) as caught:
        own(path, "tokens")
    assert len(str(caught.value)) < 300


def test_what_is_not_there_or_closed_is_named(tmp_path: Path) -> None:
    for kind in ("text", "tokens", "midi"):
        with pytest.raises(LatflowError, match=r"nowhere: no such file or folder"):
            own(tmp_path / "nowhere", kind)
    folder = write(tmp_path / "closed" / "a.txt", "a\nb\nc\n").parent
    folder.chmod(0)
    try:
        with powerless(), pytest.raises(LatflowError, match="permission denied"):
            own(folder)
    finally:
        folder.chmod(0o700)


def test_a_test_length_that_p_of_t_rules_out(tmp_path: Path) -> None:
    for name, text in (("train", "aaaa\nbb\n"), ("valid", "b\n"), ("test", "aaa\n" + "c" * 9 + "\n")):
        write(tmp_path / f"{name}.txt", text)
    with pytest.warns(LatflowWarning, match=r"1 of 2 test sequences left out.*\(9\)"):
        corpus = own(tmp_path)
    assert decoded(corpus, "test") == ["aaa"]  # allowed, since the histogram starts from one
    with pytest.raises(LatflowError, match="no test sequence"), pytest.warns(LatflowWarning, match="2 of 2"):
        own(tmp_path, smooth_lengths=False)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 50), min_size=3, max_size=30), st.integers(0, 3), st.booleans())
def test_a_random_split_loses_nothing_and_can_be_tested(lengths: list[int], seed: int, smooth: bool) -> None:
    sizes = np.array(lengths)
    try:
        split = seeded_split(sizes, DataConfig("text:x", split_seed=seed), smooth, "x")
    except LatflowError:
        assert not smooth  # without smoothing there may be no two sequences of one length
        return
    assert sorted(np.concatenate(list(split.values())).tolist()) == list(range(len(lengths)))
    assert min(map(len, split.values())) >= 1
    seen = sizes[np.concatenate([split["train"], split["valid"]])]
    if smooth:
        assert sizes[split["test"]].max() <= int(1.25 * seen.max())
    else:
        assert np.isin(sizes[split["test"]], seen).all()


@pytest.mark.parametrize(
    "options",
    [
        {"valid_fraction": 0.5, "test_fraction": 0.5},
        {"test_fraction": 0.0},
        {"chunk": -1},
        {"max_length": 0},
        {"split_seed": -1},
        {"crop": 4},
        {"transpose": 1},
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict) -> None:
    path = write(tmp_path / "my.txt", "\n".join(WORDS))
    with pytest.raises(LatflowError, match="|".join(options)):
        own(path, **options)


def test_the_help_topics_are_sentences() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corpus = load(DataConfig("pydoc"))
    everything = [line for split in corpus.splits for line in decoded(corpus, split)]
    assert len(everything) == len(set(everything)) > 500  # 1681 on Python 3.11; other versions differ
    assert all(line[0].isupper() and line.endswith(".") and 20 <= len(line) <= 200 for line in everything)
    assert all(line.isascii() and "\n" not in line and "  " not in line for line in everything)
    assert len(corpus.splits["train"]) > 4 * len(corpus.splits["test"]) > 0
    assert all(corpus.spec.length_counts[length] for length in corpus.splits["test"].lengths)


def test_unknown_names_are_refused() -> None:
    for name in ("nope", "text:", "video:x", ""):
        with pytest.raises(LatflowError, match="accepted: ptb"):
            load(DataConfig(name))
