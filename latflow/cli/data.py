"""The commands of the data side."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from latflow.cli.printing import cell, print_table
from latflow.config import DataConfig
from latflow.data import CATALOGUE, fetch, load
from latflow.data.stats import available, describe, measure
from latflow.errors import LatflowError


def _config_of(args: argparse.Namespace) -> DataConfig:
    return DataConfig(**{field.name: getattr(args, field.name) for field in dataclasses.fields(DataConfig)})


def list_corpora(args: argparse.Namespace) -> int:
    """`latflow data list`."""
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


def fetch_corpus(args: argparse.Namespace) -> int:
    """`latflow data fetch`."""
    if args.name not in fetch.CORPORA:
        if args.name in CATALOGUE and ":" not in args.name:
            print(f"{args.name} is built in; there is nothing to fetch")
            return 0
        raise LatflowError(f"no corpus called {args.name!r} to fetch; accepted: {', '.join(fetch.CORPORA)}")
    folder = args.data_dir
    for path in fetch.download(args.name, Path(folder)) if folder else fetch.find_or_download(args.name):
        print(path)
    return 0


def stats(args: argparse.Namespace) -> int:
    """`latflow data stats`."""
    found = describe(load(_config_of(args)))
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
        print(f"symbols: {_short(found['symbols'], found['kind'])}")
    return 0


def _short(symbols: list[Any], kind: str) -> str:
    text = repr("".join(symbols)) if kind == "text" else ", ".join(json.dumps(symbol) for symbol in symbols)
    return text if len(text) <= 400 else text[:400] + " ..."


def bench(args: argparse.Namespace) -> int:
    """`latflow bench data`."""
    names = args.names or available(args.data_dir)
    rows = [measure(DataConfig(name=name, data_dir=args.data_dir), args.batch_size) for name in names]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table([list(map(cell, row.values())) for row in rows], list(rows[0]))
    return 0
