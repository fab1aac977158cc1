"""`latflow export`: a run's model alone, to share."""

from __future__ import annotations

import argparse
from typing import Any

from latflow.cli.parser import RUN_HELP


def add(commands: Any) -> None:
    command = commands.add_parser(
        "export", help="a run's best weights as a folder to share, without the state of its training"
    )
    command.add_argument("folder", metavar="RUN", help=RUN_HELP)
    command.add_argument("out", metavar="FOLDER", help="the new folder, which works as a run")
    command.add_argument("--half", action="store_true", help="weights in half precision: half the size")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.training import Run
    from latflow.use import export

    made = export(Run.open(args.folder), args.out, half=args.half)
    size = sum(file.stat().st_size for file in made.folder.iterdir())
    print(f"{made.folder}: {size / 1e6:.2f} MB")
    return 0
