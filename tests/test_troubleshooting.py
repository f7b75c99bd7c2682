"""Messages quoted in docs/troubleshooting.md are messages of the package, with values in place of their placeholders."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = [" ".join(text.split()) for text in re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)]
LEAST_SHARE, LEAST_LETTERS = 0.45, 12
"""Share of a quoted message that must stand in the source letter by letter, the rest being values; and letters of its own that
a text needs to be a message and not a separator of others."""
GENERIC = ("", ": expected ", ", got ", "")
"""A text that is part of many messages, and names none of them."""
Text = tuple[str, ...]
"""A text of the source, cut at its placeholders."""


def cut(node: ast.AST) -> Text | None:
    """The constant pieces of a text in the source, between its placeholders; None if the node is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if not isinstance(node, ast.JoinedStr):
        return None
    found = [""]
    for part in node.values:
        if isinstance(part, ast.Constant):
            found[-1] += part.value
        else:
            found.append("")
    return tuple(found)


@functools.cache
def texts() -> tuple[Text, ...]:
    """All texts in the source but docstrings."""
    found: set[Text] = set()
    for path in (ROOT / "src").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found |= {text for node in nodes if id(node) not in alone and (text := cut(node)) is not None}
    return tuple(sorted(text for text in found if sum(map(len, text)) >= 2))


@functools.cache
def best_text(quoted: str, depth: int = 2, least: int = LEAST_LETTERS) -> tuple[int, Text]:
    """The text of the source that explains most of a quoted message.

    A placeholder may hold anything; where it holds another text of the source, such as a hint, that counts too.

    Args:
        quoted: The message, or what fills one of its placeholders.
        depth: How deep texts are looked for in placeholders.
        least: Letters of its own that the text needs.

    Returns:
        Number of letters that stand in the source, and the text.
    """
    best: tuple[int, Text] = (0, ())
    for text in texts():
        own = sum(map(len, text))
        if own < least or text == GENERIC or not all(piece in quoted for piece in text):
            continue
        match = re.fullmatch("(.*?)".join(map(re.escape, text)), quoted, re.DOTALL)
        if match is not None:
            inside = sum(best_text(filled, depth - 1, 2)[0] for filled in match.groups()) if depth else 0
            best = max(best, (own + inside, text))
    return best


def is_message(quoted: str) -> bool:
    """Whether enough of a quoted message stands in the source."""
    return best_text(quoted)[0] >= LEAST_SHARE * len(quoted.replace("...", ""))


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda text: text[:40])
def test_quoted_messages_are_messages_of_the_package(quoted):
    assert is_message(quoted), f"no text in src/ reads: {quoted}"
    words = re.findall(r"[a-z]{4,}", max(best_text(quoted)[1], key=len))
    assert not words or not is_message(quoted.replace(max(words, key=len), "xyzzy")), "the search finds anything"


def test_the_page_quotes_many_messages():
    assert len(QUOTED) >= 40
