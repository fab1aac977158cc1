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
        "file",
        nargs="?",
        metavar="FILE",
        help="lines of text, JSON lines of tokens, a .mid or a folder of them",
    )
    add_samples(command)
    command.add_argument("--template", metavar="TEXT", help="instead of a file: a pattern with free places")
    command.add_argument("--mark", default="?", metavar="M", help="what marks a free place (?)")
    command.add_argument("--particles", type=int, default=1000, metavar="K", help="of --template (1000)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.plain import plain
    from latflow.progress import counting
    from latflow.use import Evidence, score, score_given
    from latflow.use.files import read_sequences, typed

    if (args.file is None) == (args.template is None):
        raise LatflowError("score takes a FILE or --template TEXT, one of the two")
    made, model = open_model(args)
    if args.template is not None:
        evidence = Evidence.template(made.spec, typed(args.template, made.spec), args.mark)
        row = score_given(model, evidence, particles=args.particles, seed=args.seed)
        print(json.dumps(plain({"template": args.template, **row}), ensure_ascii=False))
        return 0
    found = read_sequences(args.file, made.spec, made.config.data)
    known = [(i, x) for i, (_, x) in enumerate(found) if not isinstance(x, LatflowError)]
    with counting("scoring, sequences") as tell:
        scored = score(model, [x for _, x in known], samples=args.samples, seed=args.seed, progress=tell)
    rows = {i: {**row, "index": i} for (i, _), row in zip(known, scored, strict=True)}
    for i, (name, x) in enumerate(found):
        row = rows.get(i) or {"index": i, "nll": None, "error": str(x)}
        print(json.dumps(plain({"sequence": name, **row}), ensure_ascii=False))
    return 0
