"""A headless Chromium for tests: opens a page, runs JavaScript in it, and takes pictures of it.

It is spoken to through a pipe, in the DevTools protocol; so it needs no driver and no network.
"""

import base64
import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome",
          "google-chrome-stable", "chrome")  # fmt: skip
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--remote-debugging-pipe")  # fmt: skip
# The descriptors that the browser reads from and writes to.
_IN, _OUT = 3, 4


def find_browser() -> str | None:
    """The path of a Chromium on this computer; None if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One window; a context manager that ends the browser.

    Attributes:
        said: what the console said since the last page was opened.
    """

    def __init__(self, program: str, profile: Path) -> None:
        self.said: list[str] = []
        to_read, self._write_to = os.pipe()
        self._read_from, to_write = os.pipe()
        # The shell gives the browser its two descriptors, whatever their numbers are here.
        command = f'exec "$@" {_IN}<&{to_read} {_OUT}>&{to_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", command, "bash", program, *_OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._pending = b""
        self._numbers = count(1)
        self._session: str | None = None
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write_to)
        os.close(self._read_from)

    def open(self, url: str, width: int = 1200, height: int = 900, *, dark: bool = False) -> None:
        """Open a page in a window of this size, and wait until it is loaded."""
        self.said = []
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        # From an empty page on, a change of the link's end loads the page anew.
        for address in ("about:blank", url):
            self._send("Page.navigate", url=address)
            self.run("new Promise((done) => document.readyState === 'complete' ? done()"
                     " : addEventListener('load', () => done()))")  # fmt: skip

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for.

        Raises:
            RuntimeError: it threw.
        """
        answer = self._send("Runtime.evaluate", expression=script, awaitPromise=True,
                            returnByValue=True)  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        self.run(f"new Promise((done) => {{ const look = () => ({condition}) ? done()"
                 f" : setTimeout(look, 20); look(); }})")  # fmt: skip

    def click(self, selector: str) -> None:
        """Click on the first element that a CSS selector finds."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def picture(self, path: Path) -> None:
        """Write the whole page as a PNG file."""
        size = self._send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self._send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._listen(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            block = os.read(self._read_from, 1 << 16)
            if not block:
                raise RuntimeError("the browser ended")
            self._pending += block
        first, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def _listen(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.said.append(json.dumps(parameters["args"]))
            case "Runtime.exceptionThrown":
                self.said.append(json.dumps(parameters["exceptionDetails"]))
            case "Log.entryAdded":
                self.said.append(parameters["entry"]["text"])
