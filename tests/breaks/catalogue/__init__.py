"""The list, a file a room. Each entry: a name, then what becomes of what in which function; grouped by file, with the
tests that should notice."""

from tests.breaks.catalogue import cli, data, fast, flows, models, reproduce, training, use
from tests.breaks.patch import Break

BREAKS: list[Break] = [
    b for room in (training, use, models, flows, fast, data, reproduce, cli) for b in room.BREAKS
]
