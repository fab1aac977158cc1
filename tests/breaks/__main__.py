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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.breaks.catalogue import BREAKS
from tests.breaks.patch import ROOT, Break, read

COPIED = ("latflow", "tests", "examples", "results", "docs", "pyproject.toml", "README.md", "Makefile")
MINUTES = 10
"""After so long a run of tests has hung, which is noticed too."""


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
        for number in range(processes):
            trees.put(copy(Path(folder) / str(number)))
        tree = trees.get()
        tests = sorted({test for b in chosen for test in b.tests})
        if not passes(tree, tests):
            print("the tests fail without any break; mend that first")
            return 2
        trees.put(tree)

        def noticed(b: Break) -> bool:
            tree = trees.get()
            try:
                source = read(b.file, tree)
                (tree / b.file).write_text(b.applied(source), encoding="utf-8")
                try:
                    found = not passes(tree, b.tests)
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


def copy(tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("_build"))
        elif source.exists():
            shutil.copy(source, tree / name)
    return tree


def passes(tree: Path, tests: list[str] | tuple[str, ...]) -> bool:
    """Whether the tests pass there; that there are none is an error."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            words,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * MINUTES,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if ended.returncode not in (0, 1, 2):  # 2: a module that cannot be imported any more
        raise RuntimeError(
            f"pytest ended with {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )
    return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
