"""The program around the commands: what it arranges before torch is loaded."""

from __future__ import annotations

import os
import signal

import pytest

from latflow import __main__ as entry
from latflow import cli


@pytest.mark.parametrize(("load", "given", "used"), [(1.0, None, "1000"), (0.9, None, None), (5.0, "5", "5")])
def test_threads_wait_briefly_for_each_other_where_others_work(monkeypatch, load, given, used):
    monkeypatch.setattr(cli, "main", lambda: 0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(entry.gc, "freeze", lambda: None)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("GOMP_SPINCOUNT", given or "")  # so that it is as before when the test ends
    if given is None:
        monkeypatch.delenv("GOMP_SPINCOUNT")
    with pytest.raises(SystemExit):
        entry.run()
    assert os.environ.get("GOMP_SPINCOUNT") == used
