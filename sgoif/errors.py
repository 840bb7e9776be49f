"""Errors of wrong use: of the library (`InfluenceError`) and of the commands (`UserError`).

Each message says what was wrong, where, and what to do.
"""


class InfluenceError(ValueError):
    """Base class of the errors that the library raises on wrong use."""


class ScopeError(InfluenceError):
    """Raised if the model has no supported layer in `config.scope`, or no classification layer."""


class BatchError(InfluenceError):
    """Raised if indices or labels do not fit the batch, the classes or the data set."""


class CaptureError(InfluenceError):
    """Raised if a forward or backward pass did not reach the watched layers."""


class UserError(Exception):
    """A user's mistake or a missing precondition, reported by a command.

    The message is one line that says what was wrong, where, and what to do. The command line prints it without a
    traceback and exits with status 2.
    """
