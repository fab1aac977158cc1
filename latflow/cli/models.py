"""`latflow models`: trained models that come with the package."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from latflow import shipped
from latflow.cli.parser import add_json
from latflow.cli.printing import print_table


def add(commands: Any) -> None:
    command = commands.add_parser("models", help="trained models that come with the package")
    command.add_argument("name", nargs="?", metavar="NAME", help="print the card of this one")
    add_json(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.name is not None:
        text = shipped.card_text(args.name)
        about = {**dataclasses.asdict(shipped.card(args.name)), "card": text}
        print(json.dumps(about, indent=2) + "\n" if args.json else text, end="")
        return 0
    cards = [shipped.card(name) for name in shipped.names()]
    if args.json:
        print(json.dumps([dataclasses.asdict(card) for card in cards], indent=2))
        return 0
    rows = [[card.name, card.about, f"{card.nll} {card.unit}", f"{card.megabytes:.1f} MB"] for card in cards]
    print_table(rows, ["model", "what", "test NLL", "size"])
    print(f"\nA model's name stands for a run's folder: latflow sample {cards[0].name}")
    print("Its card: latflow models NAME")
    return 0
