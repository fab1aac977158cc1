"""`latflow push`: a run's model to the Hugging Face Hub."""

from __future__ import annotations

import argparse
from typing import Any

from latflow.cli.parser import RUN_HELP


def add(commands: Any) -> None:
    command = commands.add_parser(
        "push",
        help="a run's best weights to the Hugging Face Hub (extra: hub)",
        description="Push a run's best weights with a card; latflow.from_pretrained(NAME) gets them back.",
    )
    command.add_argument("folder", metavar="RUN", help=RUN_HELP)
    command.add_argument("name", metavar="USER/MODEL", help="the repository, made if there is none")
    command.add_argument("--half", action="store_true", help="weights in half precision: half the size")
    command.add_argument("--private", action="store_true", help="for you alone, if it is made")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.training import Run
    from latflow.use.hub import push

    print(push(Run.open(args.folder), args.name, half=args.half, private=args.private))
    return 0
