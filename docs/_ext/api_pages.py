"""The API reference: a section for each group of public names, from docstrings, with an example.

The pages in docs/api have only an introduction; their sections are those of the examples (`api_examples`).
"""

import inspect
import re
import textwrap
from typing import Annotated, Any, get_origin

import api_examples
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

ROOM_OF = {f"api/{api_examples.page(room)}": room for room in api_examples.ROOMS}
SPAN = re.compile(r"(?<![`:\w])`([^`\n]+)`(?![`_\w])")


def public_value(full: str) -> Any:
    """What a public name stands for.

    Args:
        full: The name with its room in front, such as `sonde.models.Model`.
    """
    room, _, name = full.rpartition(".")
    return getattr(api_examples.module(room.removeprefix("sonde").removeprefix(".")), name)


def private_names() -> dict[str, str]:
    """Where classes and functions are defined, such as `sonde.models._base.Model`, and where the reference has them."""
    found = {}
    for full, home in api_examples.homes().items():
        value = public_value(full)
        if inspect.isclass(value) or inspect.isroutine(value):
            found[f"{value.__module__}.{value.__qualname__}"] = home
    return found


def indented(text: str) -> str:
    """Text within a directive.

    Args:
        text: Any lines.
    """
    return textwrap.indent(text, "   ")


def description(room: str, name: str) -> str:
    """What the reference says of a public name.

    Args:
        room: Its room.
        name: The name.

    Returns:
        A directive in reStructuredText.
    """
    value = getattr(api_examples.module(room), name)
    full = f"{api_examples.module(room).__name__}.{name}"
    docstring, expression = api_examples.assignment(room, name)
    if docstring:
        options = ""
        if isinstance(value, dict):
            docstring += "\n\nNames: " + ", ".join(f"``{key}``" for key in value) + "."
        elif len(expression) < 200:
            options = f"   :value: {expression}\n"
        return f".. py:data:: {full}\n{options}\n{indented(linked(docstring, room))}\n"
    if inspect.isclass(value):
        bases = any(f"{base.__module__}.{base.__qualname__}" in PRIVATE for base in value.__bases__)
        shown = "   :show-inheritance:\n" if bases else ""
        return f".. autoclass:: {full}\n   :members:\n   :undoc-members:\n   :special-members: __call__\n{shown}"
    return f".. autofunction:: {full}\n"


def linked(text: str, room: str) -> str:
    """Turn `name` of Markdown into links to public names, and into code otherwise.

    Args:
        text: Part of a docstring.
        room: The room that it belongs to.
    """

    def replaced(match: re.Match) -> str:
        first, *rest = match[1].split(".")
        for place in (room, *api_examples.ROOMS):
            if match[1].replace(".", "").replace("_", "").isalnum() and first in NAMES.get(place, ()):
                home = HOMES[f"{api_examples.module(place).__name__}.{first}"]
                member = getattr(api_examples.module(place), first)
                if not rest or (inspect.isclass(member) and hasattr(member, rest[0])):
                    return f":py:obj:`{match[1]} <{'.'.join((home, *rest))}>`"
        return f"``{match[1]}``"

    # outside of code, a vertical bar is one: of an absolute value, say
    parts = re.split(r"(`[^`\n]*`)", text)
    plain = "".join(part if number % 2 else part.replace("|", r"\|") for number, part in enumerate(parts))
    return SPAN.sub(replaced, plain)


HOMES = api_examples.homes()
NAMES = {room: set(api_examples.public_names(room)) for room in api_examples.ROOMS}
PRIVATE = private_names()
FIELDS: dict[str, list[str]] = {}
"""Docstrings of fields before Napoleon reads them."""


def plain_types(app: Sphinx) -> None:
    """Take from the types of fields what is meant for the command line's parser.

    Args:
        app: The running Sphinx.
    """
    for described in filter(inspect.isclass, map(public_value, set(HOMES.values()))):
        annotations = vars(described).get("__annotations__", {})
        for field, annotation in annotations.items():
            if get_origin(annotation) is Annotated:
                annotations[field] = annotation.__origin__


def add_sections(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the sections of a room to its page.

    Args:
        app: The running Sphinx.
        docname: The page that is read.
        source: Its text, as the only element.
    """
    if docname not in ROOM_OF:
        return
    room = ROOM_OF[docname]
    setup, *cells = api_examples.cells(room)
    app.env.note_dependency(str(api_examples.PAGES / f"{api_examples.page(room)}.py"))
    parts = [source[0]]
    if setup.code.strip():
        parts.append(f"The examples on this page begin with:\n\n```python\n{setup.code}```\n")
    for cell in cells:
        described = "\n".join(description(room, name) for name in cell.names)
        parts.append(f"## {', '.join(cell.names)}\n\n````{{eval-rst}}\n{described}\n````\n")
        parts.append(f"**Example**\n\n```python\n{cell.code}```\n")
    where = api_examples.module(room).__name__
    others = [HOMES[f"{where}.{name}"] for name in sorted(NAMES[room]) if HOMES[f"{where}.{name}"] != f"{where}.{name}"]
    if others:
        links = ", ".join(f":py:obj:`{home}`" for home in others)
        parts.append(f"## Names from other packages\n\n```{{eval-rst}}\n``{where}`` also has {links}.\n```\n")
    source[0] = "\n".join(parts)


def keep_attribute(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep docstrings of fields from Napoleon, which takes what stands before a colon for their type.

    Args:
        app: The running Sphinx.
        what: Kind of object.
        name: Its full name.
        obj: The object.
        options: Options of the directive.
        lines: The docstring.
    """
    FIELDS.pop(name, None)
    if what in ("attribute", "property"):
        FIELDS[name] = list(lines)


def link_names(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written with single backticks: link the public names among them.

    Args:
        app: The running Sphinx.
        what: Kind of object.
        name: Its full name.
        obj: The object.
        options: Options of the directive.
        lines: The docstring, changed in place.
    """
    room = next((room for room in sorted(api_examples.ROOMS, key=len)[::-1] if name.startswith(f"sonde.{room}.")), "")
    lines[:] = FIELDS.pop(name, lines)
    lines[:] = linked("\n".join(lines), room).splitlines()


def resolve(app: Sphinx, env: BuildEnvironment, node: nodes.Element, child: nodes.Element) -> nodes.Element | None:
    """Let the types in signatures, which name the private module that defines them, link to their public names.

    Args:
        app: The running Sphinx.
        env: What Sphinx knows of all pages.
        node: The reference.
        child: Its text.

    Returns:
        A link, or None if the name is not one of ours.
    """
    target = node.get("reftarget", "")
    home = PRIVATE.get(target) or HOMES.get(target)
    if node.get("refdomain") != "py" or home is None or home == target:
        return None
    domain = env.domains.python_domain
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", home, addnodes.pending_xref("", **node.attributes), child
    )


class LinkedTables(SphinxTransform):
    """On the index of the API, the names in the first column link to their descriptions."""

    default_priority = 400

    def apply(self, **options: Any) -> None:
        """Visit the tables of the page.

        Args:
            **options: Not used.
        """
        if self.env.docname != "python-api":
            return
        for section in self.document.findall(nodes.section):
            module = section[0].astext()
            for row in section.findall(nodes.row):
                for literal in list(row[0].findall(nodes.literal)):
                    home = HOMES.get(f"{module}.{literal.astext()}")
                    if home:
                        link = addnodes.pending_xref(
                            "", refdomain="py", reftype="obj", reftarget=home, refdoc=self.env.docname, refexplicit=True
                        )
                        literal.replace_self(link)
                        link += literal


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hooks with Sphinx.

    Args:
        app: The running Sphinx.

    Returns:
        What Sphinx may do with this extension.
    """
    app.connect("builder-inited", plain_types)
    app.connect("source-read", add_sections)
    app.connect("autodoc-process-docstring", keep_attribute, priority=400)
    app.connect("autodoc-process-docstring", link_names, priority=600)  # after Napoleon
    app.connect("missing-reference", resolve)
    app.add_transform(LinkedTables)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
