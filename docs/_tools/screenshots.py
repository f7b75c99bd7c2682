"""Pictures of every page of a built site, to be looked at: `python docs/_tools/screenshots.py build/docs build/screenshots`.

Each page is drawn from top to bottom by a headless Chromium, at the width of a desk and of a phone. Contact sheets show several
pages at once. Needs `chromium` and `chromedriver` from the system's packages, which speak WebDriver with each other over HTTP.
"""

import argparse
import base64
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

WIDTHS = (1280, 390)
TALLEST = 16_000
"""Most pixels in height; longer pages are cut off."""
SHEET = (1800, 1400)
"""Size of a contact sheet."""
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


class Browser:
    """A session of WebDriver."""

    def __init__(self, address: str, profile: str) -> None:
        """Open the browser.

        Args:
            address: Where chromedriver listens.
            profile: An empty folder.
        """
        chrome = {"args": [*OPTIONS, "--disable-sync", "--hide-scrollbars", f"--user-data-dir={profile}"]}
        self._address = f"{address}/session"
        found = self.post("", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": chrome}}})
        self._address += f"/{found['sessionId']}"

    def post(self, path: str, content: dict[str, Any]) -> Any:
        """Send a command.

        Args:
            path: Which.
            content: Its parameters.

        Returns:
            What the driver answers.
        """
        body = json.dumps(content).encode()
        request = urllib.request.Request(self._address + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def chrome(self, command: str, **parameters: Any) -> Any:
        """Send a command of Chromium's own.

        Args:
            command: Its name in the DevTools protocol.
            **parameters: Its parameters.

        Returns:
            What it answers.
        """
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, page: Path, width: int, dark: bool) -> bytes:
        """Draw a page from top to bottom.

        Args:
            page: The HTML file.
            width: Width of the window.
            dark: Whether the reader prefers dark pages.

        Returns:
            A PNG file.
        """
        self.chrome("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        size = {"width": width, "deviceScaleFactor": 1, "mobile": width < 600}
        self.chrome("Emulation.setDeviceMetricsOverride", height=900, **size)
        self.post("/url", {"url": page.as_uri()})
        content = self.chrome("Page.getLayoutMetrics")["cssContentSize"]
        if content["width"] > width:
            print(f"{page}: {content['width']} pixels wide in a window of {width}", file=sys.stderr)
        # as tall as the page, so that pictures that are loaded when they are seen are loaded
        self.chrome("Emulation.setDeviceMetricsOverride", height=min(int(content["height"]), TALLEST), **size)
        time.sleep(0.3)
        return base64.b64decode(self.chrome("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """Close the browser."""
        with urllib.request.urlopen(urllib.request.Request(self._address, method="DELETE"), timeout=60):
            pass


@contextlib.contextmanager
def browser() -> Generator[Browser, None, None]:
    """A browser, which is closed in the end."""
    if not (driver := shutil.which("chromedriver")):
        sys.exit("No browser found: expected chromium and chromedriver; install them with the system's packages")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            opened = opened_when_ready(f"http://127.0.0.1:{port}", profile)
            yield opened
            opened.close()
    finally:
        process.terminate()
        process.wait()


def opened_when_ready(address: str, profile: str) -> Browser:
    """Open a browser once its driver listens.

    Args:
        address: Where it will listen.
        profile: An empty folder.
    """
    until = time.monotonic() + 30
    while True:
        try:
            return Browser(address, profile)
        except urllib.error.HTTPError as error:
            sys.exit(f"The browser did not start: {error.read().decode()[:500]}")
        except urllib.error.URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def contact_sheets(pictures: list[Path], out: Path, columns: int) -> None:
    """Put pictures side by side, each cut into columns of a sheet.

    Args:
        pictures: The pictures.
        out: Folder of the sheets.
        columns: Number of columns.
    """
    width, height = SHEET[0] // columns, SHEET[1] - 20
    strips: list[tuple[str, Image.Image]] = []
    for path in pictures:
        with Image.open(path) as opened:
            tall = max(1, round(opened.height * width / opened.width))
            small = opened.convert("RGB").resize((width, tall), Image.Resampling.LANCZOS)
        strips += [(path.stem, small.crop((0, top, width, min(tall, top + height)))) for top in range(0, tall, height)]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for number in range(0, len(strips), columns):
        sheet = Image.new("RGB", SHEET, "#888")
        for column, (name, strip) in enumerate(strips[number : number + columns]):
            ImageDraw.Draw(sheet).text((column * width + 4, 4), name, fill="yellow")
            sheet.paste(strip, (column * width, 20))
        sheet.save(out / f"{number // columns:03}.png")


def main() -> None:
    """Draw the pages that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("pages", nargs="*", help="pages such as results/figure-1; all by default")
    parser.add_argument("--dark", action="store_true", help="as a reader who prefers dark pages sees them")
    arguments = parser.parse_args()
    site = arguments.site.resolve()
    every = sorted(path.relative_to(site).with_suffix("") for path in site.rglob("*.html") if "_static" not in path.parts)
    pages = [Path(name) for name in arguments.pages] or [page for page in every if page.name not in ("genindex", "search")]
    with browser() as opened:
        for width in WIDTHS:
            kind = f"{width}-dark" if arguments.dark else str(width)
            (arguments.out / kind).mkdir(parents=True, exist_ok=True)
            pictures = [arguments.out / kind / f"{str(page).replace('/', '-')}.png" for page in pages]
            for page, picture in zip(pages, pictures, strict=True):
                picture.write_bytes(opened.picture(site / f"{page}.html", width, arguments.dark))
            contact_sheets(pictures, arguments.out / f"sheets-{kind}", 3 if width > 1000 else 6)
            print(f"{len(pages)} pages at {width} pixels: {arguments.out / kind}")


if __name__ == "__main__":
    main()
