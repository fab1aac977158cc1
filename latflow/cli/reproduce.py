"""`latflow reproduce`: choose rows of the paper's tables, have them made, show the tables."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from latflow.cli.parser import add_json
from latflow.errors import LatflowError


def add(commands: Any) -> None:
    command = commands.add_parser(
        "reproduce",
        help="train and evaluate the rows of the paper's tables, our numbers beside the paper's",
        description="Train or go on with each row of a table, evaluate it once on the test set, print the table and "
        "write it as Markdown, LaTeX and JSON. Rows whose result file is there are not made again.",
    )
    command.add_argument(
        "table",
        metavar="TABLE",
        help="table1, table2, table3, passes, synthetic, beyond, beyond-small, beyond-synthetic or all",
    )
    command.add_argument(
        "--small", action="store_true", help="the -small presets: minutes to tens of minutes a row"
    )
    command.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="ROW",
        help="rows (af-af), corpora (jsb) or presets (jsb-af-af)",
    )
    command.add_argument(
        "--anew",
        action="store_true",
        help="measure again, and train if the run is not there, what has a file",
    )
    command.add_argument("--show", action="store_true", help="train nothing, show what is there")
    command.add_argument("--runs", default="runs", metavar="DIR", help="where the runs' folders are (runs)")
    command.add_argument(
        "--run", metavar="DIR", dest="folder", help="the folder of the one row that --only names"
    )
    command.add_argument(
        "--results", default="results", metavar="DIR", help="where the result files are (results)"
    )
    command.add_argument("--docs", metavar="FILE", help="also write the page of all results there")
    add_json(command)
    command.add_argument("--quiet", action="store_true", help="print the table and warnings only")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """After a signal 128 and its number, as shells expect; the table of what is there is shown all the same."""
    from latflow.data.files import check_writable, writing
    from latflow.reproduce.page import page
    from latflow.reproduce.render import as_json, as_text, fill, only, write
    from latflow.reproduce.result import read_results, run_status
    from latflow.reproduce.tables import choose, find_tables

    tables = find_tables(args.table)
    presets = choose(tables, args.small, args.only)
    runs, results = Path(args.runs), Path(args.results)
    if args.folder is not None and len(presets) != 1:
        raise LatflowError(
            f"--run names the folder of one row, but {len(presets)} are chosen; choose one with --only"
        )
    if args.docs is not None:
        check_writable(args.docs)
    if not args.show:
        check_writable(results / "name")
    talks = int(os.environ.get("RANK", "0")) == 0  # the main one, if torchrun started several processes
    folder = None if args.folder is None else Path(args.folder)

    def status(name: str) -> str:
        return run_status(folder if folder and name == presets[0].name else runs / name)

    def shown() -> list:
        found = read_results(results)
        return [fill(table, args.small, found, status) for table in tables]

    def chosen() -> list:
        """What is printed: of all rows, or of those that --only names."""
        names = {preset.name for preset in presets}
        return [part for table in shown() if (part := only(table, names)).blocks] if args.only else shown()

    def write_all() -> None:
        if talks:
            for table in shown():
                write(table, results / "tables")

    code = 0
    if not args.show:
        from latflow.reproduce.work import reproduce
        from latflow.training.report import Reporter

        quiet = args.quiet or args.json
        reporter = Reporter(quiet)
        if not reproduce(
            presets, runs, results, run=folder, anew=args.anew, quiet=quiet, reporter=reporter, done=write_all
        ):
            code = reporter.stop_code
        write_all()
    if talks:
        print(as_json(*chosen()) if args.json else "\n".join(map(as_text, chosen())), end="")
        if args.docs is not None:
            with writing(args.docs) as new:
                new.write_text(page(read_results(results)), encoding="utf-8")
    return code
