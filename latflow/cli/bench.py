"""`latflow bench`: speed and memory on this machine, of models and (`bench data`) of loading data."""

from __future__ import annotations

import argparse
import json
from typing import Any

from latflow.cli.data import add_folder
from latflow.cli.parser import RUN_HELP, add_json
from latflow.cli.printing import cell, print_table


def add(commands: Any) -> None:
    command = commands.add_parser("bench", help="measure speed and memory on this machine")
    command.add_argument("--quick", action="store_true", help="the stated targets only")
    command.add_argument("--json", metavar="FILE", help="write all numbers here")
    command.add_argument(
        "--figure", metavar="FILE", help="draw generation time against length here (.png and .svg)"
    )
    command.set_defaults(run=run)
    actions = command.add_subparsers(metavar="WHAT")

    action = actions.add_parser("data", help="time and memory to load corpora and to batch them")
    action.add_argument("names", nargs="*", metavar="NAME", help="corpora; unset: all that need no download")
    add_folder(action)
    action.add_argument("--batch-size", type=int, default=15, metavar="N", help="sequences in a batch (15)")
    add_json(action)
    action.set_defaults(run=run_data)

    action = actions.add_parser(
        "score", help="distinct lines a second of `latflow score`, lines drawn by a model"
    )
    action.add_argument("folder", metavar="RUN", help=RUN_HELP)
    action.add_argument("--lines", type=int, default=100_000, metavar="N", help="(100000)")
    action.add_argument("--distinct", type=int, default=16_000, metavar="N", help="of them different (16000)")
    add_json(action)
    action.set_defaults(run=run_score)


def run(args: argparse.Namespace) -> int:
    from latflow.bench import run as measure
    from latflow.data.files import check_writable

    if args.json is not None:
        check_writable(args.json)
    if args.figure is not None:
        from latflow.plots.save import check_out

        check_out(args.figure)
    measure(args.quick, args.json, args.figure)
    return 0


def run_data(args: argparse.Namespace) -> int:
    from latflow.config import DataConfig
    from latflow.data.stats import available, measure

    names = args.names or available(args.data_dir)
    rows = [measure(DataConfig(name=name, data_dir=args.data_dir), args.batch_size) for name in names]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table([list(map(cell, row.values())) for row in rows], list(rows[0]))
    return 0


def run_score(args: argparse.Namespace) -> int:
    import latflow
    from latflow.bench.scoring import scoring
    from latflow.errors import LatflowError
    from latflow.fast.memory import keep_freed_memory

    if not 1 <= args.distinct <= args.lines:
        raise LatflowError(
            f"{args.distinct} distinct of {args.lines} lines; give 1 to as many as there are lines"
        )
    keep_freed_memory()
    row = scoring(latflow.load(args.folder), args.lines, args.distinct)
    if args.json:
        print(json.dumps(row, indent=2))
    else:
        print_table([list(map(cell, row.values()))], list(row))
    return 0
