"""Makes sure that Ctrl-C is not lost.

Python raises KeyboardInterrupt wherever the program happens to be. While libraries are being imported (torch's compiler
is, by the first optimiser), that place may drop the exception (importlib's weakref callbacks, a bare `except`) or turn
it into another error (`__set_name__`; a C extension's ImportError, which reads as "not installed"), and hours of
training would follow. So the signal is also remembered: long loops check for it, and the command ends by it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

_pending = False  # whether Ctrl-C was pressed inside `sigint_as_keyboard_interrupt`


def raise_if_pending() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed but its exception got lost."""
    if _pending:
        raise KeyboardInterrupt


@contextlib.contextmanager
def sigint_as_keyboard_interrupt() -> Iterator[None]:
    """Make every Ctrl-C inside leave the `with` block as KeyboardInterrupt, whatever became of the exception.

    Nothing is changed outside the main thread, or where SIGINT has another handler or is ignored.
    """
    global _pending
    default_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not default_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    report = sys.unraisablehook
    sys.unraisablehook = lambda error: None if error.exc_type is KeyboardInterrupt else report(error)
    signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = report
        pressed, _pending = _pending, False
        if pressed:
            raise KeyboardInterrupt


def _remember(number: int, frame: object) -> None:
    """Handle SIGINT: remember it and raise KeyboardInterrupt."""
    global _pending
    _pending = True
    raise KeyboardInterrupt
