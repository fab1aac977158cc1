"""The commands: parse, call, print.

Each command is a function `_name(args) -> int`, and heavy imports stay inside it, so that --help answers at
once. A mistake of the user's is a LatflowError, printed as one line with exit code 2.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TextIO

from latflow import __version__
from latflow.config import DataConfig
from latflow.errors import LatflowError, LatflowWarning

RUN_HELP = "a run's folder, or a model from `latflow models`"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--"]:  # torchrun -m latflow -- train: else torchrun takes our --run for its own
        del words[0]
    if words[:1] == ["train"]:  # its options are the fields of the config, see latflow.options
        args = argparse.Namespace(run=_train, words=words[1:])
    else:
        args = build_parser().parse_args(words)
    with warnings.catch_warnings():
        warnings.simplefilter("always", LatflowWarning)
        warnings.showwarning = _show_warning
        try:
            return args.run(args)
        except LatflowError as error:
            print(f"latflow: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("latflow: interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
            sys.stderr.close()
            return 141


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, LatflowWarning):
        print(f"latflow: warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. A new command is one `_add_...` function here and its own `_...` below."""
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
    run.add_argument("--device", default="auto", help="auto, cpu, cuda, mps (auto)")

    command = commands.add_parser("evaluate", parents=[run], help="NLL, ELBO and its terms on a split")
    command.add_argument("--split", choices=("train", "valid", "test"), default="test", help="(test)")
    command.add_argument("--samples", type=int, default=50, metavar="K", help="importance samples (50)")
    command.add_argument("--batch-size", type=int, default=32, metavar="N", help="sequences at once (32)")
    command.add_argument("--seed", type=int, default=0, help="of the samples (0)")
    command.add_argument("--data-dir", metavar="DIR", help="where the corpora lie on this machine")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_evaluate)

    command = commands.add_parser(
        "score", parents=[run], help="negative log-likelihood of your own sequences, as JSON lines"
    )
    command.add_argument("file", metavar="FILE", help="lines of text, JSON lines of tokens, .mid or a folder")
    command.add_argument("--samples", type=int, default=50, metavar="K", help="importance samples (50)")
    command.add_argument("--seed", type=int, default=0, help="of the samples (0)")
    command.set_defaults(run=_score)

    command = commands.add_parser("sample", parents=[run], help="draw new sequences")
    command.add_argument("-n", type=int, default=8, metavar="N", help="how many (8)")
    command.add_argument("--length", type=int, metavar="T", help="steps of each; unset: drawn from p(T)")
    command.add_argument("--temperature", type=float, default=1.0, metavar="t", help="scale of the noise (1)")
    command.add_argument("--argmax", action="store_true", help="the most likely x given z, not a draw")
    command.add_argument("--seed", type=int, default=0, help="the same seed draws the same (0)")
    command.add_argument("--out", metavar="FILE", help="write here; music: .mid, .wav and .png of that name")
    command.set_defaults(run=_sample)

    command = commands.add_parser("presets", help="named configs, with the paper's numbers")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_presets)

    command = commands.add_parser("models", help="trained models that come with the package")
    command.add_argument("name", nargs="?", metavar="NAME", help="print the card of this one")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_models)

    command = commands.add_parser(
        "export", help="a run's best weights as a folder to share, without the state of its training"
    )
    command.add_argument("folder", metavar="RUN", help=RUN_HELP)
    command.add_argument("out", metavar="FOLDER", help="the new folder, which works as a run")
    command.add_argument("--half", action="store_true", help="weights in half precision: half the size")
    command.set_defaults(run=_export)

    command = commands.add_parser("demo", help="train small models on built-in data: minutes on a laptop")
    command.add_argument("--out", default="demo", metavar="DIR", help="where runs and figure go (demo)")
    command.set_defaults(run=_demo)


def _add_data(commands: Any) -> None:
    data = commands.add_parser("data", help="list, fetch and describe corpora")
    actions = data.add_subparsers(metavar="ACTION", required=True)

    action = actions.add_parser("list", help="the corpora that are known, and where they lie")
    _add_folder(action)
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(run=_data_list)

    action = actions.add_parser("fetch", help="download a corpus, with a checked sha256")
    action.add_argument("name", help="ptb, jsb, nottingham, piano-midi or musedata")
    action.add_argument("--data-dir", metavar="DIR", help="put it here instead of the cache folder")
    action.set_defaults(run=_data_fetch)

    action = actions.add_parser("stats", help="sequences, steps, lengths, vocabulary, the cost of p(T)")
    action.add_argument("name", help="a corpus, or text:PATH, midi:DIR, tokens:PATH")
    add_config_options(action, DataConfig, leave_out=("name",))
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(run=_data_stats)


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser("bench", help="measure speed and memory on this machine")
    bench.add_argument("--quick", action="store_true", help="the stated targets only")
    bench.add_argument("--json", metavar="FILE", help="write all numbers here")
    bench.add_argument(
        "--figure", metavar="FILE", help="draw generation time against length here (.png and .svg)"
    )
    bench.set_defaults(run=_bench)
    actions = bench.add_subparsers(metavar="WHAT")

    action = actions.add_parser("data", help="time and memory to load corpora and to batch them")
    action.add_argument("names", nargs="*", metavar="NAME", help="corpora; unset: all that need no download")
    _add_folder(action)
    action.add_argument("--batch-size", type=int, default=15, metavar="N", help="sequences in a batch (15)")
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(run=_bench_data)


def _add_reproduce(commands: Any) -> None:
    command = commands.add_parser(
        "reproduce",
        help="train and evaluate the rows of the paper's tables, our numbers beside the paper's",
        description="Train or go on with each row of a table, evaluate it once on the test set, print the table and "
        "write it as Markdown, LaTeX and JSON. Rows whose result file is there are not made again.",
    )
    command.add_argument("table", metavar="TABLE", help="table1, table2, table3, synthetic or all")
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
    command.set_defaults(run=_reproduce)


def _add_plot(commands: Any) -> None:
    plot = commands.add_parser("plot", help="the paper's figures and others, as PNG and SVG")
    kinds = plot.add_subparsers(metavar="KIND", required=True)

    def add(kind: str, text: str, run: str | None = None) -> argparse.ArgumentParser:
        command = kinds.add_parser(kind, help=text, description=text[0].upper() + text[1:] + ".")
        if run is not None:
            command.add_argument("folder", metavar="RUN", help=run)
        command.set_defaults(run=_plot, kind=kind)
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
    command.add_argument("--data-dir", metavar="DIR", help="where the corpora lie on this machine")
    command.add_argument("--seed", type=int, default=0, help="(0)")
    finish(command)

    command = add("timing", "generation time against length, LSTM against IAF / SCF")
    command.add_argument("file", metavar="FILE", help="the JSON that the benchmark wrote (latflow.bench)")
    command.add_argument("--size", default="paper", help="paper or small (paper)")
    finish(command)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", metavar="DIR", help="where the corpora lie, before $LATFLOW_DATA and the cache"
    )


def add_config_options(parser: argparse.ArgumentParser, config: Any, leave_out: tuple[str, ...] = ()) -> None:
    """An option for each field of a config dataclass, explained by the docstring below the field."""
    documented = field_docs(config)
    kinds: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": _yes_or_no}
    for field in dataclasses.fields(config):
        if field.name in leave_out:
            continue
        kind = str(field.type).removesuffix(" | None")
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=kinds[kind],
            default=field.default,
            metavar={"str": "TEXT", "int": "N", "float": "X", "bool": "yes|no"}[kind],
            help=documented.get(field.name, "").replace("%", "%%")
            + (f" ({field.default})" if field.default is not None else ""),
        )


def field_docs(config: Any) -> dict[str, str]:
    """The docstrings that stand below a dataclass's fields."""
    body = ast.parse(inspect.getsource(config)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for above, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[above.target.id] = str(below.value.value)
    return found


def _yes_or_no(word: str) -> bool:
    if word.lower() in ("yes", "true", "1"):
        return True
    if word.lower() in ("no", "false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{word!r} is neither yes nor no")


def _config_of(args: argparse.Namespace) -> DataConfig:
    return DataConfig(**{field.name: getattr(args, field.name) for field in dataclasses.fields(DataConfig)})


def _train(args: argparse.Namespace) -> int:
    from latflow.options import parse_train

    options = parse_train(args.words)
    if options.print_config is not None:
        print(options.print_config, end="")
        return 0
    from latflow.commands import train

    return train(options)


def _evaluate(args: argparse.Namespace) -> int:
    _at_least(args, "samples", 1)
    _at_least(args, "batch_size", 1)
    _at_least(args, "seed", 0)
    from latflow.commands import evaluate

    return evaluate(args)


def _score(args: argparse.Namespace) -> int:
    _at_least(args, "samples", 1)
    _at_least(args, "seed", 0)
    from latflow.commands import score

    return score(args)


def _sample(args: argparse.Namespace) -> int:
    _at_least(args, "n", 1)
    _at_least(args, "seed", 0)
    from latflow.commands import sample

    return sample(args)


def _export(args: argparse.Namespace) -> int:
    from latflow.commands import export

    return export(args)


def _models(args: argparse.Namespace) -> int:
    from latflow import shipped

    if args.name is not None:
        print(shipped.card_text(args.name), end="")
        return 0
    cards = [shipped.card(name) for name in shipped.names()]
    if args.json:
        print(json.dumps([dataclasses.asdict(card) for card in cards], indent=2))
        return 0
    rows = [[card.name, card.about, f"{card.nll} {card.unit}", f"{card.megabytes:.1f} MB"] for card in cards]
    _print_table(rows, ["model", "what", "test NLL", "size"])
    print(f"\nA model's name stands for a run's folder: latflow sample {cards[0].name}")
    print("Its card: latflow models NAME")
    return 0


def _presets(args: argparse.Namespace) -> int:
    from latflow.presets import PRESETS

    if args.json:
        print(json.dumps([dataclasses.asdict(preset) for preset in PRESETS.values()], indent=2))
        return 0
    rows = []
    for preset in PRESETS.values():
        paper = f"{preset.paper.nll:.2f} ({preset.paper.table})" if preset.paper else "-"
        rows.append([preset.name, preset.about, paper])
    _print_table(rows, ["preset", "what", "paper's NLL"])
    print("\nThe paper's NLL is in bits per character (ptb) or nats per time step (music).")
    print("All fields of one: latflow train PRESET --print_config")
    return 0


def _demo(args: argparse.Namespace) -> int:
    from pathlib import Path

    from latflow.demo import demo

    return demo(Path(args.out))


def _reproduce(args: argparse.Namespace) -> int:
    from latflow.reproduce.command import reproduce

    return reproduce(args)


def _plot(args: argparse.Namespace) -> int:
    for name, lowest in (("steps", 1), ("n", 1), ("seed", 0)):
        if hasattr(args, name):
            _at_least(args, name, lowest)
    from latflow.plots.command import plot

    return plot(args)


def _at_least(args: argparse.Namespace, name: str, lowest: int) -> None:
    if getattr(args, name) < lowest:
        option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
        raise LatflowError(f"{option} is {getattr(args, name)}; it must be {lowest} or more")


def _data_list(args: argparse.Namespace) -> int:
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
        _print_table([[row["name"], row["about"], row["where"]] for row in rows], ["name", "what", "where"])
    return 0


def _data_fetch(args: argparse.Namespace) -> int:
    from pathlib import Path

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


def _data_stats(args: argparse.Namespace) -> int:
    from latflow.data import load
    from latflow.data.stats import describe

    found = describe(load(_config_of(args)))
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    what = "88 notes" if found["kind"] == "music" else f"{found['size']} symbols"
    print(f"{found['name']}: {found['kind']}, {what}, lengths up to {found['max_T']}\n{found['origin']}\n")
    splits = found["splits"]
    _print_table(
        [[split, *map(_cell, row.values())] for split, row in splits.items()], ["", *splits["train"]]
    )
    costs = "length_cost and truth are" if "truth" in splits["train"] else "length_cost is"
    print(f"\n{costs} in {found['unit']}, {found['convention']}")
    if found["kind"] != "music":
        print(f"symbols: {_short(found['symbols'], found['kind'])}")
    return 0


def _short(symbols: list[Any], kind: str) -> str:
    text = repr("".join(symbols)) if kind == "text" else ", ".join(json.dumps(symbol) for symbol in symbols)
    return text if len(text) <= 400 else text[:400] + " ..."


def _bench(args: argparse.Namespace) -> int:
    from latflow.bench import run

    run(args.quick, args.json, args.figure)
    return 0


def _bench_data(args: argparse.Namespace) -> int:
    from latflow.data.stats import available, measure

    if args.batch_size < 1:
        raise LatflowError(f"--batch-size is {args.batch_size}; it must be 1 or more")
    names = args.names or available(args.data_dir)
    rows = [measure(DataConfig(name=name, data_dir=args.data_dir), args.batch_size) for name in names]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        _print_table([list(map(_cell, row.values())) for row in rows], list(rows[0]))
    return 0


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_table(rows: list[list[str]], header: list[str]) -> None:
    """Columns under their names; the first to the left, numbers to the right."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for row in table:
        cells = [
            cell.rjust(width)
            if cell[:1].isdigit() or (row is header and rows[0][i][:1].isdigit())
            else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
