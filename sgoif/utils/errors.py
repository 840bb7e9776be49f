"""Errors that are told, not traced."""


class UserError(Exception):
    """A user's mistake or a missing precondition.

    The message is one line that says what was wrong, where, and what to do. The command line prints it
    without a traceback and exits with status 2.
    """


def damaged_cell(folder, batch, what: str) -> UserError:
    """The error for a cell's folder that cannot be used, with the cure: Snakemake reruns a batch whose file is gone."""
    return UserError(f"{folder}: {what}. Delete this folder and {batch}, then run again: only this cell is computed")
