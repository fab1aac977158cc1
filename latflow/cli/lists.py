"""What comes with the package: presets and trained models."""

from __future__ import annotations

import argparse
import dataclasses
import json

from latflow import shipped
from latflow.cli.printing import print_table
from latflow.presets import PRESETS


def models(args: argparse.Namespace) -> int:
    """`latflow models`."""
    if args.name is not None:
        print(shipped.card_text(args.name), end="")
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


def presets(args: argparse.Namespace) -> int:
    """`latflow presets`."""
    if args.json:
        print(json.dumps([dataclasses.asdict(preset) for preset in PRESETS.values()], indent=2))
        return 0
    rows = []
    for preset in PRESETS.values():
        paper = f"{preset.paper.nll:.2f} ({preset.paper.table})" if preset.paper else "-"
        rows.append([preset.name, preset.about, paper])
    print_table(rows, ["preset", "what", "paper's NLL"])
    print("\nThe paper's NLL is in bits per character (ptb) or nats per time step (music).")
    print("All fields of one: latflow train PRESET --print_config")
    return 0
