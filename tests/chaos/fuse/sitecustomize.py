"""Every Python of a chaos run imports this (PYTHONPATH). At one chosen moment it kills, stalls or starves the process.

SGOIF_FUSE is JSON: {event, pattern, skip, act, mark}. A moment is an audit event of the interpreter (open for writing,
os.rename, shutil.rmtree, …) on a path; the first process that gets there writes `mark` and acts. It strikes once.
"""

import json
import os
import signal
import sys


def light(fuse: dict) -> None:
    import re

    pattern, left, busy = re.compile(fuse["pattern"]), [fuse["skip"]], []

    def watch(event: str, args: tuple) -> None:
        if event != fuse["event"] or busy:
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)):
            if not fuse.get("reading"):
                return
        path = args[1] if event == "os.rename" else args[0]  # a rename is known by where it leads
        if not isinstance(path, (str, bytes, os.PathLike)) or not pattern.search(os.fsdecode(path)):
            return
        if left[0]:
            left[0] -= 1
            return
        busy.append(True)
        try:
            mark = os.open(fuse["mark"], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:  # another process was struck
            return
        os.write(mark, f"{os.getpid()} {event} {os.fsdecode(path)}".encode())
        os.close(mark)
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
            raise OSError(28, "No space left on device", os.fsdecode(path))

    sys.addaudithook(watch)


if "SGOIF_FUSE" in os.environ:
    light(json.loads(os.environ["SGOIF_FUSE"]))
