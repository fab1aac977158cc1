"""`latflow data`: list, fetch and describe corpora."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from latflow.cli.fields import add_fields, changed, read_words
from latflow.cli.parser import add_json
from latflow.cli.printing import cell, print_table
from latflow.config import Config
from latflow.errors import LatflowError
from latflow.plain import shown


def add(commands: Any) -> None:
    command = commands.add_parser("data", help="list, fetch and describe corpora")
    actions = command.add_subparsers(metavar="ACTION", required=True)

    action = actions.add_parser("list", help="the corpora that are known, and where they lie")
    add_folder(action)
    add_json(action)
    action.set_defaults(run=run_list)

    action = actions.add_parser("fetch", help="download a corpus, with a checked sha256")
    action.add_argument("name", help="a corpus that `latflow data list` has to download")
    action.add_argument("--data-dir", metavar="DIR", help="put it here instead of the cache folder")
    action.set_defaults(run=run_fetch)

    action = actions.add_parser("stats", help="sequences, steps, lengths, vocabulary, the cost of p(T)")
    action.add_argument("data.name", metavar="NAME", help="a corpus, or text:PATH, midi:DIR, tokens:PATH")
    names = add_fields(action, "data.", leave_out=("data.name",), spelt=_short)
    action.add_argument(
        "--left-out", dest="refused", action="store_true", help="list the files that were left out, and why"
    )
    add_json(action)
    action.set_defaults(run=run_stats, options=names)


def _short(name: str) -> str:
    """data.max_length as an option of this command: --max-length."""
    return "--" + name.removeprefix("data.").replace("_", "-")


def add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", metavar="DIR", help="where the corpora lie, before $LATFLOW_DATA and the cache"
    )


def run_list(args: argparse.Namespace) -> int:
    from latflow.data import CATALOGUE, fetch

    rows = []
    for name, about in CATALOGUE.items():
        where = "built in"
        if name in fetch.CORPORA:
            found = fetch.find(name, args.data_dir, verify=False)
            where = str(found[0].parent) if found else "to download"
        elif ":" in name:
            where = "yours"
        rows.append({"name": name, "about": about, "where": where})
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table([[row["name"], row["about"], row["where"]] for row in rows], ["name", "what", "where"])
    return 0


def run_fetch(args: argparse.Namespace) -> int:
    from latflow.data import CATALOGUE, fetch

    if args.name not in fetch.CORPORA:
        if args.name in CATALOGUE and ":" not in args.name:
            print(f"{args.name} is built in; there is nothing to fetch")
            return 0
        raise LatflowError(f"no corpus called {args.name!r} to fetch; accepted: {', '.join(fetch.CORPORA)}")
    folder = args.data_dir
    for path in fetch.download(args.name, Path(folder)) if folder else fetch.find_or_download(args.name):
        print(path)
    return 0


def run_stats(args: argparse.Namespace) -> int:
    from latflow.data import load
    from latflow.data.stats import describe

    words = {name: getattr(args, name) for name in ("data.name", *args.options) if hasattr(args, name)}
    found = describe(load(changed(Config(), read_words(words)).data))
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    what = "88 notes" if found["kind"] == "music" else f"{found['size']} symbols"
    print(f"{found['name']}: {found['kind']}, {what}, lengths up to {found['max_T']}\n{found['origin']}\n")
    splits = found["splits"]
    print_table([[split, *map(cell, row.values())] for split, row in splits.items()], ["", *splits["train"]])
    costs = "length_cost and truth are" if "truth" in splits["train"] else "length_cost is"
    print(f"\n{costs} in {found['unit']}, {found['convention']}")
    if found["kind"] != "music":
        print(f"symbols: {_first_of(found['symbols'], found['kind'])}")
    if found["left_out"] and not args.refused:
        print(f"{len(found['left_out'])} files left out (--left-out lists them)")
    for line in found["left_out"] if args.refused else ():
        print(f"left out: {shown(line)}")
    return 0


def _first_of(symbols: list[Any], kind: str) -> str:
    text = repr("".join(symbols)) if kind == "text" else ", ".join(json.dumps(symbol) for symbol in symbols)
    return text if len(text) <= 400 else text[:400] + " ..."
