"""Shapes in signatures: jaxtyping where it is installed (the tests check them), plain tensors elsewhere.

`Float[Tensor, "b t h"]` says what a function takes and gives. Nothing is checked at run time: the checks cost
more than the work they guard and break `torch.compile`; `tests/conftest.py` switches them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # To type checkers a shaped tensor is a tensor, whether jaxtyping is there or not.
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Plain:
            def __class_getitem__(cls, item):
                return item[0]

        Bool = Float = Int = _Plain

__all__ = ["Bool", "Float", "Int"]
