"""Atomic writes: a file is written under a temporary name, synced to disk, then renamed, so it is never seen half written."""

import hashlib
import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Create or replace a file.

    Args:
        path: Path of the file.
        content: All of its bytes.
    """
    temporary = path.with_name(f".{path.name}.part")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that new and renamed files in it survive a crash.

    Args:
        folder: Path of the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(content: bytes) -> str:
    """SHA-256 in hexadecimal.

    Args:
        content: The bytes.
    """
    return hashlib.sha256(content).hexdigest()
