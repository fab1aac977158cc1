"""The files of a run: tensors with a checksum, and JSON; and a model's weights as such tensors.

Each is written beside its place and then moved there, so that at any moment there is a whole file or none. Nothing is
unpickled.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from latflow.data.files import replacing
from latflow.errors import LatflowError


def written(path: Path) -> AbstractContextManager[Path]:
    """A path to write to, moved to `path` when the block ends well. A run has one writer."""
    return replacing(path, path.with_name(f".{path.name}.new"))


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Tensors and what JSON can hold, as one file with a checksum."""
    plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    metadata = {"latflow": json.dumps(state), "crc32": str(_crc32(plain))}
    with written(path) as new:
        save_file(plain, new, metadata)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """What `save_tensors` wrote; a file cut short or altered is a LatflowError."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        state = json.loads(metadata["latflow"])
        whole = metadata["crc32"] == str(_crc32(tensors))
    except FileNotFoundError:
        raise
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise LatflowError(f"{path} is damaged: {error}") from None
    if not whole:
        raise LatflowError(f"{path} is damaged: its checksum is not that of its content")
    return tensors, state


def write_json(path: Path, value: Any) -> None:
    with written(path) as new:
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        new.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files may hold any bytes


def read_json(path: Path) -> Any:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device has no end
            raise OSError("not a plain file")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LatflowError(
            f"the run at {path.parent} is damaged: {path.name} cannot be read ({error})"
        ) from None


def _crc32(tensors: Mapping[str, Tensor]) -> int:
    """Over names and content, in the order of the names."""
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(name.encode(), crc)
        crc = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes(), crc)
    return crc


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor a model consists of, once, even if it is known by two names."""
    seen: set[int] = set()
    found = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen or tensor.numel() == 0:
            seen.add(tensor.data_ptr())
            found[name] = tensor
    return found


def set_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy what `weights_of` gave into a model of the same config."""
    own = weights_of(model)
    for name in own.keys() ^ tensors.keys():
        side = "lacks" if name in own else "has an unknown"
        raise LatflowError(
            f"the run at {where} is damaged: its weights do not fit its config ({side} {name})"
        )
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)} instead of {tuple(tensor.shape)}"
            raise LatflowError(f"the run at {where} is damaged: {name} has shape {shapes}")
        tensor.copy_(tensors[name])


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, under the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
