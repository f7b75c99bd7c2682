"""Read files that somebody else may have written: regular files of a limited size, and JSON of a limited depth."""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from sonde._internal.errors import SondeError

MAX_JSON_BYTES = 4 * 2**20
"""Largest JSON file that is read; a config has a few kilobytes."""
MAX_ARRAY_BYTES = 8 * 2**30
"""Largest file of arrays that is read; a sparse file of any size takes no space on a disk."""
MAX_DEPTH = 50
"""Deepest nesting of a JSON document."""
MAX_DIGITS = 18
"""Most digits of a whole number, so that it fits into 64 bits and can be computed with."""
# U+DC80 to U+DCFF stay: in paths, Python writes bytes that are not UTF-8 so
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udc7f\udd00-\udfff]")


def read_limited(path: Path, limit: int) -> bytes:
    """Read a regular file; pipes and devices, which may never end, are rejected.

    Args:
        path: Path of the file.
        limit: Most bytes that it may have.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would block
    except ValueError as error:  # a NUL in the path
        raise SondeError(f"{str(path)!r} is no path ({error})") from None
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise SondeError(f"{path} is not a regular file")
        if facts.st_size > limit:
            raise SondeError(f"{path} is too large: expected at most {limit:,} bytes, got {facts.st_size:,}")
        return file.read(facts.st_size)  # with the limit, Python would first ask for as much memory


def parse_json(text: str | bytes, source: str) -> Any:
    """Read a JSON document.

    Args:
        text: The document; bytes are UTF-8.
        source: Where it comes from, for error messages.

    Returns:
        Its content: whole numbers have at most `MAX_DIGITS` digits, and texts no control characters but tabs and line ends.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError:
        raise SondeError(f"{source} is not text; restore it from a copy") from None
    try:
        document = json.loads(decoded, parse_int=_whole_number)
    except SondeError as error:
        raise SondeError(f"{source}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise SondeError(f"{source} is not valid JSON ({error}); restore it from a copy") from None
    _check(document, source)
    return document


def check_text(text: str, source: str) -> None:
    """Reject a text that a terminal would not print as it is, or that no path may contain.

    Args:
        text: The text.
        source: Where it comes from, for error messages.
    """
    if found := _CONTROL.search(text):
        raise SondeError(f"{source}: {text[:80]!r} has the control character {found[0]!r}; remove it")


def _whole_number(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise SondeError(f"the number {text[:20]}... has {len(text)} digits; expected at most {MAX_DIGITS}")
    return int(text)


def _check(document: Any, source: str) -> None:
    """Reject deep nesting and control characters."""
    level, depth = [document], 0
    while level:
        if depth > MAX_DEPTH:
            raise SondeError(f"{source} is nested too deeply: expected at most {MAX_DEPTH} levels")
        for value in level:
            for text in (value,) if isinstance(value, str) else value if isinstance(value, dict) else ():
                check_text(text, source)
        parts = (value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list))
        level, depth = [part for some in parts for part in some], depth + 1
