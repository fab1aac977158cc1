"""`latflow sample`: new sequences, printed or written; also given what is known of them, and like others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from latflow.cli.parser import add_run, importing, open_model
from latflow.errors import LatflowError

WAYS = ("prefix", "template", "given", "like", "between")
"""Options that say what is known; one at a time."""
OWN = {
    "mark": ("template",),
    "keep": ("given",),
    "free": ("given",),
    "noise": ("like",),
    "steps": ("between",),
    "particles": ("prefix", "template", "given"),
    "argmax": (None, "prefix", "template", "given"),
    "label": (None,),
    "length": (None, "prefix", "template", "given"),
    "temperature": (None, "prefix", "template", "given", "like"),
    "n": (None, "prefix", "template", "given", "like"),
}
"""Which ways, None being a sample without evidence, an option has a meaning for."""


def add(commands: Any) -> None:
    command = commands.add_parser("sample", help="draw new sequences, also given what is known of them")
    add_run(command)
    command.add_argument("-n", type=int, metavar="N", help="how many (8)")
    command.add_argument("--length", type=int, metavar="T", help="steps of each; unset: drawn from p(T)")
    command.add_argument("--temperature", type=float, metavar="t", help="scale of the noise (1)")
    command.add_argument(
        "--argmax", action="store_true", default=None, help="the most likely x given z, not a draw"
    )
    command.add_argument("--label", metavar="NAME", help="all of this label, for a model that knows labels")
    command.add_argument("--seed", type=int, default=0, help="the same seed draws the same (0)")
    command.add_argument(
        "--out",
        metavar="FILE",
        help="write here (-: standard output); music: .mid, .wav and .png, or the one it ends in",
    )
    command.add_argument(
        "--tempo", type=float, metavar="BPM", help="music: beats a minute of what is written"
    )
    known = command.add_argument_group("given what is known")
    known.add_argument("--prefix", metavar="TEXT", help="go on from this beginning; tokens: a JSON list")
    known.add_argument("--template", metavar="TEXT", help='fill in the free places: "The ??? of ???"')
    known.add_argument("--mark", metavar="M", help="what marks a free place of the template (?)")
    known.add_argument(
        "--given", metavar="FILE.mid", help="a piece: all of it is known but for --keep and --free"
    )
    known.add_argument(
        "--keep", metavar="RULE", help="known of the piece: steps 1-16, notes C4-B5, top, bass"
    )
    known.add_argument("--free", metavar="RULE", help="free in the piece: steps, notes or a voice, as --keep")
    known.add_argument(
        "--particles",
        type=int,
        metavar="K",
        help="of the sequential Monte Carlo (500, of music 200, and more where few stay different)",
    )
    near = command.add_argument_group("near others (latent models)")
    near.add_argument("--like", metavar="X", help="vary this: a file, or text itself")
    near.add_argument("--noise", type=float, metavar="s", help="how far --like goes, from 0 to 1 (0.3)")
    near.add_argument(
        "--between", nargs=2, metavar=("A", "B"), help="from one to another: files, or text itself"
    )
    near.add_argument("--steps", type=int, metavar="S", help="sequences of --between, both ends included (7)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with importing():
        from latflow.data.files import check_writable, written_through
        from latflow.data.midi import check_tempo
        from latflow.progress import counting
        from latflow.use import between, given, like
        from latflow.use.files import as_text, read_one, write_samples
        from latflow.use.sample import sampled

    way = _way(args)
    if args.out is not None:
        check_writable(args.out)
    made, model = open_model(args)
    spec, config, evidence = made.spec, made.config.data, None
    if args.tempo is not None:
        if spec.kind != "music":
            raise LatflowError(f"--tempo is of music and this model's data is {spec.kind}; leave it out")
        check_tempo(args.tempo)
    drawn: Any
    n = 8 if args.n is None else args.n
    temperature = 1.0 if args.temperature is None else args.temperature
    if way == "like":
        noise = 0.3 if args.noise is None else args.noise
        x = read_one(args.like, spec, config)
        drawn = like(model, x, n, noise=noise, temperature=temperature, seed=args.seed)
    elif way == "between":
        first, last = (read_one(x, spec, config) for x in args.between)
        drawn = between(model, first, last, 7 if args.steps is None else args.steps)
    elif way is None:
        drawn = sampled(
            model,
            n,
            length=args.length,
            temperature=temperature,
            argmax=bool(args.argmax),
            seed=args.seed,
            label=args.label,
        )
    else:
        evidence = evidence_of(args, spec, config)
        with counting("sampling, steps") as tell:
            found = given(
                model,
                evidence,
                n,
                particles=args.particles,
                temperature=temperature,
                argmax=bool(args.argmax),
                seed=args.seed,
                progress=tell,
            )
        drawn = found.samples
        print(
            f"log p(known) = {found.log_p:.2f} nats; {found.effective_samples:.0f} effective samples "
            f"of {found.particles} particles",
            file=sys.stderr,
        )
    known, out = None if evidence is None else evidence.known, args.out
    if out is None and spec.kind == "music":
        out = f"{made.folder.name}-sample"
    out = "-" if out is None else out
    shown = out == "-"
    if spec.kind == "music" and (shown or written_through(out)):
        raise LatflowError(
            f"--out {out} is for text and tokens; music goes into files, give a name, such as piece or piece.mid"
        )
    many = n if way is None else len(drawn)
    # A bar would stand between the lines of a terminal.
    with counting("sampling, sequences", quiet=shown and sys.stdout.isatty()) as tell:
        counted = _counted(drawn, many, tell)
        if shown:
            for x in counted:
                print(as_text(x, spec, terminal=sys.stdout.isatty(), known=known))
            return 0
        before = Path(out).is_file() and not written_through(out)
        several = many > 1
        for path in write_samples(counted, spec, out, config, several=several, tempo=args.tempo, known=known):
            if not written_through(path):
                print(f"{path} (replaced)" if before and spec.kind != "music" else path)
    return 0


def _counted(drawn: Iterable[Any], many: int, tell: Any) -> Iterator[Any]:
    for done, x in enumerate(drawn, start=1):
        yield x
        tell(done, many)


def evidence_of(args: argparse.Namespace, spec: Any, config: Any) -> Any:
    """What --prefix, --template or --given say is known."""
    from latflow.use import Evidence
    from latflow.use.files import read_one, typed

    music = spec.kind == "music"
    if args.template is not None:
        pattern = typed(args.template, spec)
        return Evidence.template(spec, pattern, "?" if args.mark is None else args.mark, args.length)
    if args.prefix is not None:
        if music:
            raise LatflowError("--prefix is text; a piece that music goes on from is --given FILE.mid")
        return Evidence.prefix(spec, typed(args.prefix, spec), args.length)
    if not music:
        raise LatflowError(
            f"--given is a piece of music and this model's data is {spec.kind}; see --template"
        )
    roll = read_one(args.given, spec, config)
    if args.keep is None and args.free is None:
        return Evidence.prefix(spec, roll, args.length)
    return Evidence.music(roll, args.keep, args.free, args.length)


def _way(args: argparse.Namespace) -> str | None:
    """Which of the ways was asked for; options that mean nothing with it are refused."""
    asked = [name for name in WAYS if getattr(args, name) is not None]
    if len(asked) > 1:
        raise LatflowError(f"--{asked[0]} and --{asked[1]}; one of them at a time")
    way = asked[0] if asked else None
    for name, ways in OWN.items():
        if getattr(args, name) is not None and way not in ways:
            option = "-n" if name == "n" else f"--{name}"
            fitting = " or ".join("none of these" if w is None else f"--{w}" for w in ways)
            raise LatflowError(
                f"{option} has no meaning {f'with --{way}' if way else 'alone'}; it goes with {fitting}"
            )
    return way
