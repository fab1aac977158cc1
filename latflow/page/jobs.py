"""One computation at a time, in a thread of its own; a bounded queue before it.

Random numbers are the process's (`latflow.training.seeds`), so two computations at once would disturb each other. A
job tells how far it is, and at each telling it is cancelled if it is to be, or its time has ended.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from latflow.errors import LatflowError, LatflowWarning
from latflow.flows.seam import off
from latflow.progress import Progress

Work = Callable[[Progress], Any]
"""A computation, which calls what it is given with (done, of how many)."""

WAITING = 12
"""Jobs before the desk, the one at work not counted."""
SECONDS = 120.0
"""Of a computation."""
EVERY = 0.1
"""Seconds between two tellings."""


class Busy(Exception):
    """Too many jobs are waiting."""


class Stopped(Exception):
    """Raised inside a job that is cancelled."""


class Job:
    """A computation for a client; `events` end with one that has "result" or "error"."""

    def __init__(self, client: str, work: Work, seconds: float, twins: bool = False):
        self.client, self.work, self.seconds, self.twins = client, work, seconds, twins
        self.loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.stop = threading.Event()
        self.started = 0.0
        self._told = 0.0

    def cancel(self) -> None:
        self.stop.set()

    def progress(self, done: int, of: int) -> None:
        """What the computation calls: here it ends, if it is to."""
        if self.stop.is_set():
            raise Stopped
        now = time.monotonic()
        if now - self.started > self.seconds:
            raise LatflowError(
                f"stopped after {self.seconds:g} seconds, at {done} of {of}; ask for less: fewer steps or particles"
            )
        if now - self._told >= EVERY:
            self._told = now
            self.say({"progress": [done, of]})

    def say(self, event: dict[str, Any]) -> None:
        """From any thread."""
        try:
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:  # the server has ended meanwhile
            self.stop.set()

    def run(self) -> None:
        """In the worker; without `twins` by the definitions, for to compile those takes minutes."""
        self.started = self._told = time.monotonic()
        try:
            with warnings.catch_warnings(record=True) as caught, nullcontext() if self.twins else off():
                warnings.simplefilter("always", LatflowWarning)
                self.progress(0, 1)
                result = self.work(self.progress)
            remarks = [str(one.message) for one in caught if issubclass(one.category, LatflowWarning)]
            self.say({"result": result, "remarks": remarks})
        except Stopped:
            self.say({"error": "cancelled", "status": 409})
        except LatflowError as error:
            self.say({"error": str(error), "status": 400})
        except Exception:
            traceback.print_exc()
            self.say(
                {"error": "a mistake in latflow itself; the terminal of the server has more", "status": 500}
            )


class Desk:
    """Takes jobs and works them off in their order."""

    def __init__(
        self, waiting: int = WAITING, seconds: float = SECONDS, twins: threading.Event | None = None
    ):
        """`twins` is set once the compiled twins (`latflow.fast`) are ready."""
        self.most, self.seconds, self.twins = waiting, seconds, twins
        self._jobs: deque[Job] = deque()
        self._now: Job | None = None
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="latflow-page", daemon=True)
        self._thread.start()

    def submit(self, client: str, work: Work) -> Job:
        """A job in the queue. A client has one at a time: one that it has there or at work is cancelled."""
        job = Job(client, work, self.seconds, self.twins is not None and self.twins.is_set())
        with self._change:
            for other in [one for one in self._jobs if one.client == client]:
                self._drop(other)
            if self._now is not None and self._now.client == client:
                self._now.cancel()
            if len(self._jobs) >= self.most:
                raise Busy
            self._jobs.append(job)
            self._change.notify()
        return job

    def cancel(self, job: Job) -> None:
        """Out of the queue, or if it is at work, stopped at its next telling."""
        with self._change:
            if job in self._jobs:
                self._drop(job)
            job.cancel()

    def _drop(self, job: Job) -> None:
        self._jobs.remove(job)
        job.cancel()
        job.say({"error": "cancelled", "status": 409})

    def close(self) -> None:
        """Stop what is at work, and let the thread end."""
        with self._change:
            self._closed = True
            for job in list(self._jobs):
                self._drop(job)
            if self._now is not None:
                self._now.cancel()
            self._change.notify()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            with self._change:
                self._now = None
                while not self._jobs and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                self._now = self._jobs.popleft()
            self._now.run()
