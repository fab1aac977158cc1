"""`latflow score`: how surprising a user's own sequences are, a JSON object a line, in the order of the file."""

from __future__ import annotations

import argparse
import json
from typing import Any

from latflow.cli.parser import add_run, add_samples, open_model
from latflow.errors import LatflowError


def add(commands: Any) -> None:
    command = commands.add_parser(
        "score", help="negative log-likelihood of your own sequences, as JSON lines"
    )
    add_run(command)
    command.add_argument(
        "file", metavar="FILE", help="lines of text, JSON lines of tokens, a .mid or a folder of them"
    )
    add_samples(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.plain import plain
    from latflow.progress import counting
    from latflow.use import score
    from latflow.use.files import read_sequences

    made, model = open_model(args)
    found = read_sequences(args.file, made.spec, made.config.data)
    known = [(i, x) for i, (_, x) in enumerate(found) if not isinstance(x, LatflowError)]
    with counting("scoring, sequences") as tell:
        scored = score(model, [x for _, x in known], samples=args.samples, seed=args.seed, progress=tell)
    rows = {i: {**row, "index": i} for (i, _), row in zip(known, scored, strict=True)}
    for i, (name, x) in enumerate(found):
        row = rows.get(i) or {"index": i, "nll": None, "error": str(x)}
        print(json.dumps(plain({"sequence": name, **row}), ensure_ascii=False))
    return 0
