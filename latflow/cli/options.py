"""`latflow train`: every field of the config is an option, over a config file, over a preset, over the defaults.

No torch here, so that `latflow train --help` and `--print_config` answer at once.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from latflow.cli.fields import field_docs
from latflow.config import Config, flatten, from_dict, to_dict
from latflow.errors import LatflowError
from latflow.presets import find

_OWN = ("preset", "config", "print_config", "run", "resume", "quiet")


@dataclass(frozen=True)
class TrainOptions:
    """What was asked for on the command line."""

    config: Config
    preset: str | None
    run: str | None
    resume: str | None
    quiet: bool
    print_config: str | None
    """The resolved config as YAML, if it is to be printed and nothing else done."""


def train(args: argparse.Namespace) -> int:
    """`latflow train`."""
    options = parse_train(args.words)
    if options.print_config is not None:
        print(options.print_config, end="")
        return 0
    from latflow.cli import models

    return models.train(options)


def parse_train(words: list[str]) -> TrainOptions:
    """The words after `latflow train`; a wrong one is a LatflowError that names it."""
    parser = _parser()
    first = _parse(parser, words)
    if first.resume is not None:
        others = [
            word
            for word in words
            if word.startswith("-") and word.split("=")[0] not in ("--resume", "--quiet")
        ]
        if first.preset or others:
            raise LatflowError(
                f"--resume goes on with the run's own config; leave out {first.preset or others[0]} "
                "(a new run from an old config: latflow train --config RUN/config.json --train.lr 0.001)"
            )
        return TrainOptions(Config(), None, None, first.resume, first.quiet, None)
    if first.preset is None and not first.config:
        raise LatflowError("train what? give a preset (latflow presets), --config FILE or --resume RUN")
    if first.preset is not None:
        parser.set_defaults(flatten(find(first.preset).config))
    parsed = _parse(parser, words)
    config = from_dict({name: value for name, value in parsed.as_dict().items() if name not in _OWN})
    text = None
    if parsed.print_config:
        import yaml

        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    return TrainOptions(config, parsed.preset, parsed.run, None, parsed.quiet, text)


def _parser() -> Any:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="latflow train",
        usage="latflow train PRESET [--config FILE] [--any.field VALUE ...] [--run DIR] | latflow train --resume RUN",
        description="Train a preset (latflow presets), a config file, or go on with a run that was interrupted.",
        exit_on_error=False,
        allow_abbrev=False,
        print_config=None,
    )
    parser.add_argument("preset", nargs="?", help="a name from `latflow presets`")
    parser.add_argument("--config", action="config", help="a YAML or JSON file of fields, over the preset's")
    parser.add_argument(
        "--print_config", action="store_true", help="print the whole resolved config and stop"
    )
    parser.add_argument(
        "--run", "--run-dir", metavar="DIR", help="the new run's folder (default: runs/PRESET)"
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with this run from its last checkpoint")
    parser.add_argument("--quiet", action="store_true", help="print warnings only")
    parser.add_class_arguments(Config)
    docs = _docs(Config, "")
    for action in parser._actions:
        if action.dest in docs:
            action.help = docs[action.dest].replace("\n    ", " ").replace("%", "%%")
    return parser


def _docs(cls: Any, prefix: str) -> dict[str, str]:
    """Dotted names of all fields and the docstrings below them."""
    found = {f"{prefix}{name}": text for name, text in field_docs(cls).items()}
    for name, value in vars(cls()).items():
        if hasattr(value, "__dataclass_fields__"):
            found |= _docs(type(value), f"{prefix}{name}.")
    return found


def _parse(parser: Any, words: list[str]) -> Any:
    try:
        return parser.parse_args(words)
    except UnicodeDecodeError as error:
        raise LatflowError(f"--config: the file is not UTF-8 text ({error.reason})") from None
    except (argparse.ArgumentError, TypeError) as error:
        raise LatflowError(_one_line(str(error))) from None


_NAMELESS = 'in "<unicode string>", '
_KINDS = {
    "tuple[int, int]": "two whole numbers, as in '[600, 1200]',",
    "tuple[float, float, float]": "three numbers, as in '[0.4, 0.3, 0.4]',",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "NoneType": "null",
}
"""What the library calls a type, and we."""


def _one_line(message: str) -> str:
    """The library's message as one line in our words, with the nearest field for a wrong one."""
    message = re.sub(r"\s+", " ", message).strip()
    message = re.sub(r"<class '(\w+)'>", r"\1", message).replace("typing.", "")
    message = message.replace('Parser key "', "").replace('":', ":", 1)
    if unknown := re.match(r"unrecognized arguments: --([\w.]+)", message):
        return f"no option --{unknown[1]}{_near(unknown[1])} (all: latflow train --help)"
    if unknown := re.match(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message):
        name = f"{unknown[1]}.{unknown[2]}"
        return f"config: no field {name}{_near(name)}"
    if wrong := re.match(
        r"([\w.]+): Does not validate .* Subtypes: \[(.*)\] Errors: .* Given value: (.*)", message
    ):
        kinds = [words for kind, words in _KINDS.items() if kind in re.split(r", (?![^\[]*\])", wrong[2])]
        return f"{wrong[1]} is {wrong[3]}; it must be {' or '.join(kinds)}"
    if message.startswith("Problems parsing config:"):
        return message.replace("Problems parsing config:", "--config: not YAML or JSON:").replace(
            _NAMELESS, ""
        )
    if message.startswith("Unexpected config:"):
        return "--config: there are no fields in the file"
    return message


def _near(name: str) -> str:
    near = get_close_matches(name, flatten(Config()), 3)
    return f"; near: {', '.join(near)}" if near else ""
