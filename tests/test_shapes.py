"""That shapes and types are checked while the tests run."""

import inspect
import sys

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from torch import Tensor

from latflow.flows import Autoregressive, NLSq
from latflow.flows.transform import change_of_variables
from latflow.shapes import Float
from tests.shapes import checked


def test_functions_of_the_library_are_held_to_their_shapes():
    z = torch.zeros(2, 3)
    change_of_variables(z, z, torch.zeros(2))
    with pytest.raises(BeartypeCallHintParamViolation):
        change_of_variables(z, torch.zeros(2, 4), torch.zeros(2))  # h has two values
    with pytest.raises(BeartypeCallHintParamViolation):
        change_of_variables(z, z, torch.zeros(2, dtype=torch.long))
    with pytest.raises(BeartypeCallHintParamViolation):
        Autoregressive("3", 1, NLSq())  # type: ignore[arg-type]


def test_results_are_held_to_the_shapes_of_the_arguments():
    @checked
    def twice(x: Float[Tensor, "n"], times: int = 2) -> Float[Tensor, "n"]:
        return x.repeat(times)

    with pytest.raises(BeartypeCallHintReturnViolation):
        twice(torch.zeros(3))
    assert len(twice(torch.zeros(3), 1)) == 3


def test_a_letter_has_one_value_in_a_call_and_another_in_the_next():
    @checked
    def outer(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> int:
        return inner(torch.cat([x, y])) + len(x)

    @checked
    def inner(x: Float[Tensor, "n"]) -> int:
        return len(x)

    assert outer(torch.zeros(2), torch.zeros(2)) == 6
    assert outer(torch.zeros(3), torch.zeros(3)) == 9
    with pytest.raises(BeartypeCallHintParamViolation):
        outer(torch.zeros(2), torch.zeros(3))
    assert outer(torch.zeros(1), torch.zeros(1)) == 3  # nothing is left of the call that failed


def test_every_function_with_annotations_is_checked():
    missed, held = [], []
    for name, module in list(sys.modules.items()):
        if not f"{name}.".startswith(("latflow.flows.", "latflow.models.")):
            continue
        own = [part for part in vars(module).values() if getattr(part, "__module__", None) == name]
        methods = [part for cls in own if inspect.isclass(cls) for part in vars(cls).values()]
        for part in [*own, *methods]:
            function = part.__func__ if isinstance(part, staticmethod | classmethod) else part
            if not inspect.isfunction(function) or not function.__annotations__:
                continue
            if function.__code__ is checked(function).__code__:
                held.append(function)
            elif function.__code__.co_filename == module.__file__:
                missed.append(f"{name}.{function.__qualname__}")
    assert not missed
    assert len(held) > 100
