"""The fields of the config as options: which there are, what a typed word means, and the config they give.

`latflow.config` decides what is accepted, and its messages are the user's. The list of fields made here serves --help
and the hints at a misspelt name only: a field may also be one of a choice that is not the default.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from latflow.axes import AXES, Choice
from latflow.config import Config, evolve, flatten, from_dict, to_dict
from latflow.errors import LatflowError

# What may be typed.


def add_fields(
    parser: Any,
    prefix: str = "",
    leave_out: Collection[str] = (),
    spelt: Callable[[str], str] = "--{}".format,
) -> list[str]:
    """An option for each dotted field that begins so, explained by the docstring below the field; their names.

    A word is kept as it is typed, under the dotted name, for `read_words`; of what is not typed there is nothing.
    """
    docs, added = field_docs(Config()), []
    for name, (default, of) in _all_fields().items():
        if not name.startswith(prefix) or name in leave_out:
            continue
        shown = "" if default is None else f" ({_typed(default)})"
        choice = f" [{', '.join(of)}]" if of else ""
        parser.add_argument(
            spelt(name),
            dest=name,
            metavar=_metavar(_hint(name)),
            default=argparse.SUPPRESS,
            help=(" ".join(docs.get(name, "").split()) + choice + shown).strip().replace("%", "%%"),
        )
        added.append(name)
    return added


def _all_fields() -> dict[str, tuple[Any, list[str]]]:
    """Every dotted field and its default, the options of choices that the default config does not make among them,
    and of a choice or an option of some choices the names."""
    flat = flatten(Config())
    places = {f"model.{axis}": axis for axis in ("posterior", "emission")}
    places |= {f"model.prior.{axis}": axis for axis in AXES if f"model.prior.{axis}" in flat}
    found: dict[str, tuple[Any, list[str]]] = {}
    for name, default in flat.items():
        if name not in places:
            if name.rpartition(".")[0] not in places:
                found[name] = (default, [])
            continue
        axis = AXES[places[name]]
        found[name] = (default, list(axis))
        for entry in axis.values():
            for option, value in flatten(entry.options()).items():
                before = found.get(f"{name}.{option}", (value, []))
                found[f"{name}.{option}"] = (before[0], [*before[1], entry.name])
    return found


def field_docs(config: Any, prefix: str = "") -> dict[str, str]:
    """Dotted names of all fields of a config and the docstrings that stand below them."""
    body = ast.parse(inspect.getsource(type(config))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for above, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[f"{prefix}{above.target.id}"] = str(below.value.value)
    for base in type(config).__mro__[1:]:
        if is_dataclass(base):
            found = field_docs(base(), prefix) | found
    for field in fields(config):
        value, name = getattr(config, field.name), f"{prefix}{field.name}"
        if isinstance(value, Choice):
            for entry in AXES[value.axis].values():
                found |= field_docs(entry.options(), f"{name}.")
        elif is_dataclass(value):
            found |= field_docs(value, f"{name}.")
    return found


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
    """Typed words as values: YAML's scalars and lists, but a word as it stands where the field is text."""
    return {name: _read_word(name, word) for name, word in words.items()}


def _read_word(name: str, word: str) -> Any:
    kinds = _kinds(_hint(name))
    if str in kinds:
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
    """The fields of a config file; it is read once, so it may be a pipe."""
    try:
        with open(path, encoding="utf-8") as file:
            raw = load_yaml(file.read())
    except OSError as error:
        raise LatflowError(f"--config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise LatflowError(f"--config {path}: the file is not UTF-8 text ({error.reason})") from None
    except LatflowError as error:
        raise LatflowError(f"--config {path}: {error}") from None
    if not isinstance(raw, Mapping) or not raw:
        raise LatflowError(f"--config {path}: there are no fields in the file")
    return raw


def dotted(config: Any, raw: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted fields, as deep as the config itself is nested."""
    found: dict[str, Any] = {}
    for name, value in raw.items():
        own = getattr(config, str(name), None)
        if isinstance(own, Choice) and isinstance(value, Mapping):
            options = {
                f"{prefix}{name}.{option}": given for option, given in value.items() if option != "name"
            }
            found |= {f"{prefix}{name}": value.get("name", own.name), **options}
        elif is_dataclass(own) and isinstance(value, Mapping):
            found |= dotted(own, value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def changed(base: Config, values: Mapping[str, Any]) -> Config:
    """The config with some dotted fields changed; types are checked before what the fields say of each other."""
    raw: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    try:
        for field in fields(base):
            part = getattr(base, field.name)
            below = {
                name.partition(".")[2]: value
                for name, value in values.items()
                if name.startswith(f"{field.name}.")
            }
            if is_dataclass(part):
                part = to_dict(evolve(part, below))
            raw.setdefault(field.name, part)
        return from_dict(raw)
    except LatflowError as error:
        raise LatflowError(f"{error}{_near(values, str(error))}") from None


def _near(values: Mapping[str, Any], message: str) -> str:
    """Of a field that the message is about and that the default config does not have, those spelt like it."""
    known = _all_fields()
    for name in values:
        if name not in known and name.rpartition(".")[2] in message:
            near = get_close_matches(name, known, 3)
            return f" (given: {name}; near: {', '.join(near)})" if near else f" (given: {name})"
    return ""


# Types.


def _hint(name: str) -> Any:
    """The type of a dotted field; None of one that the default config does not have."""
    hint: Any = Config
    axis: str | None = None
    for part in name.split("."):
        if axis is not None:
            options = (get_type_hints(entry.options) for entry in AXES[axis].values())
            hint, axis = next((hints[part] for hints in options if part in hints), None), None
        elif isinstance(hint, type) and is_dataclass(hint):
            axis = next((f.metadata.get("axis") for f in fields(hint) if f.name == part), None)
            hint = get_type_hints(hint).get(part)
        else:
            hint = None
    return hint if axis is None else str


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


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
