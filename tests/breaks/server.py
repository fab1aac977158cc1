"""pytest in forks of one process that has imported what takes seconds and never changes.

`python -m tests.breaks.server` in a tree reads a line of JSON (pytest's words and the seconds it may take) and answers
with one ([exit code, or null if it had not ended; the end of what it printed]), until its input ends. The package and
its tests are imported by each fork anew, from the files as they are then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple


class Ended(NamedTuple):
    code: int | None
    """None: it had not ended in time."""
    output: str


class Server:
    """The other end: one for a tree, one request at a time."""

    def __init__(self, tree: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.breaks.server"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def pytest(self, *words: str, seconds: float) -> Ended:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([words, seconds]) + "\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline()):
            raise RuntimeError(f"the process that runs the tests ended with {self.process.wait()}")
        return Ended(*json.loads(answer))

    def close(self) -> None:
        self.process.communicate()


def serve() -> None:
    # As pytest's plugins are its own to import, only what it does not rewrite.
    import numba  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch  # noqa: F401

    for line in sys.stdin:
        words, seconds = json.loads(line)
        with tempfile.TemporaryFile() as output:
            code = forked(words, output, seconds)
            output.seek(0)
            print(json.dumps([code, output.read().decode(errors="replace")[-2000:]]), flush=True)


def forked(words: list[str], output: IO[bytes], seconds: float) -> int | None:
    """pytest's exit code."""
    if (child := os.fork()) == 0:
        os.setsid()  # so that what it started can be ended with it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        sys.dont_write_bytecode = True  # of a file that is about to change again
        import pytest

        code = 70
        try:
            code = int(pytest.main(words))
            sys.stdout.flush()
        finally:
            os._exit(code)
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    serve()
