"""What all commands share: the parser, its one-line errors, and options that several have."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn

from latflow.cli.fields import take
from latflow.errors import LatflowError

RUN_HELP = "a run's folder, or a model from `latflow models`"
DATA_DIR_HELP = "the folder in which the data lies on this machine"
LOWEST = {"n": 1, "samples": 1, "steps": 1, "particles": 1, "batch_size": 1, "seed": 0}
"""Counts, and the lowest of each that makes sense."""
HIGHEST = 10**12
"""Of a count: more would not end in a lifetime, and beyond 64 bits libraries fail in words of their own."""


class Parser(argparse.ArgumentParser):
    """A mistake is a LatflowError, one line, with the nearest option where one is misspelt."""

    heads: frozenset[str] = frozenset()
    """Fields of the config that this command takes, with all below them, as `namespace.fields`: {dotted name: word}.
    They are taken before the other options are read, listed or not, for a choice brings fields of its own."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        rest, fields = take(args, self.heads) if self.heads else (args, {})
        found: Any
        found, unknown = super().parse_known_args(rest, namespace)
        if self.heads:
            found.fields = fields
        found.parser = getattr(
            found, "parser", self
        )  # that of the command, not the one that holds all commands
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help or the version, at once: argparse itself says nothing of an output that fails."""
        print(message, end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        raise LatflowError(f"{message} (all: {self.prog} --help)")

    def refuse(self, word: str) -> NoReturn:
        """A word that is no option and no argument of this command."""
        if not word.startswith("-"):
            self.error(f"{word!r} is one word too many")
        near = get_close_matches(word.partition("=")[0], self._option_string_actions, 3)
        self.error(f"no option {word}" + (f"; near: {', '.join(near)}" if near else ""))


def check(args: argparse.Namespace) -> None:
    """Numbers that a parser takes and no command can use."""
    for name, lowest in LOWEST.items():
        given = getattr(args, name, None)
        if given is not None and given < lowest:
            option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
            raise LatflowError(f"{option} is {given}; it must be {lowest} or more")
    for name in (*LOWEST, "length", "lines", "distinct"):
        given, highest = getattr(args, name, None), 2**63 - 1 if name == "seed" else HIGHEST
        if given is not None and given > highest:
            option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
            raise LatflowError(f"{option} is {given}; it must be {highest} or less")


def add_run(command: argparse.ArgumentParser) -> None:
    """RUN, and which of its weights on what device."""
    command.add_argument("folder", metavar="RUN", help=RUN_HELP)
    command.add_argument(
        "--weights", choices=("best", "last"), default="best", help="which checkpoint (best)"
    )
    command.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (auto)")


def add_samples(command: argparse.ArgumentParser) -> None:
    """K importance samples, and their seed."""
    command.add_argument("--samples", type=int, default=50, metavar="K", help="importance samples (50)")
    command.add_argument("--seed", type=int, default=0, help="of the samples (0)")


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


@contextmanager
def importing() -> Iterator[None]:
    """No search for cycles while modules are loaded: they make objects by the hundred thousand, nearly all to stay, and
    searching them again and again is a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def open_model(args: argparse.Namespace) -> Any:
    """The run and its model, as `add_run` has them."""
    from latflow.training import Run
    from latflow.training.distributed import choose_device

    run = Run.open(args.folder)
    return run, run.model(args.weights).to(choose_device(args.device))
