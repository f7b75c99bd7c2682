"""Files that appear whole or not at all, and that are never written through links.

A file is written under a temporary name, synced to disk, then renamed. The temporary file is always a new one, so what a link
points to is never touched: the rename replaces the link itself. Errors of the operating system name the file.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from sonde._internal.errors import SondeError


def write_atomically(path: Path, content: bytes) -> None:
    """Create or replace a file.

    Args:
        path: Path of the file.
        content: All of its bytes.
    """
    temporary = path.with_name(f".{path.name}.part")
    with errors_name(path):
        try:
            with open_new(temporary) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:  # also an interrupt: what is left would take space on a disk that may be full
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def check_folder(path: Path) -> None:
    """Reject a file whose folder does not exist, before work that would be lost.

    Args:
        path: Path of the file.
    """
    if not path.absolute().parent.is_dir():
        raise SondeError(f"{path} cannot be written: the folder {path.absolute().parent} does not exist; make it first")


def open_new(path: Path) -> BinaryIO:
    """Open a new file for writing; what has its name, such as a link or what a killed process left, is removed first.

    Args:
        path: Path of the file.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def open_to_append(path: Path) -> int:
    """Open a file that grows in place, and make it if there is none; a link to a file elsewhere is rejected.

    Args:
        path: Path of the file.

    Returns:
        Its descriptor.
    """
    # without O_NONBLOCK a named pipe would be waited for
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    problem = f"{path} is not a plain file but a link or a device, and Sonde does not write through it; remove it"
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise SondeError(problem) from None
        raise
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(descriptor)
        raise SondeError(problem)
    return descriptor


def append_line(path: Path, line: str) -> None:
    """Add a line to a file.

    Args:
        path: Path of the file; it is made if there is none, and rejected if it is a link.
        line: The line, without its end.
    """
    with errors_name(path), os.fdopen(open_to_append(path), "ab") as file:
        file.write(f"{line}\n".encode())


@contextlib.contextmanager
def errors_name(path: Path) -> Generator[None]:
    """Give errors of the operating system the name of a file, which those of writing and syncing lack.

    Args:
        path: Path of the file that the errors are about.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that new and renamed files in it survive a crash.

    Args:
        folder: Path of the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with errors_name(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(content: bytes) -> str:
    """SHA-256 in hexadecimal.

    Args:
        content: The bytes.
    """
    return hashlib.sha256(content).hexdigest()
