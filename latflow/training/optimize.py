"""The schedules of KL weight and learning rate (supplement E), and the optimizer with its moments as tensors."""

from __future__ import annotations

import inspect
import math

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

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


class _Bare:
    """Methods of an optimizer without what torch puts around them for its compiler.

    The first call of such a method imports the compiler, 800 modules and almost two seconds, which nothing here uses.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class BareAdam(_Bare, Adam):
    step = torch.no_grad()(inspect.unwrap(Adam.step))


class BareSGD(_Bare, SGD):
    step = torch.no_grad()(inspect.unwrap(SGD.step))


def make_optimizer(config: TrainConfig, parameters: list[torch.nn.Parameter]) -> Optimizer:
    if config.optimizer == "adam":
        return BareAdam(parameters, lr=config.lr, fused=parameters[0].device.type in ("cpu", "cuda"))
    return BareSGD(parameters, lr=config.lr)


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The moments, named by the number of the parameter: optimizer.3.exp_avg."""
    found = {}
    for number, state in optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{number}.{k}": v for k, v in state.items() if isinstance(v, Tensor)}
    return found


def set_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
