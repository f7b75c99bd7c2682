"""Check the links of a built site: `python docs/_tools/check_links.py build/docs`.

Every link, picture, script and style sheet within the site must exist, and so must the headings that links name. Links to
other sites are followed by `make linkcheck`.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the places in it that links may name."""

    def __init__(self, text: str) -> None:
        """Read a page.

        Args:
            text: its HTML.
        """
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the links and the places of one element.

        Args:
            tag: its name.
            attrs: its attributes.
        """
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.places.add(value or "")


def broken_links(site: Path) -> list[str]:
    """Links of a site that lead nowhere.

    Args:
        site: folder of the built pages.

    Returns:
        One line for each.
    """
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            place = unquote(parts.fragment)
            if not target.exists():
                found.append(f"{path.relative_to(site)}: {link} does not exist")
            elif place and target in pages and place not in pages[target].places:
                found.append(f"{path.relative_to(site)}: {link} names no place in that page")
    return found


def main(arguments: list[str]) -> int:
    """Print the broken links of a site.

    Args:
        arguments: the folder of its pages.

    Returns:
        Exit status: 1 if there are any, or no pages.
    """
    site = Path(arguments[0]).resolve()
    count = len(list(site.rglob("*.html")))
    found = broken_links(site)
    print("\n".join([*found, f"{count} pages, {len(found)} broken links"]))
    return int(bool(found) or not count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
