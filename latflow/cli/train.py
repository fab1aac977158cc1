"""`latflow train`: every field of the config is an option, over a config file, over a preset, over the defaults."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from latflow.cli.fields import add_fields, changed, dotted, read_file, read_words
from latflow.cli.parser import DATA_DIR_HELP
from latflow.config import Config, from_dict, to_dict
from latflow.errors import LatflowError
from latflow.plain import shown

if TYPE_CHECKING:
    from latflow.data.base import Corpus


def add(commands: Any) -> None:
    command = commands.add_parser(
        "train",
        help="train on your own data, train a preset, or go on with a run",
        usage="latflow train PRESET|DATA [--config FILE] [--any.field VALUE ...] [--run DIR]\n"
        "       latflow train DATA --from RUN [--any.field VALUE ...] [--run DIR]\n"
        "       latflow train --resume RUN [--data-dir DIR]",
        description="Train a preset (latflow presets), a config file, or go on with a run that was interrupted. With "
        "data of your own (text:PATH, midi:DIR, tokens:FILE) instead of a preset, a codebook flow is chosen whose "
        "sizes and training follow from how much data there is; with --from, a trained or shipped model is trained on.",
        allow_abbrev=False,
    )
    command.add_argument(
        "preset",
        nargs="?",
        metavar="PRESET|DATA",
        help="a name from `latflow presets`, or text:PATH, midi:DIR, tokens:FILE",
    )
    command.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="a YAML or JSON file of fields, over the preset's",
    )
    command.add_argument(
        "--print_config", action="store_true", help="print the whole resolved config and stop"
    )
    command.add_argument(
        "--run",
        "--run-dir",
        dest="folder",
        metavar="DIR",
        help="the new run's folder (default: runs/PRESET)",
    )
    command.add_argument(
        "--from",
        dest="start",
        metavar="RUN",
        help="begin with the weights of this run or shipped model (fine-tuning)",
    )
    command.add_argument("--resume", metavar="RUN", help="go on with this run from its last checkpoint")
    command.add_argument("--data-dir", metavar="DIR", help=f"with --resume: {DATA_DIR_HELP}")
    command.add_argument("--quiet", action="store_true", help="print warnings only")
    add_fields(
        command.add_argument_group(
            "fields of the config", "The default stands behind each; a preset has its own."
        )
    )
    command.heads = frozenset(field.name for field in fields(Config))
    command.set_defaults(run=run)


def config_of(args: argparse.Namespace) -> Config:
    """The preset, then the files, then the options."""
    if args.data_dir is not None:
        raise LatflowError(
            "--data-dir is for --resume, of a run whose data has moved; a new run has --data.data_dir, or a path in "
            "its data's name"
        )
    if args.preset is None and not args.config and args.start is None:
        raise LatflowError(
            "train what? give a preset (latflow presets), data of your own (text:PATH, midi:DIR, tokens:FILE), "
            "--config FILE or --resume RUN"
        )
    config = chosen = None
    if args.start is not None:
        config = tuned_from(args)
    elif is_data(args.preset):
        config, chosen = chosen_for(args)
    elif args.preset is not None:
        from latflow.presets import find

        config = find(args.preset).config
    for path in args.config:
        raw = read_file(path)
        config = from_dict(raw) if config is None else changed(config, dotted(config, raw))
    config = changed(config or Config(), read_words(args.fields))
    if chosen is not None and not args.quiet and not args.print_config:
        from latflow.training.recommend import described

        print(
            described(config, chosen), flush=True
        )  # with the options: a line that says what will be trained
    return config


def tuned_from(args: argparse.Namespace) -> Config:
    """The model of another run on new data: that run's config with what fine-tuning changes."""
    from latflow.training.run import Run
    from latflow.training.start import Start

    run = Run.open(args.start)
    if args.preset is not None and not is_data(args.preset):
        raise LatflowError(
            f"--from {args.start} brings its own config; give data (text:PATH, midi:DIR, tokens:FILE, or "
            f"--data.name for a corpus) instead of the preset {args.preset!r}"
        )
    own = {name: word for name, word in args.fields.items() if name.startswith("data.")}
    named = {"data.name": args.preset} if args.preset else {}
    return Start(run).config(changed(run.config, {**read_words(own), **named}).data)


def is_data(word: str | None) -> bool:
    """Whether the word names data of the user's own, not a preset."""
    return word is not None and ":" in word


def chosen_for(args: argparse.Namespace) -> tuple[Config, Corpus]:
    """A config for the user's own data, which is read for it."""
    from latflow import data
    from latflow.training.recommend import recommended

    own = {name: word for name, word in args.fields.items() if name.startswith("data.")}
    config = changed(Config(), {**read_words(own), "data.name": args.preset})
    corpus = data.load(config.data)
    return recommended(config.data, corpus), corpus


def run(args: argparse.Namespace) -> int:
    """After a signal 128 and its number, as shells expect: 130 after Ctrl-C, 143 after a polite kill."""
    config = config_of(args) if args.resume is None else None
    if config is None:
        _refuse_others(args)
    elif args.print_config:
        import yaml

        print(yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True), end="")
        return 0

    from latflow.fast.memory import keep_freed_memory
    from latflow.training import resume, train
    from latflow.training.distributed import World
    from latflow.training.report import Reporter
    from latflow.training.run import Run
    from latflow.training.start import Start

    keep_freed_memory()
    reporter = Reporter(quiet=args.quiet)
    if config is not None:
        preset = None if is_data(args.preset) else args.preset
        start = None if args.start is None else Start(Run.open(args.start))
        if start is not None and not args.quiet:
            print(shown(start.said(config.data)), flush=True)
        made, finished = train(config, args.folder, preset=preset, start=start, reporter=reporter)
    else:
        made, finished = resume(str(args.resume), data_dir=args.data_dir, reporter=reporter)
    if World.is_main():
        if not finished:
            print(f"\nstopped and saved; go on with: latflow train --resume {made.folder}", file=sys.stderr)
        elif not args.quiet:
            print(f"done; next: latflow evaluate {made.folder}, latflow sample {made.folder}")
    return 0 if finished else reporter.stop_code


def _refuse_others(args: argparse.Namespace) -> None:
    """A run goes on as it was begun."""
    given = {
        "--config": args.config,
        "--run": args.folder,
        "--from": args.start,
        "--print_config": args.print_config,
    }
    others = [
        args.preset,
        *(f"--{name}" for name in args.fields),
        *(o for o, value in given.items() if value),
    ]
    for word in filter(None, others):
        raise LatflowError(
            f"--resume goes on with the run's own config; leave out {word} "
            "(a new run from an old config: latflow train --config RUN/config.json --train.lr 0.001)"
        )
