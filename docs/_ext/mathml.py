"""Formulas as MathML, which every browser shows without a script and without a network."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def inline(writer: Any, node: nodes.Element) -> None:
    """Write a formula within a line.

    Args:
        writer: Sphinx's writer of HTML.
        node: the formula.
    """
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.Element) -> None:
    """Write a formula that stands alone.

    Args:
        writer: Sphinx's writer of HTML.
        node: the formula.
    """
    writer.body.append(f'<div class="math-block">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer with Sphinx.

    Args:
        app: the running Sphinx.

    Returns:
        What Sphinx may do with this extension.
    """
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
