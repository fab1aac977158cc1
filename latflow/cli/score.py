"""`latflow score`: how surprising a user's own sequences are, in the order of the file or ranked: JSON lines or CSV."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from latflow.cli.parser import DATA_DIR_HELP, add_run, importing, open_model
from latflow.errors import LatflowError

SPLITS = ("train", "valid", "test")
OF_TEMPLATE = ("mark", "particles")
OF_FILE = {
    "tolerance": "--tolerance",
    "samples": "--samples",
    "csv": "--csv",
    "columns": "--steps",
    "sort": "--sort",
    "threshold": "--threshold",
    "reference": "--reference",
    "data_dir": "--data-dir",
}
"""Options that mean nothing with the other of the two."""


def add(commands: Any) -> None:
    command = commands.add_parser(
        "score", help="negative log-likelihood of your own sequences, as JSON lines or CSV"
    )
    add_run(command)
    command.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="lines of text, JSON lines of tokens, a .mid or a folder of them; -: standard input",
    )
    command.add_argument(
        "--tolerance",
        type=float,
        metavar="e",
        help="draw samples until the standard error of nll_per_step is below this (0.1)",
    )
    command.add_argument(
        "--samples",
        type=int,
        metavar="K",
        help="exactly so many importance samples; with --tolerance, at most",
    )
    command.add_argument("--seed", type=int, default=0, help="of the samples (0)")
    command.add_argument("--csv", action="store_true", help="a table with a header instead of JSON lines")
    command.add_argument(
        "--steps",
        dest="columns",
        action="store_true",
        help="in the table, each token and its surprise in columns of their own",
    )
    command.add_argument("--sort", action="store_true", help="the most surprising a step first")
    command.add_argument("--out", metavar="FILE", help="write here; -: standard output")
    command.add_argument(
        "--threshold",
        type=float,
        metavar="q",
        help="mark what is more surprising a step than this share of the reference, such as 0.99",
    )
    command.add_argument(
        "--reference", metavar="SPLIT|FILE", help="of --threshold: train, valid, test or a file (valid)"
    )
    command.add_argument("--data-dir", metavar="DIR", help=DATA_DIR_HELP)
    command.add_argument("--template", metavar="TEXT", help="instead of a file: a pattern with free places")
    command.add_argument("--mark", metavar="M", help="what marks a free place (?)")
    command.add_argument("--particles", type=int, metavar="K", help="of --template (1000)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if (args.file is None) == (args.template is None):
        raise LatflowError("score takes a FILE or --template TEXT, one of the two")
    for name in OF_TEMPLATE if args.template is None else OF_FILE:
        if getattr(args, name) not in (None, False):
            raise LatflowError(
                f"{OF_FILE.get(name, f'--{name}')} goes with {'--template' if args.template is None else 'a FILE'}"
            )
    if args.threshold is None and args.reference is not None:
        raise LatflowError("--reference is what --threshold is a share of; give that too, such as 0.99")
    if args.threshold is not None and not 0 < args.threshold < 1:
        raise LatflowError(f"--threshold is {args.threshold:g}; it is a share, between 0 and 1, such as 0.99")
    if args.columns and not args.csv:
        raise LatflowError("--steps is for --csv; JSON lines have the steps as a list")
    return _template(args) if args.file is None else _file(args)


def _template(args: argparse.Namespace) -> int:
    with importing():
        from latflow.data.files import check_writable, output
        from latflow.plain import plain
        from latflow.use import Evidence, score_given
        from latflow.use.files import typed

    if args.out is not None:
        check_writable(args.out)
    made, model = open_model(args)
    mark, particles = args.mark, args.particles
    evidence = Evidence.template(made.spec, typed(args.template, made.spec), "?" if mark is None else mark)
    row = score_given(model, evidence, particles=1000 if particles is None else particles, seed=args.seed)
    with output(args.out) as stream:
        stream.write(json.dumps(plain({"template": args.template, **row}), ensure_ascii=False) + "\n")
    return 0


def _file(args: argparse.Namespace) -> int:
    from latflow.data.files import check_writable, output
    from latflow.fast.memory import keep_freed_memory
    from latflow.plain import plain, shown
    from latflow.progress import counting
    from latflow.training import Run
    from latflow.training.distributed import join
    from latflow.use.files import Read, read_sequences
    from latflow.use.score import scored

    if args.out is not None:
        check_writable(args.out)
    keep_freed_memory()
    made = Run.open(args.folder)
    found = read_sequences(args.file, made.spec, made.config.data)
    ordinary = _reference(args, made) if args.threshold is not None else []
    with join(args.device) as world:
        model = made.model(args.weights).to(world.device)
        with counting("scoring, distinct sequences", quiet=not world.main) as tell:
            scores, reference = (
                scored(
                    model,
                    some,
                    samples=args.samples,
                    tolerance=args.tolerance,
                    seed=args.seed,
                    world=world,
                    progress=tell,
                )
                for some in (found, [Read(i, "", x) for i, x in enumerate(ordinary, start=1)])
            )
        if not world.main:
            return 0
    if args.threshold is not None:
        scores, limit = scores.against(reference, args.threshold)
        many = sum(row["anomaly"] for row in scores)
        print(
            f"{many} of {len(scores)} are above {limit:.4g} {made.spec.unit} per {made.spec.step_name}, which "
            f"{args.threshold:g} of {args.reference or 'valid'} are not",
            file=sys.stderr,
        )
    if args.sort:
        scores = scores.ranked()
    lines: Iterable[str]
    if args.csv:
        lines = scores.csv_lines(steps=args.columns)
    else:
        lines = (json.dumps(plain(row), ensure_ascii=False) + "\n" for row in scores)
    with output(args.out) as stream:
        if stream is sys.stdout and stream.isatty():
            lines = (shown(line.removesuffix("\n")) + "\n" for line in lines)
        stream.writelines(lines)
    return 0


def _reference(args: argparse.Namespace, made: Any) -> list[Any]:
    """The sequences that are ordinary."""
    from latflow.use.files import read_sequences

    which = "valid" if args.reference is None else args.reference
    if which in SPLITS:
        return list(made.corpus(args.data_dir).splits[which])
    return [read.x for read in read_sequences(which, made.spec, made.config.data)]
