"""Apply each break in a copy of the tree and run the tests that should notice; a break that none notices survives.

python -m tests.breaks            all; exit code 1 if one survives
python -m tests.breaks --check    only that every patch fits
python -m tests.breaks --list
python -m tests.breaks --only NAME [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.breaks.catalogue import BREAKS
from tests.breaks.patch import ROOT, Break, read

COPIED = ("latflow", "tests", "examples", "results", "docs", "pyproject.toml", "README.md", "Makefile")
MINUTES = 10
"""After so long a run of tests has hung, which is noticed too."""
ALL_MINUTES = 40
"""The same for all tests together, without a break."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.breaks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--list", action="store_true", help="print the names, and where each break is")
    parser.add_argument("--check", action="store_true", help="only that every patch fits")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these breaks")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="at once (2)")
    args = parser.parse_args(words)
    chosen = [b for b in BREAKS if not args.only or b.name in args.only]
    if unknown := set(args.only or ()) - {b.name for b in BREAKS}:
        parser.error(f"no break called {', '.join(sorted(unknown))}; --list names them")
    if args.list:
        for b in chosen:
            print(f"{b.name:<44} {b.file}:{b.where}")
        return 0
    for b in chosen:
        b.applied(read(b.file))
    print(f"{len(chosen)} breaks fit", flush=True)
    return 0 if args.check else run(chosen, args.processes)


def run(chosen: list[Break], processes: int) -> int:
    began = time.monotonic()
    trees: queue.Queue[Path] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="latflow-breaks-") as folder:
        first = copy(ROOT, Path(folder) / "0")
        trees.put(first)
        tests = sorted({test for b in chosen for test in b.tests})
        if (failed := failure(first, tests, "-n", str(processes), minutes=ALL_MINUTES)) is not None:
            print(f"{failed}\nthe tests fail without any break; mend that first")
            return 2
        print(f"their tests pass without a break, {(time.monotonic() - began) / 60:.0f} minutes", flush=True)
        for number in range(1, processes):  # of the first, in which kernels are compiled by now
            trees.put(copy(first, Path(folder) / str(number)))

        def noticed(b: Break) -> bool:
            tree = trees.get()
            try:
                source = read(b.file, tree)
                (tree / b.file).write_text(b.applied(source), encoding="utf-8")
                try:
                    found = failure(tree, b.tests) is not None
                finally:
                    (tree / b.file).write_text(source, encoding="utf-8")
            finally:
                trees.put(tree)
            print(f"{'noticed ' if found else 'SURVIVES'} {b.name}", flush=True)
            return found

        with ThreadPoolExecutor(processes) as pool:
            results = list(pool.map(noticed, chosen))
    survivors = [b for b, found in zip(chosen, results, strict=True) if not found]
    minutes = (time.monotonic() - began) / 60
    print(f"{len(chosen)} breaks, {len(survivors)} survive, {minutes:.0f} minutes")
    for b in survivors:
        print(f"  {b.name}: {b.file}, {b.where}: {b.old!r} -> {b.new!r}; run were {', '.join(b.tests)}")
    return int(bool(survivors))


def copy(source: Path, tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, tree / name, ignore=shutil.ignore_patterns("_build"))
        elif (source / name).exists():
            shutil.copy(source / name, tree / name)
    return tree


def failure(tree: Path, tests: Sequence[str], *options: str, minutes: int = MINUTES) -> str | None:
    """How the tests fail there, None if they pass; that there are none is an error."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            words,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * minutes,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"after {minutes} minutes they had not ended"
    if ended.returncode not in (0, 1, 2):  # 2: a module that cannot be imported any more
        raise RuntimeError(
            f"pytest ended with {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )
    return ended.stdout[-2000:] if ended.returncode else None


if __name__ == "__main__":
    sys.exit(main())
