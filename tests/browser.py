"""A headless Chromium, spoken to in the WebDriver protocol (JSON over HTTP) through chromedriver."""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
MISSING = "no browser is installed: this test needs chromium and chromedriver (Debian: chromium chromium-driver)"
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
OPTIONS = (*OPTIONS, "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars")


class Browser:
    """One page in a browser."""

    def __init__(self, address: str, profile: str):
        self._address = address
        chrome = {"binary": CHROMIUM, "args": [*OPTIONS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def _ask(self, method: str, path: str, body: dict | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def show(self, page: Path, width: int, dark: bool = False, height: int = 900, scripts: bool = True) -> None:
        """Open a file at a width, on a light or a dark screen."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=media)
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._ask("POST", f"{self._session}/url", {"url": page.absolute().as_uri()})

    def command(self, name: str, **params: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._ask("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": params})

    def run(self, script: str, *args: Any) -> Any:
        """Run JavaScript, which returns a value."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(args)})

    def errors(self) -> list[str]:
        """What the console has said since the last call, warnings too."""
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def picture(self, out: Path) -> None:
        """A picture of the whole page."""
        answer = self.command("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        out.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """End the browser."""
        self._ask("DELETE", self._session)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser, which ends with the block."""
    assert DRIVER is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile() as log:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert driver.stdout is not None
            line = next(line for line in driver.stdout if "on port" in line and "success" in line)
            port = int(line.rpartition("port ")[2].strip(" .\n"))
            page = Browser(f"http://127.0.0.1:{port}", profile)
            try:
                yield page
            finally:
                page.close()
        finally:
            if driver.stdout is not None:
                driver.stdout.close()
            driver.terminate()
            driver.wait(timeout=20)
            time.sleep(0.2)  # its children write to the profile until they end
