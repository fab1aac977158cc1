"""`latflow sample`: new sequences, printed or written."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from latflow.cli.parser import add_run, open_model


def add(commands: Any) -> None:
    command = commands.add_parser("sample", help="draw new sequences")
    add_run(command)
    command.add_argument("-n", type=int, default=8, metavar="N", help="how many (8)")
    command.add_argument("--length", type=int, metavar="T", help="steps of each; unset: drawn from p(T)")
    command.add_argument("--temperature", type=float, default=1.0, metavar="t", help="scale of the noise (1)")
    command.add_argument("--argmax", action="store_true", help="the most likely x given z, not a draw")
    command.add_argument("--label", metavar="NAME", help="all of this label, for a model that knows labels")
    command.add_argument("--seed", type=int, default=0, help="the same seed draws the same (0)")
    command.add_argument("--out", metavar="FILE", help="write here; music: .mid, .wav and .png of that name")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.progress import counting
    from latflow.use import sample
    from latflow.use.files import as_text, write_samples

    made, model = open_model(args)
    with counting("sampling, sequences") as tell:
        drawn = sample(
            model,
            args.n,
            length=args.length,
            temperature=args.temperature,
            argmax=args.argmax,
            seed=args.seed,
            label=args.label,
            progress=tell,
        )
    out = args.out
    if out is None and made.spec.kind == "music":
        out = f"{made.folder.name}-sample"
    if out is None:
        for x in drawn:
            print(as_text(x, made.spec, terminal=sys.stdout.isatty()))
        return 0
    for path in write_samples(drawn, made.spec, Path(out), made.config.data):
        print(path)
    return 0
