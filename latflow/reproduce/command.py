"""`latflow reproduce`: choose rows, have them made, show the tables."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from latflow.data.files import writing
from latflow.errors import LatflowError
from latflow.reproduce.page import page
from latflow.reproduce.render import as_json, as_text, fill, write
from latflow.reproduce.result import read_results, run_status
from latflow.reproduce.tables import choose, find_tables


def reproduce(args: argparse.Namespace) -> int:
    """130 after an interrupt, as shells expect; the table of what is there is shown all the same."""
    tables = find_tables(args.table)
    presets = choose(tables, args.small, args.only)
    runs, results = Path(args.runs), Path(args.results)
    if args.folder is not None and len(presets) != 1:
        raise LatflowError(
            f"--run names the folder of one row, but {len(presets)} are chosen; choose one with --only"
        )
    talks = int(os.environ.get("RANK", "0")) == 0  # the main one, if torchrun started several processes

    folder = None if args.folder is None else Path(args.folder)

    def status(name: str) -> str:
        return run_status(folder if folder and name == presets[0].name else runs / name)

    def shown() -> list:
        found = read_results(results)
        return [fill(table, args.small, found, status) for table in tables]

    def write_all() -> None:
        if talks:
            for table in shown():
                write(table, results / "tables")

    finished = True
    if not args.show:
        from latflow.reproduce.work import reproduce as make

        quiet = args.quiet or args.json
        finished = make(presets, runs, results, run=folder, quiet=quiet, done=write_all)
        write_all()
    if talks:
        print(as_json(*shown()) if args.json else "\n".join(map(as_text, shown())), end="")
        if args.docs is not None:
            with writing(args.docs) as new:
                new.write_text(page(read_results(results)), encoding="utf-8")
    return 0 if finished else 130
