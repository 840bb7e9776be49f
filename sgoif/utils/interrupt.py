"""Ctrl-C that does not get lost.

Python raises KeyboardInterrupt wherever the program happens to be. While libraries are being imported, as torch's
compiler is by the first optimiser, that may be a place that drops it (importlib's weakref callbacks, a bare `except`)
or makes another error of it (`__set_name__`; a C extension's ImportError, which reads as "not installed"), and hours of
training would follow. So it is also written down, for long loops to ask for and for the command to end by.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

_asked = False


def check() -> None:
    """Raises KeyboardInterrupt if Ctrl-C was pressed: the first one has been dropped on its way."""
    if _asked:
        raise KeyboardInterrupt


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """Ctrl-C inside always leaves as KeyboardInterrupt, whatever became of it. One that is ignored stays ignored."""
    global _asked
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    report = sys.unraisablehook
    sys.unraisablehook = lambda found: None if found.exc_type is KeyboardInterrupt else report(found)
    signal.signal(signal.SIGINT, _ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = report
        asked, _asked = _asked, False
        if asked:
            raise KeyboardInterrupt


def _ask(number: int, frame: object) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt
