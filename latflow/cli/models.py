"""The commands that need a model: call, print."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from latflow import data
from latflow.cli.options import TrainOptions
from latflow.data.base import Corpus
from latflow.errors import LatflowError
from latflow.fast.memory import keep_freed_memory
from latflow.models import SequenceModel
from latflow.plain import plain
from latflow.presets import PRESETS
from latflow.progress import counting
from latflow.reproduce.result import comparable
from latflow.training.distributed import World, choose_device, join
from latflow.training.evaluate import evaluate as evaluate_split
from latflow.training.evaluate import table
from latflow.training.loop import resume
from latflow.training.loop import train as train_config
from latflow.training.report import Reporter
from latflow.training.run import Run
from latflow.use import sample as draw
from latflow.use import score as score_all
from latflow.use.export import save
from latflow.use.files import as_text, read_sequences, write_samples


def train(options: TrainOptions) -> int:
    """`latflow train`: 130 after an interrupt, as shells expect."""
    keep_freed_memory()
    reporter = Reporter(quiet=options.quiet)
    if options.resume is not None:
        run, finished = resume(options.resume, reporter=reporter)
    else:
        run, finished = train_config(options.config, options.run, preset=options.preset, reporter=reporter)
    if World.is_main():
        if not finished:
            print(f"\nstopped and saved; go on with: latflow train --resume {run.folder}", file=sys.stderr)
        elif not options.quiet:
            print(f"done; next: latflow evaluate {run.folder}, latflow sample {run.folder}")
    return 0 if finished else 130


def _open(args: argparse.Namespace) -> tuple[Run, SequenceModel]:
    run = Run.open(args.folder)
    return run, run.model(args.weights).to(choose_device(args.device))


def evaluate(args: argparse.Namespace) -> int:
    """`latflow evaluate`, in one process or many."""
    keep_freed_memory()
    run = Run.open(args.folder)
    with join(args.device) as world:
        model = run.model(args.weights).to(world.device)
        corpus = _corpus(run, args.data_dir)
        with counting("evaluating, batches", quiet=not world.main) as tell:
            metrics = evaluate_split(
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
    preset = run.preset or ""
    # A run with other sizes or data is not the paper's row.
    same = args.split == "test" and comparable(preset, run.config)
    paper = PRESETS[preset].paper if same else None
    if args.json:
        about = {"run": args.folder, "data": corpus.name, "split": args.split, "preset": run.preset}
        numbers = None if paper is None else vars(paper)
        print(json.dumps({**about, **metrics.to_dict(), "paper": numbers}, indent=2))
        return 0
    known = {"NLL": paper.nll, "reconstruction": paper.reconstruction, "KL": paper.kl} if paper else None
    which = run.kept(args.weights)
    missing = "" if which == args.weights else " (there are no best)"
    print(
        f"{args.folder}: {corpus.name}, {args.split}, {metrics.sequences} sequences, {which} weights{missing}"
    )
    print(f"in {metrics.convention}")
    for name, value in table(metrics, known):
        print(f"  {name:<18} {value}")
    return 0


def _corpus(run: Run, data_dir: str | None) -> Corpus:
    """The data a run was trained on, as this machine has it."""
    corpus = data.load(data.placed(run.config.data, data_dir))
    run.check_data(corpus)
    return corpus


def score(args: argparse.Namespace) -> int:
    """`latflow score`: a JSON object a line, in the order of the file."""
    run, model = _open(args)
    found = read_sequences(args.file, run.spec, run.config.data)
    known = [(i, x) for i, (_, x) in enumerate(found) if not isinstance(x, LatflowError)]
    with counting("scoring, sequences") as tell:
        scored = score_all(model, [x for _, x in known], samples=args.samples, seed=args.seed, progress=tell)
    rows = {i: {**row, "index": i} for (i, _), row in zip(known, scored, strict=True)}
    for i, (name, x) in enumerate(found):
        row = rows.get(i) or {"index": i, "nll": None, "error": str(x)}
        print(json.dumps(plain({"sequence": name, **row}), ensure_ascii=False))
    return 0


def sample(args: argparse.Namespace) -> int:
    """`latflow sample`."""
    run, model = _open(args)
    with counting("sampling, sequences") as tell:
        drawn = draw(
            model,
            args.n,
            length=args.length,
            temperature=args.temperature,
            argmax=args.argmax,
            seed=args.seed,
            progress=tell,
        )
    out = args.out
    if out is None and run.spec.kind == "music":
        out = f"{run.folder.name}-sample"
    if out is None:
        for x in drawn:
            print(as_text(x, run.spec, terminal=sys.stdout.isatty()))
        return 0
    for path in write_samples(drawn, run.spec, Path(out), run.config.data):
        print(path)
    return 0


def export(args: argparse.Namespace) -> int:
    """`latflow export`."""
    run = Run.open(args.folder)
    made = save(run.model(), args.out, run.config, preset=run.preset, contents=run.contents, half=args.half)
    size = sum(file.stat().st_size for file in made.folder.iterdir())
    print(f"{made.folder}: {size / 1e6:.2f} MB")
    return 0


def demo(args: argparse.Namespace) -> int:
    """`latflow demo`; imported here, as it draws and the other commands need not wait for matplotlib."""
    from latflow.demo import demo as show

    return show(Path(args.out))


def bench(args: argparse.Namespace) -> int:
    """`latflow bench`; the same."""
    from latflow.bench import run

    run(args.quick, args.json, args.figure)
    return 0
