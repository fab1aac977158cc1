"""The commands: parse, call, print.

`parser` says what may be typed; `models`, `data` and `lists` do it and print. A mistake of the user's is a
LatflowError, printed as one line with exit code 2.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from latflow.cli.parser import build_parser, check
from latflow.errors import LatflowError, LatflowWarning

__all__ = ["build_parser", "main"]

OUT_OF_MEMORY = (
    "memory has run out; ask for less at a time: fewer samples or sequences in a batch, shorter sequences "
    "(data.max_length, data.crop), or a smaller model"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--"]:  # torchrun -m latflow -- train: else torchrun takes our --run for its own
        del words[0]
    if words[:1] == ["train"]:  # its options are the fields of the config, see latflow.cli.options
        args = argparse.Namespace(run="latflow.cli.options:train", words=words[1:])
    else:
        args = build_parser().parse_args(words)
    with warnings.catch_warnings():
        warnings.simplefilter("always", LatflowWarning)
        warnings.showwarning = _show_warning
        try:
            check(args)
            module, name = args.run.split(":")
            return getattr(import_module(module), name)(args)
        except LatflowError as error:
            print(f"latflow: {error}", file=sys.stderr)
            return 2
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            print(f"latflow: {OUT_OF_MEMORY}", *str(error).splitlines()[:1], sep=": ", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("latflow: interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
            sys.stderr.close()
            return 141


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
        print(f"latflow: warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=sys.stderr)
