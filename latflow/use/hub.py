"""Models on the Hugging Face Hub: fetch one by its name, push one of your own. Needs the extra `hub`.

A model there is the folder that `latflow export` writes and a card. Only the four files of a model are fetched, and
they are read as any run's folder is: nothing in them is executed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.training.run import WEIGHTS, Run, load
from latflow.use.export import export

FILES = ("run.json", "config.json", "data.json", WEIGHTS)
LARGEST = 4 << 30
"""Bytes of a file that is still fetched."""


def from_pretrained(name: str, *, revision: str | None = None, cache_dir: str | None = None) -> SequenceModel:
    """The model of a repository "user/model" of the Hub, from the cache if it was fetched before."""
    return load(fetch(name, revision=revision, cache_dir=cache_dir))


def fetch(name: str, *, revision: str | None = None, cache_dir: str | None = None) -> Path:
    """The folder of such a model on this machine, which works as a run's."""
    hub = _hub()
    _check_name(name)
    try:
        sizes = {
            file.rfilename: file.size
            for file in hub.HfApi().model_info(name, revision=revision, files_metadata=True).siblings or ()
        }
        missing = [file for file in FILES if file not in sizes]
        if missing:
            raise LatflowError(f"{name} on the Hub is no model of latflow: it has no {missing[0]}")
        for file in FILES:
            if (size := sizes[file]) is not None and size > LARGEST:
                raise LatflowError(f"{file} of {name} has {size:,} bytes; at most {LARGEST:,} are fetched")
    except LatflowError:
        raise
    except hub.errors.HfHubHTTPError as error:
        raise LatflowError(_told(name, error)) from None
    except Exception as error:
        # No connection, for which the library below has errors of its own: what was fetched before will do.
        try:
            return Path(_snapshot(hub, name, revision, cache_dir, local_files_only=True))
        except Exception:
            raise LatflowError(
                f"cannot reach the Hub for {name}, and it is not in the cache: {error}"
            ) from None
    try:
        return Path(_snapshot(hub, name, revision, cache_dir))
    except Exception as error:
        raise LatflowError(_told(name, error)) from None


def push(run: Run, name: str, *, half: bool = False, private: bool = False, card: str | None = None) -> str:
    """Put a run's best weights into a repository of the Hub, made if there is none. Returns its address.

    You must be logged in: `hf auth login`, or the environment variable HF_TOKEN.
    """
    hub = _hub()
    _check_name(name)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        export(run, folder, half=half)
        (folder / "README.md").write_text(card or described(run, name), encoding="utf-8")
        try:
            api = hub.HfApi(library_name="latflow")
            address = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message="latflow push")
        except Exception as error:
            raise LatflowError(_told(name, error)) from None
    return str(address)


def described(run: Run, name: str) -> str:
    """A card: what the model is, what it was trained on, how to use it."""
    spec, model = run.spec, run.config.model
    kind = "LSTM baseline" if model.kind == "lstm" else "latent normalizing flow"
    data = run.config.data.name
    data = data.partition(":")[0] + " of my own" if ":" in data else data
    lines = [
        "---",
        "library_name: latflow",
        "tags: [normalizing-flows, sequence-model]",
        "---",
        f"# {name}",
        "",
        f"A {kind} of {spec.kind} ({data}; {spec.size} symbols or notes, lengths up to {spec.max_T}), trained with "
        "latflow.",
        "",
        "```python",
        "import latflow",
        "",
        f'model = latflow.from_pretrained("{name}")',
        "```",
    ]
    return "\n".join(lines) + "\n"


def _snapshot(hub: Any, name: str, revision: str | None, cache_dir: str | None, **options: Any) -> str:
    return hub.snapshot_download(
        name, revision=revision, cache_dir=cache_dir, allow_patterns=list(FILES), **options
    )


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise LatflowError("the Hub needs huggingface_hub: pip install 'latflow[hub]'") from None
    return huggingface_hub


def _check_name(name: str) -> None:
    user, slash, model = name.partition("/")
    allowed = all(part and all(c.isalnum() or c in "-_." for c in part) for part in (user, model))
    if not slash or not allowed or ".." in name:
        raise LatflowError(f"{name!r} is no name of a model on the Hub; they are user/model")


def _told(name: str, error: Exception) -> str:
    """What the Hub answered, or why it did not, in a line."""
    code = getattr(getattr(error, "response", None), "status_code", None)
    reason = {
        401: "it asks who you are; log in with `hf auth login` or set HF_TOKEN",
        403: "your token may not do that; use one with write access",
        404: "there is no such model, or it is private and you are not logged in",
    }.get(code or 0, " ".join(str(error).split()[:40]) or type(error).__name__)
    return f"{name} on the Hub: {reason}"
