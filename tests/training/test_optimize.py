"""The optimizers are torch's, without what they import."""

import pytest
import torch

from latflow.config import evolve
from latflow.training.optimize import make_optimizer
from tests.training.tiny import config


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_steps_and_states_are_those_of_torch(name):
    settings = evolve(config(), {"train.optimizer": name, "train.lr": 0.1}).train
    ours, theirs = (
        [torch.nn.Parameter(torch.linspace(-1, 1, n, dtype=torch.float64)) for n in (2, 5)] for _ in range(2)
    )
    bare = make_optimizer(settings, ours)
    expected = (
        torch.optim.Adam(theirs, lr=0.1, fused=True) if name == "adam" else torch.optim.SGD(theirs, lr=0.1)
    )
    for step in range(4):
        for optimizer, parameters in ((bare, ours), (expected, theirs)):
            sum((p - 3).pow(4).sum() for p in parameters).backward()  # type: ignore[union-attr]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        assert all(map(torch.equal, ours, theirs))
        assert all(p.grad is None and p.grad_fn is None for p in ours)
        if step == 1:  # on from a state that was kept
            kept = bare.state_dict()
            bare = make_optimizer(settings, ours)
            bare.load_state_dict(kept)
    torch.testing.assert_close(bare.state_dict(), expected.state_dict(), rtol=0, atol=0)
