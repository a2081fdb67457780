"""Headless Chromium for tests of what a browser shows, and where it is; nothing but the standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """Headless Chromium behind its own debugging pipe."""

    def __init__(self, profile: Path) -> None:
        if CHROMIUM is None:
            pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
        (theirs, self._out), (self._in, their_out) = os.pipe(), os.pipe()
        os.set_inheritable(theirs, True)
        os.set_inheritable(their_out, True)
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        line = f'exec "$@" 3<&{theirs} 4>&{their_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", str(CHROMIUM), *options, "about:blank"], pass_fds=(theirs, their_out),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        os.close(their_out)
        self._number, self._rest, self.session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._out, json.dumps(request | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            self._rest += os.read(self._in, 1 << 20)
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def show(self, file: Path, width: int) -> None:
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=file.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._message()

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
