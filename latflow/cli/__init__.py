"""The commands, a file each: `add` says what may be typed, `run` calls and prints.

What a command needs is imported when it runs, so that --help answers at once. A mistake of the user's is a
LatflowError, printed as one line with exit code 2.
"""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from latflow import __version__
from latflow.cli import (
    bench,
    compare,
    completion,
    data,
    demo,
    evaluate,
    export,
    models,
    page,
    plot,
    presets,
    push,
    reproduce,
    sample,
    score,
    streams,
    train,
)
from latflow.cli.parser import Parser, check
from latflow.errors import LatflowError, LatflowWarning
from latflow.plain import shown

COMMANDS = (
    train,
    evaluate,
    compare,
    score,
    sample,
    presets,
    models,
    export,
    push,
    demo,
    data,
    bench,
    reproduce,
    plot,
    page,
    completion,
)
"""In the order of --help."""

OUT_OF_MEMORY = (
    "memory has run out; ask for less at a time: fewer samples or sequences in a batch, shorter sequences "
    "(data.max_length, data.crop), or a smaller model"
)

SAID = {"SIGINT": "interrupted", "SIGHUP": "the terminal is gone"}
"""Of signals; others: terminated."""


def parser_of(first: str | None = None) -> Parser:
    """The whole command line; where the first word names a command, that one alone, for to list the fields of `train`
    takes longer than many an answer."""
    parser = Parser(
        prog="latflow",
        description="Latent normalizing flows for discrete sequences: text, music, any symbols.",
    )
    parser.add_argument("--version", action="version", version=f"latflow {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    named = [command for command in COMMANDS if command.__name__.rpartition(".")[2] == first]
    for command in named or COMMANDS:
        command.add(commands)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What was typed; `run` of it does it. A wrong word is a LatflowError that names it."""
    args, unknown = parser_of(words[0] if words else None).parse_known_args(words)
    if unknown:
        args.parser.refuse(unknown[0])
    check(args)
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--"]:  # torchrun -m latflow -- train: else torchrun takes our --run for its own
        del words[0]
    streams.prepare()
    with warnings.catch_warnings(), streams.signals() as came:
        warnings.simplefilter("always", LatflowWarning)
        warnings.showwarning = _show_warning
        try:
            code = _run(words)
            sys.stdout.flush()
            return code
        except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
            streams.abandon_output()
            return 141
        except OSError as error:
            if came:
                return _stopped(came)
            if error.filename is None:
                streams.abandon_output()
            what = "standard output cannot be written" if error.filename is None else error.filename
            _tell(f"{what}: {error.strerror or error}")
            return 2
        except (streams.Stopped, KeyboardInterrupt):
            return _stopped(came)
        except Exception:
            if not came:
                raise
            return _stopped(
                came
            )  # a signal in the middle of an import, of which a library made its own error


def _run(words: Sequence[str]) -> int:
    """The same, with a user's mistakes and a lack of memory as one line."""
    try:
        args = parse(words)
        return args.run(args)
    except LatflowError as error:
        _tell(error)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        _tell(": ".join([OUT_OF_MEMORY, *str(error).splitlines()[:1]]))
        return 2


def _tell(what: object) -> None:
    print(f"latflow: {shown(str(what))}", file=sys.stderr)


def _stopped(came: list[int]) -> int:
    number = came[0] if came else signal.SIGINT
    _tell(SAID.get(signal.Signals(number).name, "terminated"))
    return 128 + number


def _out_of_memory(error: Exception) -> bool:
    """Whether memory ran out: torch says so with an error of its own on a GPU, by its allocator's name on a CPU."""
    own = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return own or isinstance(error, MemoryError)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, LatflowWarning):
        _tell(f"warning: {message}")
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=sys.stderr)
