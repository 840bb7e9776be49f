"""Ways in which a Ctrl-C was lost while `sgoif scan` imported torch's compiler."""

import contextlib
import signal
import weakref


def dropped() -> None:
    """As by the bare `except` around an import."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def unraisable() -> None:
    """As in the weakref callbacks of importlib."""

    class Thing:
        pass

    thing = Thing()
    callback = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    assert callback() is None


def another_error() -> None:
    """As in the set-up of a C extension."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None
