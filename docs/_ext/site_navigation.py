"""The side bar: `navigation` and `pages_below` of conf.py become tables of contents.

They stand in conf.py and not in the pages, so that the pages read well on GitHub. A name may be a pattern, and a page that does
not exist is left out.
"""

from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.matching import patfilter


def contents(names: list[str], found: set[str], caption: str = "") -> str:
    """A hidden table of contents in MyST.

    Args:
        names: pages, patterns of pages, and titles with an address.
        found: every page of the site.
        caption: heading in the side bar.

    Returns:
        Markdown; empty if no page exists.
    """
    entries: list[str] = []
    for name in names:
        matches = [name] if "<" in name else [f"/{page}" for page in sorted(patfilter(found, name))]
        entries += [match for match in matches if match not in entries]
    if not entries:
        return ""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *entries, "```", ""])


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the tables of contents to the front page and to pages that have others below them.

    Args:
        app: the running Sphinx.
        docname: the page that is read.
        source: its text, as the only element.
    """
    pages = set(app.env.found_docs)
    if docname == app.config.root_doc:
        source[0] += "".join(contents(names, pages, caption) for caption, names in app.config.navigation.items())
    elif docname in app.config.pages_below:
        source[0] += contents(app.config.pages_below[docname], pages - {docname})


def always_read(app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages with tables of contents are read in every build that adds or removes a page.

    Args:
        app: the running Sphinx.
        env: what Sphinx knows of all pages.
        added: new pages.
        changed: changed pages.
        removed: removed pages.

    Returns:
        The pages to be read again.
    """
    return (
        [name for name in (app.config.root_doc, *app.config.pages_below) if name in env.found_docs] if added or removed else []
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the settings and hooks with Sphinx.

    Args:
        app: the running Sphinx.

    Returns:
        What Sphinx may do with this extension.
    """
    app.add_config_value("navigation", {}, "env", types=[dict])
    app.add_config_value("pages_below", {}, "env", types=[dict])
    app.connect("source-read", add_contents)
    app.connect("env-get-outdated", always_read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
