"""Errors that are told, not traced."""


class UserError(Exception):
    """A user's mistake or a missing precondition.

    The message is one line that says what was wrong, where, and what to do. The command line prints it
    without a traceback and exits with status 2.
    """
