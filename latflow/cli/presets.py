"""`latflow presets`: named configs, with the paper's numbers."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from latflow.cli.parser import add_json
from latflow.cli.printing import print_table


def add(commands: Any) -> None:
    command = commands.add_parser("presets", help="named configs, with the paper's numbers")
    add_json(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from latflow.presets import PRESETS

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
