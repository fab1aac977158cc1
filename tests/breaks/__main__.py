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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.breaks.catalogue import BREAKS
from tests.breaks.patch import ROOT, Break, read
from tests.breaks.server import Ended, Server

COPIED = ("latflow", "tests", "examples", "results", "docs", "pyproject.toml", "README.md", "Makefile")
CONTROL = "tests/flows/test_packing.py"
"""Passes in the processes that are to notice breaks too, or they would notice anything."""
WORDS = ("-x", "-q", "-p", "no:cacheprovider")
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
    trees: queue.Queue[tuple[Path, Server]] = queue.Queue()
    with ExitStack() as at_end:
        folder = at_end.enter_context(tempfile.TemporaryDirectory(prefix="latflow-breaks-"))
        first = copy(ROOT, Path(folder) / "0")
        tests = sorted({test for b in chosen for test in b.tests})
        if (failed := failure(clean(first, tests, processes), ALL_MINUTES)) is not None:
            print(f"{failed}\nthe tests fail without any break; mend that first")
            return 2
        print(f"their tests pass without a break, {(time.monotonic() - began) / 60:.0f} minutes", flush=True)
        for number in range(processes):  # copies of the first, in which kernels are compiled by now
            tree = first if number == 0 else copy(first, Path(folder) / str(number))
            trees.put((tree, server := Server(tree)))
            at_end.callback(server.close)
            if (failed := failure(server.pytest(*WORDS, CONTROL, seconds=60 * MINUTES), MINUTES)) is not None:
                print(f"{failed}\n{CONTROL} fails in a fork, without any break; mend that first")
                return 2

        def noticed(b: Break) -> bool:
            tree, server = trees.get()
            started = time.monotonic()
            try:
                with broken(tree / b.file, b):
                    ended = server.pytest(*WORDS, *b.tests, seconds=60 * MINUTES)
            finally:
                trees.put((tree, server))
            found = failure(ended, MINUTES) is not None
            seconds = time.monotonic() - started
            print(f"{'noticed ' if found else 'SURVIVES'} {b.name} ({seconds:.0f} s)", flush=True)
            return found

        with ThreadPoolExecutor(processes) as pool:
            results = list(pool.map(noticed, chosen))
    survivors = [b for b, found in zip(chosen, results, strict=True) if not found]
    minutes = (time.monotonic() - began) / 60
    print(f"{len(chosen)} breaks, {len(survivors)} survive, {minutes:.0f} minutes")
    for b in survivors:
        print(f"  {b.name}: {b.file}, {b.where}: {b.old!r} -> {b.new!r}; run were {', '.join(b.tests)}")
    return int(bool(survivors))


@contextmanager
def broken(path: Path, b: Break) -> Iterator[None]:
    """The break in a tree's file, for a while. It gets its time back too: by that Python knows what it compiled."""
    source, times = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(b.applied(source), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def copy(source: Path, tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, tree / name, ignore=shutil.ignore_patterns("_build"))
        elif (source / name).exists():
            shutil.copy(source / name, tree / name)
    return tree


def clean(tree: Path, tests: Sequence[str], processes: int) -> Ended:
    """All tests there, without a break, in a process of their own that shares them out."""
    words = [sys.executable, "-m", "pytest", *WORDS, "-n", str(processes), *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            words,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * ALL_MINUTES,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(None, "")
    return Ended(ended.returncode, ended.stdout[-2000:] + ended.stderr[-2000:])


def failure(ended: Ended, minutes: int) -> str | None:
    """How the tests failed, None if they passed; that there are none is an error."""
    if ended.code is None:
        return f"after {minutes} minutes they had not ended"
    if ended.code not in (0, 1, 2):  # 2: a module that cannot be imported any more
        raise RuntimeError(f"pytest ended with {ended.code}: {ended.output}")
    return ended.output if ended.code else None


if __name__ == "__main__":
    sys.exit(main())
