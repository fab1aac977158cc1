"""Sequences of different lengths without padding: the rows that every step-wise computation works on.

A batch (b, t, …) with lengths is laid out as N = Σ T_i rows, all first steps, then all second steps, …, the longest
sequence first. Nothing inside the package ever computes on padding, so padding cannot leak into a result and costs
no time. Samples fold in here and nowhere else: `repeat(s)` puts s copies of a sequence side by side.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from latflow.shapes import Float, Int


class Packing:
    """The layout of one batch: which row holds step t of sequence i.

    With the lengths it may carry a `condition` (b, c): what else is known of each sequence, for contexts to see; and
    `keys` (b,): what its random numbers are drawn by, if they are to depend on no other sequence.
    """

    def __init__(
        self,
        lengths: Int[Tensor, "b"],
        samples: int = 1,
        condition: Float[Tensor, "b c"] | None = None,
        keys: Int[Tensor, "b"] | None = None,
    ):
        check_lengths(lengths)
        self.lengths, self.condition, self.keys = lengths, condition, keys
        self.samples = samples
        """How many copies of each sequence stand side by side in the rows."""
        self.order = torch.argsort(lengths, descending=True, stable=True)
        host = lengths.cpu()
        self.steps = int(host.max())
        """T of the longest sequence."""
        active = torch.bincount(host).flip(0).cumsum(0).flip(0)[1:]
        self.active: list[int] = (active * samples).tolist()
        """Rows at each step: sequences (times samples) that are at least that long."""
        self.offsets: list[int] = [0]
        for n in self.active:
            self.offsets.append(self.offsets[-1] + n)

    @property
    def rows(self) -> int:
        """N."""
        return self.offsets[-1]

    def repeat(self, samples: int) -> Packing:
        """The same sequences, each `samples` times."""
        if self.samples != 1:
            raise ValueError(f"already holds {self.samples} samples of each sequence")
        return Packing(self.lengths, samples, self.condition)

    @cached_property
    def places(self) -> Packing:
        """The layout of what positions are looked up for: a row here stands for `per_place` rows side by side there.

        Samples of a sequence share their positions, and if all sequences have one length, so do all of them.
        """
        if self.active[-1] == self.active[0]:
            return self if self.active[0] == 1 else Packing(self.lengths[:1])
        return self if self.samples == 1 else Packing(self.lengths)

    @property
    def per_place(self) -> int:
        """How many rows share a row of `places`."""
        return self.active[0] // self.places.active[0]

    def at(self, t: int) -> slice:
        """The rows of step t."""
        return slice(self.offsets[t], self.offsets[t + 1])

    # Where a row comes from: (N,) index tensors on the device of the lengths.

    @cached_property
    def step(self) -> Int[Tensor, "n"]:
        """t of each row, from 0: the distance from the start."""
        counts = torch.tensor(self.active, device=self.lengths.device)
        return torch.repeat_interleave(torch.arange(self.steps, device=self.lengths.device), counts)

    @cached_property
    def sequence(self) -> Int[Tensor, "n"]:
        """i of each row."""
        within = torch.arange(self.rows, device=self.lengths.device) - self._start_of_step[self.step]
        return self.order[torch.div(within, self.samples, rounding_mode="floor")]

    @cached_property
    def remaining(self) -> Int[Tensor, "n"]:
        """T - 1 - t of each row: the distance from the end."""
        return self.lengths[self.sequence] - 1 - self.step

    @cached_property
    def previous(self) -> Int[Tensor, "n"]:
        """The row of step t-1 of the same sequence; N where there is none."""
        rows = torch.arange(self.rows, device=self.lengths.device)
        start = self._start_of_step
        before = rows - start[self.step] + start[(self.step - 1).clamp(min=0)]
        return torch.where(self.step > 0, before, self.rows)

    @cached_property
    def next(self) -> Int[Tensor, "n"]:
        """The row of step t+1 of the same sequence; N where there is none."""
        rows = torch.arange(self.rows, device=self.lengths.device)
        start = self._start_of_step
        after = rows - start[self.step] + start[self.step + 1]
        return torch.where(self.remaining > 0, after, self.rows)

    @cached_property
    def _start_of_step(self) -> Int[Tensor, "steps"]:
        return torch.tensor(self.offsets, device=self.lengths.device)

    # Into rows and back.

    def pack(self, padded: Tensor) -> Tensor:
        """(b, t, …), or (b, s, t, …) for s samples, to rows (N, …)."""
        if self.samples == 1:
            return padded[self.sequence, self.step]
        return padded[self.sequence, self._sample, self.step]

    def unpack(self, rows: Tensor, steps: int | None = None) -> Tensor:
        """Rows (N, …) to (b, t, …), or (b, s, t, …) for s samples, with zeros behind the end, t = `steps` in all."""
        b, t, tail = len(self.lengths), self.steps if steps is None else steps, rows.shape[1:]
        if self.samples == 1:
            padded = rows.new_zeros(b, t, *tail)
            return padded.index_put((self.sequence, self.step), rows)
        padded = rows.new_zeros(b, self.samples, t, *tail)
        return padded.index_put((self.sequence, self._sample, self.step), rows)

    @cached_property
    def _sample(self) -> Int[Tensor, "n"]:
        return torch.arange(self.rows, device=self.lengths.device) % self.samples

    def noise(self, samples: int, size: int, like: Tensor) -> Float[Tensor, "n s h"]:
        """Standard normal numbers, `samples` times `size` for each row; by torch's generator, or where sequences have
        keys by a generator of their own each, Philox, so that what else is in the batch changes none of them."""
        if self.keys is None:
            return torch.randn(self.rows, samples, size, dtype=like.dtype, device=like.device)
        kind = np.float64 if like.dtype == torch.float64 else np.float32
        lengths = self.lengths.tolist()
        drawn = [
            np.random.Generator(np.random.Philox(key=key)).standard_normal((T, samples, size), kind)
            for key, T in zip(self.keys.tolist(), lengths, strict=True)
        ]
        first = torch.tensor([0, *lengths[:-1]], device=self.step.device).cumsum(0)
        rows = (first[self.sequence] + self.step).cpu()
        return torch.from_numpy(np.concatenate(drawn))[rows].to(like.device, like.dtype)

    def before(self, rows: Tensor, first: Tensor | None = None) -> Tensor:
        """Each row's predecessor in its sequence; `first` (n_0, …), or zeros, at the first step."""
        shifted = _Shift.apply(rows, self.previous, self.next)
        if first is not None:
            shifted = torch.cat([first, shifted[self.offsets[1] :]])
        return shifted

    def after(self, rows: Tensor) -> Tensor:
        """Each row's successor in its sequence; zeros at the last step."""
        return _Shift.apply(rows, self.next, self.previous)


class _Shift(torch.autograd.Function):
    """Rows by index, where N stands for a row of zeros. The index is one-to-one, so the gradient is a gather too."""

    @staticmethod
    def forward(ctx, rows: Tensor, index: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(index, back)
        return _gather(rows, index)

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        index, back = ctx.saved_tensors
        return _Shift.apply(grad, back, index), None, None


def _gather(rows: Tensor, index: Tensor) -> Tensor:
    outside = index == len(rows)
    gathered = rows.index_select(0, index.masked_fill(outside, 0))
    gathered[outside] = 0
    return gathered


def check_lengths(lengths: Tensor) -> None:
    """Lengths are a non-empty vector of whole numbers of at least 1; otherwise say which one is not."""
    if lengths.ndim != 1 or len(lengths) == 0:
        raise ValueError(
            f"lengths must be a non-empty vector, one per sequence, not of shape {tuple(lengths.shape)}"
        )
    if lengths.dtype.is_floating_point or lengths.dtype.is_complex or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must be whole numbers, not {lengths.dtype}")
    if (shortest := int(lengths.min())) < 1:
        which = int(lengths.argmin())
        raise ValueError(
            f"every sequence needs at least one step, but sequence {which} has length {shortest}"
        )
