"""`latflow demo`: small models on built-in data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    command = commands.add_parser("demo", help="train small models on built-in data: minutes on a laptop")
    command.add_argument("--out", default="demo", metavar="DIR", help="where runs and figure go (demo)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.demo import demo

    demo(Path(args.out))
    return 0
