"""What goes wrong through no fault of the program, said in one line."""

from __future__ import annotations


class LatflowError(Exception):
    """A mistake the user can mend: a missing file, a wrong option, data that cannot be read.

    The message is one line and says what was given, what is accepted and what to do. The command line
    prints it without a traceback and ends with code 2.
    """


class LatflowWarning(UserWarning):
    """Something the user should know, though the work goes on: lines skipped, notes dropped, files left
    out.
    """
