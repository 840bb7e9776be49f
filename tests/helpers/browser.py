"""A real browser under test: Chromium over its debugging pipe, with the standard library alone."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Escape": 27, "Tab": 9}


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """`with Browser(profile) as b: b.open(page); b.press("k"); b.ask("document.title")`."""

    def __init__(self, profile: Path, width: int = 1280, height: int = 900):
        # the pipe is read by the browser on file descriptor 3 and written on 4
        (inner_in, self._out), (self._in, inner_out) = (self._pipe() for _ in range(2))

        def hand_over() -> None:
            os.dup2(inner_in, 3)
            os.dup2(inner_out, 4)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [chromium(), *options, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"],
            preexec_fn=hand_over,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(inner_in)
        os.close(inner_out)
        self._ids, self._buffer, self.events, self.session = itertools.count(1), b"", [], None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    @staticmethod
    def _pipe() -> tuple[int, int]:
        """A pipe whose ends are not 3 or 4."""
        ends = os.pipe()
        moved = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in ends)
        for fd in ends:
            os.close(fd)
        return moved

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.session = None
            self.send("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **params) -> dict:
        """One command and its answer; what the browser says in between is kept in `events`."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._read(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _read(self, deadline: float) -> dict:
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], max(deadline - time.monotonic(), 0))[0], "the browser is silent"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has gone"
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, page: Path) -> None:
        self._go("Page.navigate", url=page.resolve().as_uri())

    def reload(self) -> None:
        self._go("Page.reload")

    def _go(self, method: str, **params) -> None:
        """Until another page than the one before is there, which may answer for a while."""
        self.ask("window.stale = true")
        self.send(method, **params)
        self.until("!window.stale && document.readyState === 'complete' && location.protocol === 'file:'")

    def ask(self, expression: str):
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError):  # a page that is being left cannot be asked
                if self.ask(expression):
                    return
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def press(self, *keys: str) -> None:
        """Real key strokes, at whatever has the focus."""
        for key in keys:
            code = KEYS.get(key, ord(key[0].upper()))
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            about = {"key": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", type="keyDown", **about, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def complaints(self) -> list[str]:
        """Errors on the page's console and requests to anything but the page itself."""
        self.ask("0")
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
            elif event.get("method") == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:", "blob:", "about:")):
                    found.append(f"asked for {url}")
        return found
