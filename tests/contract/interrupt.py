"""Sessions that are killed after a number of epochs, and ones that go on from there."""

from pathlib import Path

from sgoif.training.session import Session


class Killed(BaseException):
    """Stands for a kill -9: nothing may catch it."""


class _Killing(Session):
    def __init__(self, *args, after: int, **kw):
        super().__init__(*args, **kw)
        self.left = after

    def epochs(self, *args, **kw):
        for epoch in super().epochs(*args, **kw):
            if self.left == 0:
                raise Killed
            self.left -= 1
            yield epoch


def killing_session(folder: Path, after: int, seed: int = 0) -> Session:
    return _Killing(folder / "work", "key", seed, save_every=0.0, after=after)


def quiet_session(folder: Path, seed: int = 0) -> Session:
    return Session(folder / "work", "key", seed, save_every=0.0)
