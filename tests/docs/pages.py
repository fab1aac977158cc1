"""Commands and blocks of a page of the docs, to be run as they stand."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

from latflow.cli import main

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next of its kind."""
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(text: str) -> list[list[str]]:
    """The words of each indented `latflow …`, without its comment."""
    lines = re.findall(r"^    latflow (.+)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def execute(words: list[str]) -> int:
    """As a shell would, `> FILE` at the end included."""
    if ">" not in words:
        return main(words)
    at = words.index(">")
    (target,) = words[at + 1 :]
    with open(target, "w", encoding="utf-8") as file, redirect_stdout(file):
        return main(words[:at])
