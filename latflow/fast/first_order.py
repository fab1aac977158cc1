"""Backward passes written by hand give first-order gradients, and say so when more is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For the `backward` of an autograd.Function: an error where a graph of the gradients is asked for.

    torch's `once_differentiable` leaves its error in that graph, where `torch.autograd.grad` and
    `torch.autograd.functional.hessian` walk past it to a wrong result.
    """
    once = once_differentiable(backward)

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "this part of latflow (LSTM, serial passes) has first-order gradients only; "
                "create_graph=True and Hessians are not supported"
            )
        return once(ctx, *grads)

    return checked
