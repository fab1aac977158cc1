"""The fields of the config as options: which there are, what a typed word means, and the config they give.

`latflow.config` decides what is accepted, and its messages are the user's. The list of fields made here serves --help,
the hints at a misspelt name, and to tell text from numbers; what it does not have is handed on all the same.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from latflow.axes import AXES, Choice
from latflow.config import Config, evolve, from_dict, to_dict
from latflow.errors import LatflowError
from latflow.former import MOVED, upgraded

# Which there are.


@dataclass(frozen=True)
class Field:
    """A dotted field, or an option of a choice."""

    name: str
    hint: Any
    """Its type."""
    default: Any
    doc: str
    axis: str | None = None
    """Of a choice."""
    only: tuple[str, ...] = ()
    """The names that have this option, where others of the axis do not."""

    @property
    def help(self) -> str:
        """The docstring below the field, then its default."""
        default = self.default.name if isinstance(self.default, Choice) else self.default
        typed = default if isinstance(default, str) else json.dumps(default)
        notes = [] if default is None else [typed]
        notes += [f"{' and '.join(self.only)} only"] if self.only else []
        return " ".join([*self.doc.split(), *([f"({'; '.join(notes)})"] if notes else [])])

    @property
    def metavar(self) -> str:
        return "|".join(AXES[self.axis]) if self.axis else _metavar(self.hint)


def listed(cls: type = Config, prefix: str = "") -> Iterator[Field]:
    """Every field of the config, and behind each choice the options of all that can be chosen there."""
    hints, docs = get_type_hints(cls), field_docs(cls)
    for f in dataclasses.fields(cls):
        name, hint, axis = f"{prefix}{f.name}", hints[f.name], f.metadata.get("axis")
        if axis is None and is_dataclass(hint):
            assert isinstance(hint, type)
            yield from listed(hint, f"{name}.")
            continue
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        yield Field(name, hint, default, docs.get(f.name, ""), axis)
        options: dict[str, list[tuple[str, Field]]] = {}
        for entry in AXES[axis].values() if axis else ():
            for option in listed(entry.options, f"{name}."):
                options.setdefault(option.name, []).append((entry.name, option))
        for own in options.values():
            names = tuple(entry for entry, _ in own)
            everywhere = axis is not None and len(names) == len(AXES[axis])
            yield dataclasses.replace(own[0][1], only=() if everywhere else names)


@cache
def field_docs(cls: type) -> Mapping[str, str]:
    """The docstrings that stand below the fields of a dataclass, its bases' too."""
    found: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if is_dataclass(base)]):
        try:
            body = _written(base.__module__)[base.__qualname__]
        except (OSError, TypeError, KeyError):  # a user's own, typed at a prompt
            continue
        for above, below in pairwise(body):
            if (
                isinstance(above, ast.AnnAssign)
                and isinstance(above.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[above.target.id] = str(below.value.value)
    return found


@cache
def _written(module: str) -> dict[str, list[ast.stmt]]:
    """The bodies of the classes of a module by their qualified names. `inspect.getsource` of a class reads all of its
    module, so that the classes of the config took a third of a second at every command with a field in it."""
    found: dict[str, list[ast.stmt]] = {}

    def collect(node: ast.AST, prefix: str) -> None:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.ClassDef):
                found[prefix + part.name] = part.body
                collect(part, f"{prefix}{part.name}.")
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                collect(part, f"{prefix}{part.name}.<locals>.")
            elif isinstance(part, ast.stmt):
                collect(part, prefix)

    collect(ast.parse(inspect.getsource(sys.modules[module])), "")
    return found


def add_fields(
    parser: Any,
    prefix: str = "",
    leave_out: Collection[str] = (),
    spelt: Callable[[str], str] = "--{}".format,
) -> list[str]:
    """An option for each dotted field that begins so; their names.

    A word is kept as it is typed, under the dotted name, for `read_words`; of what is not typed there is nothing.
    """
    found = [f for f in listed() if f.name.startswith(prefix) and f.name not in leave_out]
    for f in found:
        text = f.help.replace("%", "%%")
        parser.add_argument(
            spelt(f.name), dest=f.name, metavar=f.metavar, default=argparse.SUPPRESS, help=text
        )
    return [f.name for f in found]


# What may be typed.


def take(words: Sequence[str], heads: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """The words without the fields of the config, and those: `--a.b VALUE` or `--a.b=VALUE` where `a` is a head."""
    rest: list[str] = []
    found: dict[str, str] = {}
    left = iter(words)
    for word in left:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name.partition(".")[0] not in heads:
            rest.append(word)
            continue
        if not equals:
            value = next(left, "--")
            if value.startswith("--"):
                raise LatflowError(f"{word} needs a value, as in {word} VALUE")
        found[name] = value
    return rest, found


# What it means.


def read_words(words: Mapping[str, str]) -> dict[str, Any]:
    """Typed words as values: YAML's scalars and lists, but a word as it stands where the field is text or a name."""
    hints = {f.name: f.hint for f in listed()}
    return {name: _read_word(word, _kinds(hints.get(name))) for name, word in words.items()}


def _read_word(word: str, kinds: Collection[Any]) -> Any:
    if str in kinds or Choice in kinds:
        return None if word == "null" and type(None) in kinds else word
    try:
        value = load_yaml(word)
    except LatflowError:
        return word
    return word if isinstance(value, Mapping) else value


def load_yaml(text: str) -> Any:
    """What JSON could hold, from YAML as its version 1.2 reads numbers: 1e-3 is one, and a date is text."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012
            first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith((":timestamp", ":float"))]
            for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # a few lines of them can stand for more than memory holds
                raise LatflowError("an alias (*name) is not read; write the fields out")
            return super().compose_node(parent, index)

    number = r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
    pattern = re.compile(rf"^(?:{number}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", pattern, list("-+0123456789."))
    try:
        value = yaml.load(text, Loader)
        json.dumps(value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise LatflowError(f"not YAML or JSON: {error.problem}{where}") from None
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise LatflowError(f"not YAML or JSON: {' '.join(str(error).split())}") from None
    return value


def read_file(path: str) -> Mapping[str, Any]:
    """The fields of a config file, by the names they have now; it is read once, so it may be a pipe."""
    from latflow.data.files import read_whole

    try:
        text = read_whole(path)
    except LatflowError as error:
        raise LatflowError(f"--config {error}") from None
    try:
        raw = load_yaml(text.decode())
    except UnicodeDecodeError as error:
        raise LatflowError(f"--config {path}: the file is not UTF-8 text ({error.reason})") from None
    except LatflowError as error:
        raise LatflowError(f"--config {path}: {error}") from None
    if not isinstance(raw, Mapping) or not raw:
        raise LatflowError(f"--config {path}: there are no fields in the file")
    return upgraded(raw)


def dotted(config: Any, raw: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted fields, as deep as the config is nested; a choice is its name, then its options."""
    found: dict[str, Any] = {}
    for name, value in raw.items():
        own = getattr(config, str(name), None)
        if isinstance(own, Choice) and isinstance(value, Mapping):
            found |= {
                f"{prefix}{name}.{option}": given for option, given in value.items() if option != "name"
            }
            found[f"{prefix}{name}"] = value.get("name", own.name)
        elif is_dataclass(own) and isinstance(value, Mapping):
            found |= dotted(own, value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


_Unchecked = dataclasses.make_dataclass(
    "Config", [(f.name, f.type) for f in dataclasses.fields(Config)], frozen=True
)
"""The config without what its fields say of each other, which is asked once their types are known to be right."""


def changed(base: Config, values: Mapping[str, Any]) -> Config:
    """The config with some dotted fields changed."""
    parts = (getattr(base, f.name) for f in dataclasses.fields(base))
    try:
        return from_dict(to_dict(evolve(_Unchecked(*parts), values)))
    except LatflowError as error:
        raise LatflowError(f"{error}{_near(values, str(error))}") from None


def _near(values: Mapping[str, Any], message: str) -> str:
    """The whole name of a field that the message has in part and, of one that there is not, those spelt like it."""
    known = [f.name for f in listed()]
    for name in values:
        if name not in message and repr(name.rpartition(".")[2]) in message:
            if name in MOVED:
                return f" (given: {name}; now: {', '.join(MOVED[name])})"
            near = get_close_matches(name, known, 3) if name not in known else []
            return f" (given: {name}" + (f"; near: {', '.join(near)})" if near else ")")
    return ""


# Types.


def _kinds(hint: Any) -> tuple[Any, ...]:
    """A type, or those of a union."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _metavar(hint: Any) -> str:
    kind = next((kind for kind in _kinds(hint) if kind is not type(None)), None)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"[{', '.join(map(_metavar, get_args(kind)))}]"
    return {str: "TEXT", int: "N", float: "X", bool: "true|false"}.get(kind, "VALUE")
