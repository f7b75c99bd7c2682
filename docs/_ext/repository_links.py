"""Links from a page to a file outside the documentation lead to that file in the repository.

Pages are written so that they work on GitHub, with relative links such as `../CONTRIBUTING.md`. A page that includes a file
from elsewhere (the changelog) has that file's links, which are relative to the root of the repository.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class LinksToTheRepository(SphinxTransform):
    """Replace references to files that are not part of the site."""

    default_priority = 5

    def apply(self, **options: Any) -> None:
        """Visit the links of one page.

        Args:
            **options: not used.
        """
        for kind in (addnodes.pending_xref, addnodes.download_reference):
            for node in list(self.document.findall(kind)):
                if node.get("reftype") == "myst":
                    self.replace(node)

    def replace(self, node: nodes.Element) -> None:
        """Let a link lead to GitHub if its target lies in the repository but outside of the documentation.

        Args:
            node: the link.
        """
        docs = Path(self.app.srcdir)
        target, _, anchor = node["reftarget"].partition("#")
        anchor = anchor or node.get("reftargetid") or ""
        if node.get("refdomain") == "doc":  # a page by its name, or a path without its suffix
            if target in self.env.found_docs:
                return
            target += ".md"
        found = self.found(target)
        if found is None:
            return
        if found.suffix == ".md" and found.is_relative_to(docs):  # an included text links to a page of the site
            page = str(found.relative_to(docs).with_suffix(""))
            node.attributes.update(refdomain="doc", reftarget=page, reftargetid=anchor or None)
            return
        kind = "tree" if found.is_dir() else "blob"
        address = f"{self.config.repository}/{kind}/main/{found.relative_to(docs.parent)}" + (f"#{anchor}" if anchor else "")
        node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=False))

    def found(self, target: str) -> Path | None:
        """The file or folder that a link means.

        Args:
            target: a path, relative to the page or to the root of the repository.

        Returns:
            Its full path, or None if the link means something else.
        """
        docs = Path(self.app.srcdir)
        for folder in ((docs / self.env.docname).parent, docs.parent):
            path = (folder / target).resolve()
            if target and path.exists() and path.is_relative_to(docs.parent):
                return path
        return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform with Sphinx.

    Args:
        app: the running Sphinx.

    Returns:
        What Sphinx may do with this extension.
    """
    app.add_config_value("repository", "", "env", types=[str])
    app.add_transform(LinksToTheRepository)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
