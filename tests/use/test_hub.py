"""Models to the Hub and back, through the real client and a stand-in of the Hub's interface: no network."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from latflow.errors import LatflowError
from latflow.training.fit import train
from latflow.training.run import WEIGHTS, Run
from latflow.training.stored import weights_of
from latflow.use.hub import _check_name, described, fetch, push
from tests.training.tiny import config, run_python
from tests.use.hub_server import standing_in


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(config(train__epochs=1), tmp_path_factory.mktemp("runs") / "run")[0]


@pytest.fixture
def hub(tmp_path):
    with standing_in() as server:
        yield server


def python(hub, tmp_path, code, token="hf_secret", **more):
    """In a process of its own: the client reads where the Hub is when it is imported."""
    places = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": token, **more}
    return run_python("-c", code, **places, HF_HUB_DISABLE_TELEMETRY="1")


def test_what_is_pushed_comes_back(run, hub, tmp_path):
    words = ["push", str(run.folder), "someone/tiny-flow"]
    done = python(hub, tmp_path, f"from latflow.cli import main; raise SystemExit(main({words!r}))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("someone/tiny-flow")
    stored = hub.files["someone/tiny-flow"]
    assert {"run.json", "config.json", "data.json", WEIGHTS, "README.md"} <= stored.keys()
    assert b'latflow.from_pretrained("someone/tiny-flow")' in stored["README.md"]
    stored["harm.py"] = b"raise SystemExit(9)"  # what else lies there is not fetched
    code = (
        "import latflow, torch; from latflow.training.stored import weights_of\n"
        "model = latflow.from_pretrained('someone/tiny-flow')\n"
        f"torch.save(weights_of(model), {str(tmp_path / 'back.pt')!r})"
    )
    done = python(hub, tmp_path, code)
    assert done.returncode == 0, done.stderr
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    for name, value in weights_of(run.model()).items():
        torch.testing.assert_close(back[name], value, rtol=0, atol=0)
    assert not any("harm.py" in line for line in hub.asked)
    # Without a connection what was fetched is there still.
    for nowhere in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:1"}):
        done = python(hub, tmp_path, code, **nowhere)
        assert done.returncode == 0, done.stderr


def test_what_goes_wrong_is_one_line(run, hub, tmp_path):
    code = "from latflow.use.hub import from_pretrained\n"
    wrap = "try: from_pretrained({name!r})\nexcept Exception as e: print(type(e).__name__, e)"
    done = python(hub, tmp_path, code + wrap.format(name="someone/nothing"))
    assert "LatflowError someone/nothing on the Hub: there is no such model" in done.stdout, done.stderr
    hub.files["someone/else"] = {"config.json": b"{}", "model.safetensors": b"x"}
    done = python(hub, tmp_path, code + wrap.format(name="someone/else"))
    assert "is no model of latflow: it has no run.json" in done.stdout
    words = ["push", str(run.folder), "someone/mine"]
    done = python(
        hub, tmp_path, f"from latflow.cli import main; raise SystemExit(main({words!r}))", token="wrong"
    )
    assert done.returncode == 2
    assert "log in with `hf auth login`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["someone/mine", "someone/-mine"])
def test_a_hub_that_cannot_be_reached_is_one_line(run, monkeypatch, name):
    """Whatever error the client's own HTTP library has for it."""
    hub = pytest.importorskip("huggingface_hub")

    class ConnectError(Exception): ...

    def refuse(*_, **__):
        raise ConnectError("[Errno -2] Name or service not known")

    for method in ("create_repo", "model_info"):
        monkeypatch.setattr(hub.HfApi, method, refuse)
    with pytest.raises(LatflowError, match=r"someone/.?mine on the Hub: .* Name or service not known"):
        push(run, name)
    with pytest.raises(LatflowError, match=r"cannot reach the Hub for .*, and it is not in the cache"):
        fetch(name)


@pytest.mark.parametrize("name", ["model", "a/b/c", "../x", "a/..", "a b/c", "/etc", "a/"])
def test_only_names_of_the_hub_are_asked_for(name):
    with pytest.raises(LatflowError, match="is no name of a model on the Hub"):
        _check_name(name)


def test_a_card_holds_no_path_of_this_machine(run, tmp_path):
    about = json.loads((run.folder / "config.json").read_text())
    about["data"]["name"] = f"text:{tmp_path}/secret/lines.txt"
    (run.folder / "config.json").write_text(json.dumps(about))
    card = described(Run.open(run.folder), "someone/mine")
    assert "secret" not in card
    assert "text of my own" in card


def test_without_the_client_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LatflowError, match=r"pip install 'latflow\[hub\]'"):
        fetch("someone/model")
