"""A picture of the first part of a report: `python docs/_tools/report_picture.py runs/demo/report.html docs/report-demo.webp`.

The pictures in docs/report.md are those of `sonde demo` (up to the section `errors`), and of `sonde report runs/opax
runs/random` after `sonde explore pendulum-gp-lite --seeds 5` with the methods opax and random (`--before curves`). Needs
Chromium, as `screenshots.py` does.
"""

import argparse
import io
from pathlib import Path

from PIL import Image
from screenshots import browser

WIDTH, SCALE = 1280, 0.75
"""Width of the window, and of the picture as a share of it."""


def main() -> None:
    """Draw the page that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path, help="a .webp or .png")
    parser.add_argument("--before", default="errors", help="the section above which the picture ends")
    arguments = parser.parse_args()
    with browser() as opened:
        content = opened.picture(arguments.page.resolve(), WIDTH, dark=False)
        script = f"return document.getElementById({arguments.before!r}).getBoundingClientRect().top + scrollY"
        end = opened.post("/execute/sync", {"script": script, "args": []})
    with Image.open(io.BytesIO(content)) as whole:
        size = round(SCALE * WIDTH), round(SCALE * end)
        part = whole.convert("RGB").crop((0, 0, WIDTH, int(end)))
        part.resize(size, Image.Resampling.LANCZOS).save(arguments.out, quality=80)
    print(arguments.out)


if __name__ == "__main__":
    main()
