"""What may be typed. Each command names the function that does it, which is imported when it is called, so that
--help answers at once."""

from __future__ import annotations

import argparse
from typing import Any

from latflow import __version__
from latflow.cli.fields import add_config_options
from latflow.config import DataConfig
from latflow.errors import LatflowError

RUN_HELP = "a run's folder, or a model from `latflow models`"
LOWEST = {"n": 1, "samples": 1, "steps": 1, "batch_size": 1, "seed": 0}
"""Counts, and the lowest of each that makes sense."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. A new command is one `_add_...` function here and the function it names."""
    parser = argparse.ArgumentParser(
        prog="latflow",
        description="Latent normalizing flows for discrete sequences: text, music, any symbols.",
    )
    parser.add_argument("--version", action="version", version=f"latflow {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    commands.add_parser("train", help="train a preset, or go on with a run", add_help=False)
    _add_run_commands(commands)
    _add_data(commands)
    _add_bench(commands)
    _add_reproduce(commands)
    _add_plot(commands)
    return parser


def _add_run_commands(commands: Any) -> None:
    """evaluate, score, sample and export take a run; models, presets and demo do not."""
    run = argparse.ArgumentParser(add_help=False)
    run.add_argument("folder", metavar="RUN", help=RUN_HELP)
    run.add_argument("--weights", choices=("best", "last"), default="best", help="which checkpoint (best)")
    run.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (auto)")

    command = commands.add_parser("evaluate", parents=[run], help="NLL, ELBO and its terms on a split")
    command.add_argument("--split", choices=("train", "valid", "test"), default="test", help="(test)")
    command.add_argument("--samples", type=int, default=50, metavar="K", help="importance samples (50)")
    command.add_argument("--batch-size", type=int, default=32, metavar="N", help="sequences at once (32)")
    command.add_argument("--seed", type=int, default=0, help="of the samples (0)")
    command.add_argument(
        "--data-dir", metavar="DIR", help="the folder in which the data lies on this machine"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run="latflow.cli.models:evaluate")

    command = commands.add_parser(
        "score", parents=[run], help="negative log-likelihood of your own sequences, as JSON lines"
    )
    command.add_argument(
        "file", metavar="FILE", help="lines of text, JSON lines of tokens, a .mid or a folder of them"
    )
    command.add_argument("--samples", type=int, default=50, metavar="K", help="importance samples (50)")
    command.add_argument("--seed", type=int, default=0, help="of the samples (0)")
    command.set_defaults(run="latflow.cli.models:score")

    command = commands.add_parser("sample", parents=[run], help="draw new sequences")
    command.add_argument("-n", type=int, default=8, metavar="N", help="how many (8)")
    command.add_argument("--length", type=int, metavar="T", help="steps of each; unset: drawn from p(T)")
    command.add_argument("--temperature", type=float, default=1.0, metavar="t", help="scale of the noise (1)")
    command.add_argument("--argmax", action="store_true", help="the most likely x given z, not a draw")
    command.add_argument("--seed", type=int, default=0, help="the same seed draws the same (0)")
    command.add_argument("--out", metavar="FILE", help="write here; music: .mid, .wav and .png of that name")
    command.set_defaults(run="latflow.cli.models:sample")

    command = commands.add_parser("presets", help="named configs, with the paper's numbers")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run="latflow.cli.lists:presets")

    command = commands.add_parser("models", help="trained models that come with the package")
    command.add_argument("name", nargs="?", metavar="NAME", help="print the card of this one")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run="latflow.cli.lists:models")

    command = commands.add_parser(
        "export", help="a run's best weights as a folder to share, without the state of its training"
    )
    command.add_argument("folder", metavar="RUN", help=RUN_HELP)
    command.add_argument("out", metavar="FOLDER", help="the new folder, which works as a run")
    command.add_argument("--half", action="store_true", help="weights in half precision: half the size")
    command.set_defaults(run="latflow.cli.models:export")

    command = commands.add_parser("demo", help="train small models on built-in data: minutes on a laptop")
    command.add_argument("--out", default="demo", metavar="DIR", help="where runs and figure go (demo)")
    command.set_defaults(run="latflow.cli.models:demo")


def _add_data(commands: Any) -> None:
    data = commands.add_parser("data", help="list, fetch and describe corpora")
    actions = data.add_subparsers(metavar="ACTION", required=True)

    action = actions.add_parser("list", help="the corpora that are known, and where they lie")
    _add_folder(action)
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(run="latflow.cli.data:list_corpora")

    action = actions.add_parser("fetch", help="download a corpus, with a checked sha256")
    action.add_argument("name", help="ptb, jsb, nottingham, piano-midi or musedata")
    action.add_argument("--data-dir", metavar="DIR", help="put it here instead of the cache folder")
    action.set_defaults(run="latflow.cli.data:fetch_corpus")

    action = actions.add_parser("stats", help="sequences, steps, lengths, vocabulary, the cost of p(T)")
    action.add_argument("name", help="a corpus, or text:PATH, midi:DIR, tokens:PATH")
    add_config_options(action, DataConfig, leave_out=("name",))
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(run="latflow.cli.data:stats")


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser("bench", help="measure speed and memory on this machine")
    bench.add_argument("--quick", action="store_true", help="the stated targets only")
    bench.add_argument("--json", metavar="FILE", help="write all numbers here")
    bench.add_argument(
        "--figure", metavar="FILE", help="draw generation time against length here (.png and .svg)"
    )
    bench.set_defaults(run="latflow.cli.models:bench")
    actions = bench.add_subparsers(metavar="WHAT")

    action = actions.add_parser("data", help="time and memory to load corpora and to batch them")
    action.add_argument("names", nargs="*", metavar="NAME", help="corpora; unset: all that need no download")
    _add_folder(action)
    action.add_argument("--batch-size", type=int, default=15, metavar="N", help="sequences in a batch (15)")
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(run="latflow.cli.data:bench")


def _add_reproduce(commands: Any) -> None:
    command = commands.add_parser(
        "reproduce",
        help="train and evaluate the rows of the paper's tables, our numbers beside the paper's",
        description="Train or go on with each row of a table, evaluate it once on the test set, print the table and "
        "write it as Markdown, LaTeX and JSON. Rows whose result file is there are not made again.",
    )
    command.add_argument("table", metavar="TABLE", help="table1, table2, table3, passes, synthetic or all")
    command.add_argument(
        "--small", action="store_true", help="the -small presets: minutes to tens of minutes a row"
    )
    command.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="ROW",
        help="rows (af-af), corpora (jsb) or presets (jsb-af-af)",
    )
    command.add_argument("--show", action="store_true", help="train nothing, show what is there")
    command.add_argument("--runs", default="runs", metavar="DIR", help="where the runs' folders are (runs)")
    command.add_argument(
        "--run", metavar="DIR", dest="folder", help="the folder of the one row that --only names"
    )
    command.add_argument(
        "--results", default="results", metavar="DIR", help="where the result files are (results)"
    )
    command.add_argument("--docs", metavar="FILE", help="also write the page of all results there")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--quiet", action="store_true", help="print the table and warnings only")
    command.set_defaults(run="latflow.reproduce.command:reproduce")


def _add_plot(commands: Any) -> None:
    plot = commands.add_parser("plot", help="the paper's figures and others, as PNG and SVG")
    kinds = plot.add_subparsers(metavar="KIND", required=True)

    def add(kind: str, text: str, run: str | None = None) -> argparse.ArgumentParser:
        command = kinds.add_parser(kind, help=text, description=text[0].upper() + text[1:] + ".")
        if run is not None:
            command.add_argument("folder", metavar="RUN", help=run)
        command.set_defaults(run="latflow.plots.command:plot", kind=kind)
        return command

    def finish(command: argparse.ArgumentParser) -> None:
        command.add_argument("--out", metavar="FILE", help="a name without suffix: FILE.png and FILE.svg")

    command = add("nlsq", "how NLSq makes a Gaussian multimodal: by hand, and learned, affine against NLSq")
    command.add_argument(
        "--steps", type=int, default=1500, metavar="N", help="of fitting each learned density (1500)"
    )
    command.add_argument("--seed", type=int, default=0, help="(0)")
    finish(command)

    command = add("modality", "next-symbol distributions along a text", "an LSTM run (preset ...-lstm)")
    command.add_argument("text", metavar="TEXT", help="a sentence; for tokens, a JSON list")
    command.add_argument(
        "--positions", type=int, nargs="+", metavar="N", help="which symbols of it, from 1 (6 evenly spaced)"
    )
    finish(command)

    command = add(
        "prior",
        "the densities p(z_t | z_<t) along a text",
        "a run of a latent model with H = 2, such as the shipped pydoc",
    )
    command.add_argument("text", metavar="TEXT", help="a sentence; for tokens, a JSON list")
    command.add_argument("--part", metavar="TEXT", help="show the panels of this part of it only")
    command.add_argument("--seed", type=int, default=0, help="of z ~ q(z | x) (0)")
    finish(command)

    command = add("curves", "ELBO, KL, reconstruction and KL weight over epochs", "a run, or a result file")
    finish(command)

    command = add(
        "roll",
        "piano rolls of test data beside samples of the same lengths; of samples alone where the data is not here",
        "a run on music, such as the shipped jsb",
    )
    command.add_argument("-n", type=int, default=3, metavar="N", help="pairs (3)")
    command.add_argument("--temperature", type=float, default=1.0, metavar="t", help="scale of the noise (1)")
    command.add_argument(
        "--data-dir", metavar="DIR", help="the folder in which the data lies on this machine"
    )
    command.add_argument("--seed", type=int, default=0, help="(0)")
    finish(command)

    command = add("timing", "generation time against length, LSTM against IAF / SCF")
    command.add_argument("file", metavar="FILE", help="the JSON that `latflow bench --json` wrote")
    command.add_argument("--size", default="paper", help="paper or small (paper)")
    finish(command)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", metavar="DIR", help="where the corpora lie, before $LATFLOW_DATA and the cache"
    )


def check(args: argparse.Namespace) -> None:
    """Numbers that a parser takes and no command can use."""
    for name, lowest in LOWEST.items():
        given = getattr(args, name, None)
        if given is not None and given < lowest:
            option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
            raise LatflowError(f"{option} is {given}; it must be {lowest} or more")
