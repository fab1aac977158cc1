"""The page as an application, and as a server on a real socket."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import uvicorn
from starlette.testclient import TestClient

from latflow import data
from latflow.models import build
from latflow.page.app import application
from latflow.use import save
from tests.training.tiny import config, environment

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
    """A run of a language model that looks as if it had trained for three epochs."""
    folder, made = tmp_path_factory.mktemp("runs") / "own-run", config("hmm-lstm")
    torch.manual_seed(0)
    run = save(build(made.model, data.load(made.data).spec), folder, made, preset="hmm-lstm")
    for epoch in (1, 2, 3):
        terms = {"negative_elbo": 4 - epoch / 2, "kl": 0.0, "reconstruction": 3.0, "length": 0.0}
        place = {"epoch": epoch, "updates": 8 * epoch, "kl_weight": 1.0, "lr": 1e-3, "seconds": 9.0 * epoch}
        run.append({"kind": "epoch", **place, "train": terms, "valid": terms})
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
    """Of `latflow page` as it is typed, in a process of its own."""
    words = [sys.executable, "-m", "latflow", "page", str(run_folder), "--port", "0", "--no-browser"]
    more = environment(LATFLOW_FAST="off")  # nothing to compile
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=more) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.fullmatch(r"latflow page: http://127\.0\.0\.1:(\d+)/ \(Ctrl\+C ends it\)\n", said)
        assert found, said
        yield int(found[1])
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)


def notes_of(roll: np.ndarray) -> list[list[int]]:
    return [(np.flatnonzero(step) + 21).tolist() for step in roll]
