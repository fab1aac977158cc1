"""What `import latflow` gives: every name of `__all__`, and the things of the package it stands for."""

from __future__ import annotations

import pytest

import latflow
from latflow.training import fit
from latflow.use import sample, score


def test_every_public_name_is_there() -> None:
    assert all(getattr(latflow, name) is not None for name in latflow.__all__)
    assert latflow.train is fit.train
    assert latflow.resume is fit.resume
    assert latflow.sample is sample
    assert latflow.score is score


def test_others_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        latflow.trian  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
