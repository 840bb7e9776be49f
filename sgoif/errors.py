"""Errors of wrong use: of the library (`InfluenceError`) and of the commands (`UserError`).

Each message says what was wrong, where, and what to do.
"""


class InfluenceError(ValueError):
    """Base class: everything this package raises on wrong use."""


class ScopeError(InfluenceError):
    """The model has no supported layer in the asked-for parameter scope, or no recognisable head."""


class BatchError(InfluenceError):
    """`watch` was given labels or indices that do not fit the batch, the classes or the data set."""


class CaptureError(InfluenceError):
    """The model's forward (or backward) did not pass through the layers being watched."""


class UserError(Exception):
    """A user's mistake or a missing precondition, reported by a command.

    The message is one line that says what was wrong, where, and what to do. The command line prints it without a
    traceback and exits with status 2.
    """
