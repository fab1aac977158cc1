"""The page as an application, and as a server on a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from starlette.testclient import TestClient

import latflow.fast
from latflow.page.app import application
from latflow.training.loop import train
from tests.training.tiny import config

NAMED = {"X-Latflow-Client": "test-client"}


class Asker:
    """Asks the application, and reads lines of JSON."""

    def __init__(self, client: TestClient):
        self.client = client

    def post(self, kind: str, body: Any, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **NAMED, **headers}
        return self.client.post(f"/api/{kind}", content=content, headers=sent)

    def result(self, kind: str, **fields: Any) -> Any:
        answer = self.post(kind, fields)
        assert answer.status_code == 200, answer.text
        last = json.loads(answer.text.splitlines()[-1])
        assert "result" in last, last
        return last["result"]

    def error(self, kind: str, body: Any, status: int = 400) -> str:
        answer = self.post(kind, body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        return answer.json()["error"]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> Path:
    """A run that has trained for three epochs."""
    folder = tmp_path_factory.mktemp("runs") / "own-run"
    with latflow.fast.off():  # nothing to compile
        train(config("hmm-lstm"), folder)
    return folder


@pytest.fixture(scope="session")
def ask(run_folder) -> Iterator[Asker]:
    with TestClient(application([run_folder]), base_url="http://127.0.0.1:8022") as client:
        yield Asker(client)


@contextmanager
def serving(app: Any) -> Iterator[int]:
    """The port of a server in a thread."""
    options = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1, ws="none")
    socket = options.bind_socket()
    socket.listen()  # who comes before the server is up waits
    server = uvicorn.Server(options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield socket.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def port(run_folder) -> Iterator[int]:
    with serving(application([run_folder])) as found:
        yield found


def notes_of(roll: np.ndarray) -> list[list[int]]:
    return [(np.flatnonzero(step) + 21).tolist() for step in roll]
