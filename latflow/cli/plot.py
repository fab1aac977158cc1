"""`latflow plot`: open what is to be drawn, draw it, save it as PNG and SVG."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latflow.cli.parser import DATA_DIR_HELP
from latflow.errors import LatflowError

Draw = Callable[[argparse.Namespace], Any]
"""What was typed -> matplotlib's Figure."""


def add(commands: Any) -> None:
    plot = commands.add_parser("plot", help="the paper's figures and others, as PNG and SVG")
    kinds = plot.add_subparsers(metavar="KIND", required=True)

    def kind_of(kind: str, draw: Draw, text: str, run_help: str | None = None) -> argparse.ArgumentParser:
        command = kinds.add_parser(kind, help=text, description=text[0].upper() + text[1:] + ".")
        if run_help is not None:
            command.add_argument("folder", metavar="RUN", help=run_help)
        command.add_argument("--out", metavar="FILE", help="a name without suffix: FILE.png and FILE.svg")
        command.set_defaults(run=run, kind=kind, draw=draw)
        return command

    command = kind_of(
        "nlsq", _nlsq, "how NLSq makes a Gaussian multimodal: by hand, and learned, affine against NLSq"
    )
    command.add_argument(
        "--train", action="store_true", help="learn the densities anew, not from stored weights"
    )
    command.add_argument("--steps", type=int, metavar="N", help="of --train, for each density (1500)")
    command.add_argument("--seed", type=int, metavar="S", help="of --train (0)")

    command = kind_of(
        "modality", _modality, "next-symbol distributions along a text", "an LSTM run (preset ...-lstm)"
    )
    command.add_argument("text", metavar="TEXT", help="a sentence; for tokens, a JSON list")
    command.add_argument(
        "--positions", type=int, nargs="+", metavar="N", help="which symbols of it, from 1 (6 evenly spaced)"
    )

    command = kind_of(
        "prior",
        _prior,
        "the densities p(z_t | z_<t) along a text",
        "a run of a latent model with H = 2, such as the shipped pydoc-2d",
    )
    command.add_argument("text", metavar="TEXT", help="a sentence; for tokens, a JSON list")
    command.add_argument("--part", metavar="TEXT", help="show the panels of this part of it only")
    command.add_argument("--seed", type=int, default=0, help="of z ~ q(z | x) (0)")

    kind_of(
        "curves", _curves, "ELBO, KL, reconstruction and KL weight over epochs", "a run, or a result file"
    )

    command = kind_of(
        "roll",
        _roll,
        "piano rolls of test data beside samples of the same lengths; of samples alone where the data is not here",
        "a run on music, such as the shipped jsb",
    )
    command.add_argument("-n", type=int, default=3, metavar="N", help="pairs (3)")
    command.add_argument("--temperature", type=float, default=1.0, metavar="t", help="scale of the noise (1)")
    command.add_argument("--data-dir", metavar="DIR", help=DATA_DIR_HELP)
    command.add_argument("--seed", type=int, default=0, help="(0)")

    command = kind_of("timing", _timing, "generation time against length, LSTM against IAF / SCF")
    command.add_argument("file", metavar="FILE", help="the JSON that `latflow bench --json` wrote")
    command.add_argument("--size", default="paper", help="paper or small (paper)")


def run(args: argparse.Namespace) -> int:
    """Print the paths of the files written."""
    from latflow.plots.save import check_out, save

    out = args.out
    if out is None:
        out = f"{Path(args.folder).stem}-{args.kind}" if hasattr(args, "folder") else args.kind
    check_out(out)
    for path in save(args.draw(args), out):
        print(path)
    return 0


def _nlsq(args: argparse.Namespace) -> Any:
    from latflow.plots.nlsq import fitted, nlsq_figure
    from latflow.progress import counting

    if not args.train:
        if args.steps is not None or args.seed is not None:
            raise LatflowError("--steps and --seed are of --train, which learns the densities anew")
        return nlsq_figure()
    with counting("fitting two flows, steps") as tell:
        return nlsq_figure(fitted(args.steps or 1500, args.seed or 0, tell))


def _modality(args: argparse.Namespace) -> Any:
    from latflow.plots.modality import modality_figure
    from latflow.training import load

    return modality_figure(load(args.folder), args.text, args.positions)


def _prior(args: argparse.Namespace) -> Any:
    from latflow.plots.prior import prior_figure
    from latflow.training import load

    return prior_figure(load(args.folder), args.text, args.part, args.seed)


def _curves(args: argparse.Namespace) -> Any:
    from latflow.plots.curves import curves_figure, read_curve

    return curves_figure(*read_curve(args.folder))


def _roll(args: argparse.Namespace) -> Any:
    from latflow.plots.roll import roll_figure, rolls_of
    from latflow.training import Run

    made = Run.open(args.folder)
    rows = rolls_of(made, args.n, temperature=args.temperature, seed=args.seed, data_dir=args.data_dir)
    return roll_figure(rows, made.folder.name)


def _timing(args: argparse.Namespace) -> Any:
    from latflow.plots.timing import read_timing, timing_figure

    return timing_figure(read_timing(args.file, args.size))
