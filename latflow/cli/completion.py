"""`latflow completion`: what a shell needs to complete commands and options (extra: shell)."""

from __future__ import annotations

import argparse
from typing import Any

from latflow.errors import LatflowError

SHELLS = ("bash", "zsh", "tcsh")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "completion",
        help="print a script that makes a shell complete commands and options",
        description='bash: eval "$(latflow completion bash)"; zsh: latflow completion zsh > ~/.zfunc/_latflow',
    )
    command.add_argument("shell", choices=SHELLS, help="of which shell")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise LatflowError("completion needs shtab: pip install 'latflow[shell]'") from None
    from latflow.cli import parser_of

    print(shtab.complete(parser_of(), shell=args.shell))
    return 0
