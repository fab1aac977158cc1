"""Shapes and types in signatures are checked while the tests run; each test starts from the same seed."""

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook(["latflow.flows", "latflow.models"], "beartype.beartype")


@pytest.fixture(autouse=True)
def _same_seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def double():
    """float64 as the default, for tests of mathematics to many digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
