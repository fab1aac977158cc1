"""The schedules of KL weight and learning rate (supplement E), and the optimizer with its moments as tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from latflow.config import TrainConfig


def kl_weight(config: TrainConfig, updates: int, updates_per_epoch: int) -> float:
    """0, then rising in a line to 1, by the number of steps done."""
    if config.kl_steps is None:
        zero, ramp = config.kl_zero * updates_per_epoch, config.kl_ramp * updates_per_epoch
    else:
        zero, ramp = config.kl_steps
    return float(updates >= zero) if ramp == 0 else min(1.0, max(0.0, (updates - zero) / ramp))


def cosine(config: TrainConfig, epochs: float) -> float:
    """Factor on the learning rate: falls from 1 to 0 over the last `lr_decay` epochs, or all if they are fewer."""
    span = min(config.lr_decay, config.epochs)
    left = (config.epochs - epochs) / span if span else 1.0
    return 0.5 - 0.5 * math.cos(math.pi * min(1.0, left))


def make_optimizer(config: TrainConfig, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=config.lr, fused=parameters[0].device.type in ("cpu", "cuda"))
    return torch.optim.SGD(parameters, lr=config.lr)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The moments, named by the number of the parameter: optimizer.3.exp_avg."""
    found = {}
    for number, state in optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{number}.{k}": v for k, v in state.items() if isinstance(v, Tensor)}
    return found


def set_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
