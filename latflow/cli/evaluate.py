"""`latflow evaluate`: NLL, ELBO and its terms, in one process or many."""

from __future__ import annotations

import argparse
import json
from typing import Any

from latflow.cli.parser import DATA_DIR_HELP, add_json, add_run, add_samples


def add(commands: Any) -> None:
    command = commands.add_parser("evaluate", help="NLL, ELBO and its terms on a split")
    add_run(command)
    command.add_argument("--split", choices=("train", "valid", "test"), default="test", help="(test)")
    add_samples(command)
    command.add_argument("--batch-size", type=int, default=32, metavar="N", help="sequences at once (32)")
    command.add_argument("--data-dir", metavar="DIR", help=DATA_DIR_HELP)
    add_json(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.fast.memory import keep_freed_memory
    from latflow.plain import shown
    from latflow.presets import PRESETS
    from latflow.progress import counting
    from latflow.reproduce.result import comparable
    from latflow.training import Run
    from latflow.training.distributed import join
    from latflow.training.evaluate import evaluate, table

    keep_freed_memory()
    made = Run.open(args.folder)
    with join(args.device) as world:
        model = made.model(args.weights).to(world.device)
        corpus = made.corpus(args.data_dir)
        with counting("evaluating, batches", quiet=not world.main) as tell:
            metrics = evaluate(
                model,
                corpus.splits[args.split],
                samples=args.samples,
                batch_size=args.batch_size,
                seed=args.seed,
                world=world,
                truth=None if corpus.truth is None else corpus.truth[args.split],
                progress=tell,
            )
        if not world.main:
            return 0
    preset = made.preset or ""
    # A run with other sizes or data is not the paper's row.
    same = args.split == "test" and comparable(preset, made.config)
    paper = PRESETS[preset].paper if same else None
    if args.json:
        about = {"run": args.folder, "data": corpus.name, "split": args.split, "preset": made.preset}
        numbers = None if paper is None else vars(paper)
        print(json.dumps({**about, **metrics.to_dict(), "paper": numbers}, indent=2))
        return 0
    known = {"NLL": paper.nll, "reconstruction": paper.reconstruction, "KL": paper.kl} if paper else None
    which = made.kept(args.weights)
    missing = "" if which == args.weights else " (there are no best)"
    print(
        f"{args.folder}: {corpus.name}, {args.split}, {metrics.sequences} sequences, {which} weights{missing}"
    )
    print(f"in {metrics.convention}")
    for name, value in table(metrics, known):
        print(f"  {shown(name):<18} {value}")
    return 0
