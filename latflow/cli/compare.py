"""`latflow compare`: runs held against each other on the same sequences, as a table and a figure."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from latflow.cli.parser import DATA_DIR_HELP, RUN_HELP, add_json, add_samples


def add(commands: Any) -> None:
    command = commands.add_parser(
        "compare",
        help="the NLL of several runs on the same data, with paired intervals",
        description="Evaluate runs on the same split; differences are taken sequence by sequence, against the run that "
        "is named first.",
    )
    command.add_argument("folders", nargs="+", metavar="RUN", help=RUN_HELP)
    command.add_argument("--split", choices=("train", "valid", "test"), default="test", help="(test)")
    add_samples(command)
    command.add_argument(
        "--format",
        choices=("text", "markdown", "latex", "csv"),
        default="text",
        help="of the table (text)",
    )
    command.add_argument(
        "--out", metavar="FIGURE", help="also draw curves and intervals: FIGURE.png and .svg"
    )
    command.add_argument("--data-dir", metavar="DIR", help=DATA_DIR_HELP)
    command.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (auto)")
    add_json(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from contextlib import ExitStack

    from latflow.cli.printing import print_table
    from latflow.fast.memory import keep_freed_memory
    from latflow.progress import counting
    from latflow.training.distributed import join
    from latflow.use.compare import HEADER, as_csv, as_latex, as_markdown, cells, compare, record

    if args.out is not None:
        from latflow.plots.save import check_out

        check_out(args.out)
    keep_freed_memory()
    with join(args.device) as world, ExitStack() as stack:

        def tell(name: str) -> Any:
            stack.close()  # the one before has been told to its end
            return stack.enter_context(counting(f"{name}, batches", quiet=not world.main))

        found = compare(
            args.folders,
            split=args.split,
            samples=args.samples,
            seed=args.seed,
            data_dir=args.data_dir,
            world=world,
            progress=tell,
        )
        if not world.main:
            return 0
    if args.json:
        print(json.dumps([record(one) for one in found], indent=2))
    elif args.format == "text":
        m = found[0].metrics
        print(f"{args.split}: NLL in {m.name}, {m.sequences} sequences")
        print_table(cells(found), list(HEADER))
    else:
        print(
            {"markdown": as_markdown, "latex": as_latex, "csv": as_csv}[args.format](found),
            end="",
        )
    if args.out is not None:
        from latflow.plots.comparison import comparison_figure
        from latflow.plots.save import save

        runs = {one.name: one.run for one in found}
        figure = comparison_figure(runs, {one.name: one.metrics for one in found}, args.split)
        tables_only = args.json or args.format != "text"  # `> table.tex` is then a table and nothing else
        for path in save(figure, args.out):
            print(path, file=sys.stderr if tables_only else sys.stdout)
    return 0
