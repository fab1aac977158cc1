"""Speed: twins of definitions in `latflow.flows` and `latflow.models`, with their signatures and their numbers.

Nothing here is needed for a result and nobody imports it but by the seam (`latflow.flows.seam`), which chooses a twin
by what is given: dtype, device, shapes, whether gradients are wanted. `with latflow.fast.off():` leaves it all out.
"""

from latflow.fast import hidden, linear, reading, recurrent, rounded, tied
from latflow.flows.seam import off

__all__ = ["hidden", "linear", "off", "reading", "recurrent", "rounded", "tied"]
