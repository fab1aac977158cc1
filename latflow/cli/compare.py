"""`latflow compare`: runs on the same data side by side, as a table and a figure."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from latflow.cli.parser import DATA_DIR_HELP, RUN_HELP, add_samples


def add(commands: Any) -> None:
    command = commands.add_parser("compare", help="runs on the same data side by side, with paired intervals")
    command.add_argument("folders", nargs="+", metavar="RUN", help=RUN_HELP)
    command.add_argument("--split", choices=("train", "valid", "test"), default="test", help="(test)")
    add_samples(command)
    command.add_argument(
        "--format", choices=("text", "markdown", "latex", "csv"), default="text", help="of the table (text)"
    )
    command.add_argument("--out", metavar="FILE", help="draw curves and NLLs here (.png and .svg)")
    command.add_argument("--data-dir", metavar="DIR", help=DATA_DIR_HELP)
    command.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (auto)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.data.files import check_writable
    from latflow.fast.memory import keep_freed_memory
    from latflow.progress import counting
    from latflow.training import Run
    from latflow.training.distributed import join
    from latflow.use.compare import check_same_data, compare, shown

    if args.out is not None:
        check_writable(args.out)
    keep_freed_memory()
    runs = [Run.open(folder) for folder in args.folders]
    check_same_data(runs, args.split)
    with join(args.device) as world:
        with counting("evaluating, batches of all runs", quiet=not world.main) as tell:
            names: list[str] = []

            def progress(name: str) -> Any:
                names.append(name)
                before = len(names) - 1
                return lambda done, of: tell(before * of + done, len(runs) * of)

            found = compare(
                runs,
                split=args.split,
                samples=args.samples,
                seed=args.seed,
                data_dir=args.data_dir,
                world=world,
                progress=progress,
            )
        if not world.main:
            return 0
    print(shown(found, args.format), end="")
    if args.out is not None:
        from latflow.plots.runs import runs_figure
        from latflow.plots.save import save

        drawn = runs_figure({row.name: run for row, run in zip(found.rows, runs, strict=True)}, found)
        for path in save(drawn, args.out):
            print(path, file=sys.stderr)
    return 0
