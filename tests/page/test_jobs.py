"""One computation at a time, bounded; a cancelled one stops."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading

import pytest

from latflow.errors import LatflowError
from latflow.page.app import application
from latflow.page.jobs import Busy, Desk
from latflow.page.kernels import Kernels
from tests.page.conftest import NAMED, serving


class Endless:
    """Work that tells of its steps until it is stopped."""

    def __init__(self):
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, tell):
        self.begun.set()
        try:
            while True:
                self.pause.wait(0.005)
                tell(1, 2)
        finally:
            self.ended.set()

    pause = threading.Event()


@pytest.fixture
def desk():
    found = Desk(waiting=2, seconds=60)
    yield found
    found.close()


async def last(job):
    while True:
        event = await job.events.get()
        if "progress" not in event:
            return event


async def begun(work: Endless) -> None:
    assert await asyncio.to_thread(work.begun.wait, 10)


def test_jobs_come_in_their_order_and_tell_how_far_they_are(desk):
    async def walk():
        order = []
        jobs = [desk.submit(f"client {i}", lambda tell, i=i: order.append(i) or i) for i in range(3 - 1)]
        assert [(await last(job))["result"] for job in jobs] == [0, 1]
        assert order == [0, 1]
        endless = Endless()
        job = desk.submit("one", endless)
        assert (await job.events.get()) == {"progress": [1, 2]}
        desk.cancel(job)
        assert (await last(job))["error"] == "cancelled"

    asyncio.run(walk())


def test_a_cancelled_job_stops_computing(desk):
    async def walk():
        work = Endless()
        job = desk.submit("one", work)
        await begun(work)
        desk.cancel(job)
        assert await asyncio.to_thread(work.ended.wait, 10)

    asyncio.run(walk())


def test_a_client_has_one_job_at_a_time(desk):
    """A newer one takes the place of the older, at work or waiting."""

    async def walk():
        first, waiting = Endless(), Endless()
        one = desk.submit("a", first)
        await begun(first)
        two = desk.submit("a", waiting)
        assert (await last(one))["error"] == "cancelled"
        await begun(waiting)
        other = desk.submit("b", lambda tell: 1)
        newer = desk.submit("b", lambda tell: 2)
        assert (await last(other))["error"] == "cancelled"
        desk.cancel(two)
        assert (await last(newer))["result"] == 2

    asyncio.run(walk())


def test_too_many_are_turned_away(desk):
    async def walk():
        work = Endless()
        at_work = desk.submit("a", work)
        await begun(work)
        kept = [desk.submit(f"c{i}", lambda tell: 1) for i in range(2)]
        with pytest.raises(Busy):
            desk.submit("d", lambda tell: 1)
        desk.cancel(kept[0])  # makes room at once
        room = desk.submit("d", lambda tell: 4)
        desk.cancel(at_work)
        assert (await last(room))["result"] == 4

    asyncio.run(walk())


def test_time_ends(capsys):
    async def walk():
        short = Desk(seconds=0.02)
        assert "stopped after 0.02 seconds, at 1 of 2" in (await last(short.submit("a", Endless())))["error"]
        await asyncio.to_thread(short.close)

    asyncio.run(walk())


def test_what_goes_wrong_is_said_and_the_desk_goes_on(desk, capsys):
    def wrong(tell):
        raise LatflowError("too long")

    def broken(tell):
        raise ZeroDivisionError("secret of the server")

    async def walk():
        assert await last(desk.submit("a", wrong)) == {"error": "too long", "status": 400}
        event = await last(desk.submit("a", broken))
        assert event["status"] == 500
        assert "secret" not in event["error"]
        assert (await last(desk.submit("a", lambda tell: 3)))["result"] == 3

    asyncio.run(walk())
    assert "ZeroDivisionError" in capsys.readouterr().err


# With a server on a socket.

LONG = {"model": "jsb", "how": "sample", "length": 256}


def test_who_goes_away_is_not_computed_for(monkeypatch):
    """The connection is broken off in the middle of a long job; the job ends, as its tellings show."""
    from latflow.page import jobs

    ended = threading.Event()
    run = jobs.Job.run

    def watched(self):
        run(self)
        if self.client == "leaver-leaver":
            ended.set()

    monkeypatch.setattr(jobs.Job, "run", watched)
    with serving(application()) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        sent = {**NAMED, "X-Latflow-Client": "leaver-leaver", "Content-Type": "application/json"}
        connection.request("POST", "/api/music/draw", json.dumps(LONG), sent)
        answer = connection.getresponse()
        first = json.loads(answer.readline())
        assert first["progress"][0] < 200
        assert not ended.is_set()
        answer.close()
        connection.close()
        assert ended.wait(10)


def test_fifty_clients_at_once_get_answers_or_busy(port):
    """None is left without one, and the server answers after them as before."""
    text = (
        "The value of the expression is returned as a list of names if the class has no such attribute here."
    )
    found: list[tuple[int, bytes]] = []
    start = threading.Barrier(50)

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        sent = {"X-Latflow-Client": f"client-{number:04}", "Content-Type": "application/json"}
        start.wait()
        connection.request("POST", "/api/text/surprise", json.dumps({"model": "pydoc", "text": text}), sent)
        answer = connection.getresponse()
        found.append((answer.status, answer.read()))
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 50
    served = [json.loads(body.splitlines()[-1])["result"]["bits"] for status, body in found if status == 200]
    busy = [json.loads(body)["error"] for status, body in found if status == 503]
    assert len(served) + len(busy) == 50
    assert len(served) >= 10
    assert all(bits == served[0] for bits in served)
    assert set(busy) <= {"busy: others are being served; try again in a few seconds"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/api/about")
    assert connection.getresponse().status == 200
    connection.close()


def test_the_compiler_ends_with_the_server_however_that_ends():
    kernels = Kernels(threading.Event())
    child = kernels._child
    if child is None:
        pytest.skip("nothing to compile")
    assert child.stdin is not None
    child.stdin.close()  # as the system does for a server that was killed
    assert child.wait(timeout=300) == 1
    kernels.close()
    assert not kernels.ready.is_set()
