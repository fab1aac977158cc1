"""Shapes and types in signatures are checked while the tests run; each test starts from the same seed."""

import signal
import time

import pytest
import torch

from tests import shapes

shapes.check("latflow.flows", "latflow.models")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a script's &: what tests send would not be heard
    signal.signal(signal.SIGINT, signal.default_int_handler)

WHOLE = 1000
"""From so many tests on, it is the whole suite that runs."""
COMPILED_BY = {
    "gw0": ("af-af", "af-scf", "lstm", "af-af-codebook"),
    "gw1": ("af-af-mixture-codebook", "af-scf-codebook"),
}


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(request, tmp_path_factory):
    """Of two processes each compiles its half of the kernels, a minute and a half in all, instead of both of them all.

    They are kept on disk, where other processes and later runs find them.
    """
    about = getattr(request.config, "workerinput", {})
    worker = about.get("workerid")
    if worker not in COMPILED_BY or about["workercount"] < 2 or len(request.session.items) < WHOLE:
        return
    from tests.models.cases import small_model, text_spec

    for name in COMPILED_BY[worker]:
        for dtype in (torch.float32, torch.float64):
            small_model(name, text_spec()).to(dtype).eval().sample(torch.tensor([6, 4]))
    shared = tmp_path_factory.getbasetemp().parent
    (shared / f"compiled-{worker}").touch()
    limit = time.monotonic() + 300
    while time.monotonic() < limit and not all((shared / f"compiled-{w}").exists() for w in COMPILED_BY):
        time.sleep(0.2)


@pytest.fixture(autouse=True)
def _same_seed():
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)
    # torch.manual_seed formats the stack for every kind of device that is not there.
    torch.default_generator.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def double():
    """float64 as the default, for tests of mathematics to many digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
