"""`python -m latflow` is `latflow`."""

import gc
import os
import signal
import sys


def others_work() -> bool:
    """Whether half of the cores or more have had work in the last minute.

    torch's threads wait for each other in a busy loop, for milliseconds: the best on idle cores, and where others want
    them too a command takes ten times as long (docs/performance.md).
    """
    return hasattr(os, "getloadavg") and os.getloadavg()[0] >= 0.5 * (os.cpu_count() or 1)


def run() -> None:
    """The command, from the first moment to the last: before and after it a Ctrl-C ends the process without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if others_work():
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # read when torch is loaded
    from latflow.cli import main

    code = main()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # torchrun
        from latflow.training.distributed import leave

        leave(code)
    gc.freeze()  # else the interpreter searches all of torch for cycles before it goes, half a second
    sys.exit(code)


if __name__ == "__main__":
    run()
