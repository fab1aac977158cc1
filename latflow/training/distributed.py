"""Many processes, as torchrun starts them: who am I, and sums over all.

Everything that processes exchange is a sum. A gradient is the sum over sequences of the gradients of each, so adding
up the processes' sums gives what one process would have computed on the joint batch, however uneven the shares. A
parameter without a gradient counts as zero.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from latflow.errors import LatflowError


@dataclass(frozen=True)
class World:
    """This process among all: `World()` is the only one there is."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def main(self) -> bool:
        """Whether this process writes and talks."""
        return self.rank == 0

    @staticmethod
    def is_main() -> bool:
        """Whether this process is the one that talks, also before it has joined the others."""
        return int(os.environ.get("RANK", "0")) == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over processes, on the device of `values`."""
        if self.size == 1:
            return values
        total = values.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(values.device)

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Every gradient becomes the sum over processes; a missing one becomes zero."""
        for p in parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        if self.size == 1:
            return
        flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        dist.all_reduce(flat)
        for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            p.grad = part.view_as(p)

    def same_everywhere(self, text: str | None) -> str | None:
        """What the main process says, on all."""
        box = [text]
        if self.size > 1:
            dist.broadcast_object_list(box, device=self.device if self.device.type == "cuda" else None)
        return box[0]


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device of a config: auto is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("the models compute in float64 where sums are long, which it may not have")
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", local_rank)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LatflowError(
            f"device {name!r} cannot be used: {reason} (accepted: auto, cpu, cuda, cuda:1)"
        ) from None
    return device


def hardware(world: World) -> str:
    """What computes here, in a few words: the GPU, or the processor and the threads in use."""
    each = f"{world.size} processes, each " if world.size > 1 else ""
    if world.device.type == "cuda":
        return each + torch.cuda.get_device_name(world.device)
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{each}{name}, {torch.get_num_threads()} of {os.cpu_count()} threads"


@contextmanager
def join(device: str) -> Iterator[World]:
    """The processes that torchrun started, or this one alone: gloo between CPUs, NCCL between GPUs."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if size == 1:
        yield World(device=chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size, chosen)
        dist.barrier()  # none may leave while another still writes: torchrun ends all with the first
    finally:
        dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """End one of many processes, with its files closed, at once.

    gloo's threads may still hold tensors of the last reduction, and an interpreter that finalizes under them aborts now
    and then (pytorch/pytorch#179291): about one run in forty here.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
