"""Text: Penn Treebank, a user's own characters or tokens, and the sentences every Python carries."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from latflow.config import DataConfig
from latflow.data.base import Corpus, DataSpec, Sequences
from latflow.data.files import readable
from latflow.data.labels import field_name, folder_label, numbered
from latflow.data.own import LONGEST, SPLITS, assemble, count_lengths, keep_lengths, split_files
from latflow.errors import LatflowError, LatflowWarning

PTB_LONGEST = 288
MOST_CHARACTERS = 1 << 26
"""No line may be longer, whatever is asked: it has to fit into memory before it can be left out."""


def read_lines(path: Path, longest: int = LONGEST) -> Iterator[tuple[int, str]]:
    """(line number, line) of a UTF-8 file, without line ends or a byte order mark, read line by line.

    A line that is not UTF-8, or of more than `longest` characters, is an error that names it.
    """
    most = 4 * longest + 3  # bytes: a character has four at most
    with readable(path), path.open("rb") as stream:
        number = 0
        while raw := stream.readline(most):
            number += 1
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                line = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError as error:
                cut = len(raw) == most and error.reason == "unexpected end of data"
                if not cut:
                    raise LatflowError(
                        f"{path}, line {number}: byte {error.start + 1} is {raw[error.start]:#x}, not UTF-8; "
                        "save the file in that encoding"
                    ) from None
                line = " " * (longest + 1)
            if len(line) > longest:
                raise LatflowError(
                    f"{path}, line {number}: more than {longest} characters in one line; "
                    "cut the text every N characters with chunk, or set max_length"
                )
            yield number, line


def read_texts(path: Path, config: DataConfig) -> list[str]:
    """The lines of a file that are not empty, or its text cut every `chunk` characters."""
    return [text for _, text in text_lines(path, config)]


def text_lines(path: Path, config: DataConfig) -> list[tuple[int, str]]:
    """The same with the number of each line in the file, empty ones counted; of pieces of a text, their own from 1."""
    if config.chunk:
        return list(enumerate(read_chunks(path, config.chunk), start=1))
    found, empty = [], []
    for number, line in read_lines(path, LONGEST if config.max_length is None else MOST_CHARACTERS):
        found.append((number, line)) if line else empty.append(number)
    if empty and found:
        _warn_skipped(path, empty)
    return found


def _warn_skipped(path: Path, empty: list[int]) -> None:
    others = f" and {len(empty) - 1} others" * (len(empty) > 1)
    warnings.warn(f"{path}: line {empty[0]}{others} empty, skipped", LatflowWarning, stacklevel=4)


def read_chunks(path: Path, size: int) -> Iterator[str]:
    """A file's text cut every `size` characters, line ends and all; the last piece may be shorter."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest, line, done = "", 1, False
    with readable(path), path.open("rb") as stream:
        while not done:
            block = stream.read(1 << 20)
            done = not block
            try:
                text = decoder.decode(block, final=done)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                raise LatflowError(
                    f"{path}, line {line}: not UTF-8 ({error.reason}); save the file in that encoding"
                ) from None
            line += text.count("\n")
            rest += text
            whole = len(rest) if done else len(rest) // size * size
            yield from (rest[i : min(i + size, whole)] for i in range(0, whole, size))
            rest = rest[whole:]


def load_text(path: Path, config: DataConfig) -> Corpus:
    """A user's own text, over every character that occurs in its training split and one for all others."""
    files = split_files(path, (".txt",))
    parts: dict[str, list[Any]] = {part: [] for part in files}
    labels: dict[str, list[str]] = {part: [] for part in files}
    for part, group in files.items():
        for file in group:
            found = read_texts(file, config)
            parts[part] += found
            if config.labels:
                labels[part] += [folder_label(file, path, part)] * len(found)
    return _from_lists("text", parts, tuple(sorted(_distinct(parts))), files, config, labels)


def load_tokens(path: Path, config: DataConfig) -> Corpus:
    """A user's own token sequences, JSON lines: each line a list of whole numbers or strings, or an object with one."""
    files = split_files(path, (".jsonl", ".json"))
    parts: dict[str, list[Any]] = {part: [] for part in files}
    labels: dict[str, list[str]] = {part: [] for part in files}
    for part, group in files.items():
        for file in group:
            found, named = read_tokens(file, config)
            parts[part] += found
            if config.labels:
                labels[part] += named or [folder_label(file, path, part)] * len(found)
    symbols = sorted(_distinct(parts), key=lambda token: (isinstance(token, str), token))
    return _from_lists("tokens", parts, tuple(symbols), files, config, labels)


def _distinct(parts: dict[str, list[Any]]) -> set[Any]:
    """The symbols of all splits: without one for unknown, a symbol that only the test has needs a likelihood too."""
    return set().union(*(item for group in parts.values() for item in group))


def _from_lists(
    kind: str,
    parts: dict[str, list[Any]],
    symbols: tuple[str | int, ...],
    files: dict[str, list[Path]],
    config: DataConfig,
    labels: dict[str, list[str]],
) -> Corpus:
    if not symbols:
        first = next(group[0] for part, group in files.items() if not parts[part])
        raise LatflowError(f"{first}: empty, there is no sequence in it")
    spec = DataSpec(kind, symbols, (0, 1))  # to encode with; the true lengths are counted after the split
    stores = {}
    names, numbers = numbered(labels)
    for part, items in parts.items():
        keep = keep_lengths([len(item) for item in items], config, config.name)
        stores[part] = encode_all(spec, [item for item, kept in zip(items, keep, strict=True) if kept])
        if config.labels:
            stores[part] = stores[part].labelled(numbers[part][keep])
    return assemble(config, kind, stores, symbols, files, names)


def encode_all(spec: DataSpec, items: Sequence[Any]) -> Sequences:
    """Encoded sequences in the compact store."""
    return Sequences.of_symbols(map(spec.encode, items), [len(item) for item in items], spec.size)


def read_tokens(path: Path, config: DataConfig) -> tuple[list[list[str | int]], list[str]]:
    """The sequences of a JSON-lines file, and their labels if those are a field; any other line is an error that names
    it.
    """
    found, labels = [], []
    field = field_name(config)
    for number, line in token_lines(path):
        try:
            entry = _parsed(line)
            found.append(_tokens(entry, line, config))
            if field is not None:
                labels.append(_label(entry, field))
        except LatflowError as error:
            raise LatflowError(f"{path}, line {number}: {error}") from None
    return found, labels


def token_lines(path: Path) -> list[tuple[int, str]]:
    """(line number, line) of a JSON-lines file, without empty ones."""
    lines = [(number, line.strip()) for number, line in read_lines(path, MOST_CHARACTERS)]
    found, empty = [pair for pair in lines if pair[1]], [number for number, line in lines if not line]
    if empty and found:
        _warn_skipped(path, empty)
    return found


def read_list(line: str, config: DataConfig) -> list[str | int]:
    """A line of JSON that is a sequence of tokens, or an object that has it as "tokens"."""
    return _tokens(_parsed(line), line, config)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deep or too large"
        raise LatflowError(f"not JSON ({reason})") from None


def _label(entry: Any, field: str) -> str:
    """The label of a line that is an object with that field."""
    label = entry.get(field) if isinstance(entry, dict) else None
    if type(label) not in (str, int):
        given = f"its {field!r} is {json.dumps(label)[:40]}" if label is not None else f"no {field!r} in it"
        raise LatflowError(
            f'{given}; labels are that field, so a line is {{"tokens": [...], "{field}": "x"}}'
        )
    if _half_pairs(str(label)):
        raise LatflowError("half of a surrogate pair stands alone, which is no Unicode text")
    return str(label)


def _half_pairs(text: str) -> bool:
    return re.search("[\ud800-\udfff]", text) is not None


def _tokens(entry: Any, line: str, config: DataConfig) -> list[str | int]:
    tokens = entry.get("tokens") if isinstance(entry, dict) else entry
    if not isinstance(tokens, list):
        raise LatflowError(
            f'not a list but {line[:40]}; a sequence is a list of tokens, or an object with one as "tokens"'
        )
    wrong = [token for token in tokens if type(token) not in (int, str)]
    if wrong:
        raise LatflowError(f"{json.dumps(wrong[0])[:40]} is no token (whole number, string)")
    if any(isinstance(token, str) and _half_pairs(token) for token in tokens):
        raise LatflowError("half of a surrogate pair stands alone, which is no Unicode text")
    if not tokens:
        raise LatflowError("an empty list; a sequence has one token at least")
    if config.max_length is None and len(tokens) > LONGEST:
        raise LatflowError(f"{len(tokens)} tokens, over {LONGEST}; cut it, or set max_length")
    return tokens


def load_ptb(paths: list[Path], config: DataConfig) -> Corpus:
    """Penn Treebank sentences as the paper uses them: a line stripped, kept if it has 1 to 288 characters."""
    longest = config.max_length or PTB_LONGEST
    lines = {}
    for split, path in zip(SPLITS, paths, strict=True):
        stripped = (line.strip() for _, line in read_lines(path))
        lines[split] = [line for line in stripped if 1 <= len(line) <= longest]
    origin = f"Penn Treebank, {paths[0].parent}"
    return _given_split("ptb", lines, bool(config.smooth_lengths), origin, tuple(map(str, paths)))


def _given_split(
    name: str, lines: dict[str, list[str]], smooth: bool, origin: str, files: tuple[str, ...] = ()
) -> Corpus:
    """A text corpus whose split is given."""
    for split, items in lines.items():
        if not items:
            raise LatflowError(f"{name}: no sentence of {split} is short enough for max_length")
    symbols = tuple(sorted(_distinct(lines)))
    spec = DataSpec("text", symbols, (0, 1))
    splits = {split: encode_all(spec, items) for split, items in lines.items()}
    splits, counts = count_lengths(name, splits, smooth)
    return Corpus(name, DataSpec("text", symbols, counts), splits, origin, files=files)


def pydoc_sentences() -> list[str]:
    """The English sentences of the help topics of this Python, each once, in alphabetical order.

    Paragraphs with an underlined heading, a table, a prompt or a grammar rule are left out. Every other is
    joined to one line, the marks of emphasis and of footnotes are dropped, and it is cut after . ! or ?
    before a capital. A sentence is kept that starts with a capital, ends with a full stop, has 20 to 200
    characters out of printable ASCII, and consists for nine parts in ten of letters, spaces and commas:
    what is left of code does not.
    """
    from pydoc_data.topics import topics

    kept = set()
    for text in topics.values():
        for paragraph in re.split(r"\n\s*\n", text):
            if re.search(r"^\s*(\*\*|==|--|~~|\||\+|>>>|\.\.\.)|::=", paragraph, re.MULTILINE):
                continue
            joined = re.sub(r"\s+", " ", re.sub(r'[*"]|\[\d+\]', "", paragraph).replace("’", "'")).strip()
            for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", joined):
                plain = len(re.findall(r"[A-Za-z ,]", sentence))
                if re.fullmatch(r"[A-Z][ -~]{18,198}\.", sentence) and plain >= 0.9 * len(sentence):
                    kept.add(sentence)
    return sorted(kept)


def load_pydoc(config: DataConfig) -> Corpus:
    """`pydoc`: a sentence's own hash tells its split, so that it is the same on every Python."""
    lines: dict[str, list[str]] = {split: [] for split in SPLITS}
    for sentence in pydoc_sentences():
        if config.max_length and len(sentence) > config.max_length:
            continue
        bucket = hashlib.sha256(sentence.encode()).digest()[0] % 10
        lines["test" if bucket == 0 else "valid" if bucket == 1 else "train"].append(sentence)
    if not config.smooth_lengths:  # a plain histogram: a test sentence with a length of its own is trained on
        seen = {len(line) for split in ("train", "valid") for line in lines[split]}
        lines["train"] += [line for line in lines["test"] if len(line) not in seen]
        lines["test"] = [line for line in lines["test"] if len(line) in seen]
    version = ".".join(map(str, sys.version_info[:3]))
    origin = f"the help topics of Python {version}; another version has other sentences"
    return _given_split("pydoc", lines, bool(config.smooth_lengths), origin)
