"""Every Python of a chaos run imports this (PYTHONPATH). At one chosen moment it kills, stalls or starves the process.

SGOIF_FUSE is JSON, a list of {event, pattern, skip, act, mark}. A moment is an audit event of the interpreter (open for
writing, os.rename, shutil.rmtree, …) on a path; the first process that gets there writes `mark` and acts. It strikes
once.

Two acts are not of one process or moment. "refuse" (no locks, no hard links) strikes every time, in all processes.
"power" loses what is not yet on the disk: every rename below results/ and data/ is noted in the folder `journal` until
its folder is synced; at the moment those that match `lose` are undone, and the whole run is killed. The event
"sync folder" is the moment between a rename that matches and the sync of its folder.
"""

import json
import os
import signal
import sys


def light(fuse: dict) -> None:
    import re

    pattern, left, busy = re.compile(fuse["pattern"]), [fuse["skip"]], []
    events = fuse["event"].split("|")

    def watch(event: str, args: tuple) -> None:
        if event not in events or busy:
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)):
            if not fuse.get("reading"):
                return
        path = args[1] if event in ("os.rename", "os.link") else args[0]  # a rename is known by where it leads
        if isinstance(path, int):  # a lock is known by its open file
            path = os.readlink(f"/proc/self/fd/{path}")
        if not isinstance(path, (str, bytes, os.PathLike)) or not pattern.search(os.fsdecode(path)):
            return
        strike(event, os.fsdecode(path))

    def strike(event: str, path: str) -> None:
        if left[0]:
            left[0] -= 1
            return
        busy.append(True)
        try:
            mark = os.open(fuse["mark"], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:  # another process was struck
            if fuse["act"] != "refuse":
                return
        else:
            os.write(mark, f"{os.getpid()} {event} {path}".encode())
            os.close(mark)
        act(path)

    def act(path: str) -> None:
        if fuse["act"] == "kill" and fuse.get("seconds"):  # a little after the event
            import threading

            threading.Timer(fuse["seconds"], os.kill, (os.getpid(), signal.SIGKILL)).start()
        elif fuse["act"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fuse["act"] == "kill all":
            os.killpg(0, signal.SIGKILL)
        elif fuse["act"] == "stall":
            import time

            time.sleep(fuse["seconds"])
        elif fuse["act"] == "full":
            raise OSError(28, "No space left on device", path)
        elif fuse["act"] == "refuse":
            busy.clear()
            raise OSError(fuse["errno"], os.strerror(fuse["errno"]), path)
        elif fuse["act"] == "clock":
            set_back(fuse["seconds"])
        elif fuse["act"] == "power":
            undo(fuse["journal"], fuse["lose"])
            os.killpg(0, signal.SIGKILL)

    if fuse["act"] == "power":
        keep_journal(fuse["journal"], pattern if "sync folder" in events else None, strike)
    sys.addaudithook(watch)


def set_back(seconds: float) -> None:
    """From now on the clock of this process goes behind."""
    import time

    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() - seconds
    time.time_ns = lambda: true_ns() - int(seconds * 1e9)


def keep_journal(journal: str, pattern, strike) -> None:
    """Note renames until their folder is synced; strike before the sync of a folder where one matches `pattern`."""
    os.makedirs(journal, exist_ok=True)
    here, true_fsync, number = os.getcwd(), os.fsync, iter(range(10**9))
    rooms = (os.path.join(here, "results", ""), os.path.join(here, "data", ""))

    def note(event: str, args: tuple) -> None:
        if event != "os.rename":
            return
        old, new = (os.path.abspath(os.fsdecode(p)) for p in args[:2])
        if not new.startswith(rooms) or os.path.isdir(old):
            return
        import shutil
        import time

        entry = os.path.join(journal, f"{time.monotonic_ns():020d}-{os.getpid()}-{next(number)}")
        if os.path.exists(new):
            shutil.copy2(new, f"{entry}.before")
        with open(f"{entry}.json", "w") as f:
            json.dump([old, new], f)

    def fsync(handle) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        folder = os.path.realpath(f"/proc/self/fd/{number}")
        if os.path.isdir(folder):
            for entry, (_, new) in pending(journal):
                if os.path.dirname(new) == folder:
                    if pattern is not None and pattern.search(new):
                        strike("sync folder", new)
                    os.unlink(f"{entry}.json")
        true_fsync(handle)

    os.fsync = fsync
    sys.addaudithook(note)


def pending(journal: str) -> list:
    """Rename that are not on the disk yet, in order."""
    names = sorted(name for name in os.listdir(journal) if name.endswith(".json"))
    found = []
    for name in names:
        try:
            with open(os.path.join(journal, name)) as f:
                found.append((os.path.join(journal, name.removesuffix(".json")), json.load(f)))
        except (FileNotFoundError, ValueError):  # synced, or just being noted, by another process
            continue
    return found


def undo(journal: str, lose: str) -> None:
    """The folders as they are on the disk: renames that match `lose` and were not synced did not happen."""
    import re
    import shutil

    for entry, (old, new) in reversed(pending(journal)):
        if re.search(lose, new) and os.path.exists(new) and not os.path.exists(old):
            os.rename(new, old) if os.path.isdir(os.path.dirname(old)) else os.unlink(new)
            if os.path.exists(f"{entry}.before"):
                shutil.copy2(f"{entry}.before", new)


if "SGOIF_FUSE" in os.environ:
    for _fuse in json.loads(os.environ["SGOIF_FUSE"]):
        light(_fuse)
