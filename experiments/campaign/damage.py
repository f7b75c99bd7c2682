"""Ways to damage a file or a folder, all made from a random number generator."""

import json
import os
import shutil
import struct
from pathlib import Path
from random import Random

HUGE = ("1e999", "-1e999", "1" + "0" * 400, "9" * 25, "1e308", "NaN", "-Infinity", "2147483648", "-1", "0", "1.5e-320", "true")
"""Texts in the place of a number."""
ODD_NAMES = ("²³", "-1", "0000", "99999", "0003 ", "0003.bak", "٣", "0003\n", "nul", "a" * 200)
"""Stems of files that are not a round."""


def flip_bits(content: bytes, rng: Random) -> bytes:
    """Flip one to eight bits.

    Args:
        content: The bytes.
        rng: Where and how many.
    """
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8)) if content else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(content: bytes, rng: Random) -> bytes:
    """Lose the end, the beginning, or a piece."""
    at, end = sorted((rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)))
    return rng.choice((content[:at], content[end:], content[:at] + content[end:], b""))


def add(content: bytes, rng: Random) -> bytes:
    """Add bytes at a random place."""
    at = rng.randrange(len(content) + 1)
    piece = rng.choice((rng.randbytes(rng.randrange(1, 40)), b"\x00" * 16, b"\n", b"\xff\xfe", b"{}", b"\xe2\x80\xa8"))
    return content[:at] + piece + content[at:]


def double(content: bytes, rng: Random) -> bytes:
    """Repeat everything or a piece."""
    at, end = sorted((rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)))
    return rng.choice((content + content, content[:end] + content[at:end] + content[end:]))


def change_digit(content: bytes, rng: Random) -> bytes:
    """Change one digit of a text."""
    places = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return flip_bits(content, rng)
    at = rng.choice(places)
    digit = rng.choice([byte for byte in b"0123456789" if byte != content[at]])
    return content[:at] + bytes([digit]) + content[at + 1 :]


def change_number(content: bytes, rng: Random) -> bytes:
    """Put something huge, tiny or odd in the place of a number."""
    places = [at for at, byte in enumerate(content) if 48 <= byte <= 57 and not content[at - 1 : at].isalnum()]
    if not places:
        return add(content, rng)
    at = end = rng.choice(places)
    while end < len(content) and content[end : end + 1] in b"0123456789.e+-":
        end += 1
    return content[:at] + rng.choice(HUGE).encode() + content[max(end, at + 1) :]


def change_lines(content: bytes, rng: Random) -> bytes:
    """Remove, swap or repeat lines."""
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return cut(content, rng)
    one, other = rng.sample(range(len(lines)), 2)
    what = rng.randrange(4)
    if what == 0:
        del lines[one]
    elif what == 1:
        lines[one], lines[other] = lines[other], lines[one]
    elif what == 2:
        lines.insert(other, lines[one])
    else:
        rng.shuffle(lines)
    return b"".join(lines)


def nest(content: bytes, rng: Random) -> bytes:
    """Nest deeply, or say something else altogether."""
    depth = rng.choice((10, 60, 1000, 100_000))
    deep = b"[" * depth + b"]" * depth
    return rng.choice((deep, b'{"a":' * depth + b"1" + b"}" * depth, content.replace(b"null", deep, 1), b"null", b"[]", b"{}"))


def no_text(content: bytes, rng: Random) -> bytes:
    """Bytes that are not UTF-8, or another encoding."""
    other = content.decode("latin-1").encode(rng.choice(("utf-16", "utf-32", "utf-7")))
    return rng.choice((b"\xff" + content, content + b"\x80", other, rng.randbytes(200), b"\x00" * max(1, len(content))))


def change_header(content: bytes, rng: Random) -> bytes:
    """Change the length or the description of arrays in a safetensors file."""
    if len(content) < 10:
        return add(content, rng)
    size = struct.unpack("<Q", content[:8])[0]
    try:
        header = json.loads(content[8 : 8 + size])
    except ValueError:
        return flip_bits(content, rng)
    name = rng.choice(sorted(header))
    field, value = rng.choice(
        (
            ("shape", [2**60]),
            ("shape", [0]),
            ("shape", [-1, 2]),
            ("dtype", rng.choice(("F32", "I64", "BOOL", "Q8", ""))),
            ("data_offsets", [0, 2**62]),
            ("data_offsets", [8, 0]),
        )
    )
    if isinstance(header[name], dict):
        header[name][field] = value
    text = json.dumps(header).encode()
    length = rng.choice((len(text), len(text), 2**63 - 1, 2**32, 0))
    return struct.pack("<Q", length) + text + content[8 + size :]


OF_CONTENT = (
    *(flip_bits, flip_bits, cut, add, double, change_digit, change_digit, change_number),
    *(change_lines, change_lines, nest, no_text, change_header),
)
"""Damage to the content of a file; what happens more often in life is listed twice."""


def damage_content(folder: Path, rng: Random) -> str:
    """Change the content of one file.

    Args:
        folder: The run.
        rng: Which file, and how.

    Returns:
        What was done, in words.
    """
    path = rng.choice(files_of(folder))
    how = rng.choice(OF_CONTENT)
    path.write_bytes(how(path.read_bytes(), rng))
    return f"{how.__name__} {path.relative_to(folder)}"


def damage_tree(folder: Path, sentinel: Path, rng: Random) -> str:
    """Delete, swap, link or add files.

    Args:
        folder: The run.
        sentinel: Files of somebody else, where links lead.
        rng: Which file, and how.

    Returns:
        What was done, in words.
    """
    every = files_of(folder)
    path, other = rng.sample(every, 2)
    how = rng.choice(TREE)
    if how == "delete":
        path.unlink()
    elif how == "swap":
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
    elif how == "copy over":
        shutil.copy(other, path)
    elif how == "folder":
        path.unlink()
        path.mkdir()
        (path / "inside.txt").write_text("mine")
    elif how == "link":
        path.unlink()
        path.symlink_to(rng.choice((sentinel / "thesis.txt", sentinel / "work" / path.name, sentinel, path, "/dev/zero")))
    elif how == "link folder":
        name = rng.choice(("data", "checkpoints", "figures"))
        remove(folder / name)
        (folder / name).symlink_to(sentinel / "work")
        return f"link folder {name}"
    elif how == "link beside":
        beside = rng.choice((folder / ".lock", *(one.with_name(f".{one.name}.part") for one in every)))
        beside.unlink(missing_ok=True)
        beside.symlink_to(sentinel / "thesis.txt")
        return f"link {beside.relative_to(folder)}"
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif how == "delete folder":
        name = rng.choice(("data", "checkpoints", "figures"))
        remove(folder / name)
        return f"delete folder {name}"
    else:  # add
        beside = rng.choice(every)
        added = beside.with_name(rng.choice(ODD_NAMES) + beside.suffix)
        added.write_bytes(rng.choice((beside.read_bytes(), b"", b"{}", b"mine")))
        return f"add {added.relative_to(folder)!s}"
    return f"{how} {path.relative_to(folder)} ({other.name})"


TREE = (
    "delete",
    "delete",
    "swap",
    "copy over",
    "folder",
    "link",
    "link",
    "link folder",
    "link beside",
    "pipe",
    "delete folder",
    "add",
)
"""Damage to files as a whole."""


def remove(path: Path) -> None:
    """Delete a folder with all that is in it, a link, or nothing.

    Args:
        path: The folder.
    """
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def files_of(folder: Path) -> list[Path]:
    """All files of a run but its lock, sorted.

    Args:
        folder: The run.
    """
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink() and path.name != ".lock"]
