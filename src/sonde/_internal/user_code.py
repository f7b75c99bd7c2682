"""Objects in a user's own file, named as FILE.py:NAME."""

import functools
import importlib.machinery
import importlib.util
import os
import sys
import types
import zlib
from pathlib import Path
from typing import Any

from sonde._internal.errors import SondeError, did_you_mean
from sonde._internal.reading import read_limited

MAX_BYTES = 16 * 2**20
"""Largest file of code that is loaded."""
FMU = ".fmu"
"""How the names of plants of other tools end: archives with native code."""
MAX_FMU_BYTES = 2**30
"""Largest of these that is loaded."""


def is_in_file(name: str) -> bool:
    """Whether a name has the form FILE.py:NAME.

    Args:
        name: The name.
    """
    return ".py:" in name


def with_absolute_path(name: str) -> str:
    """Make the path in FILE.py:NAME absolute, so that the name is valid in every folder.

    Args:
        name: A name; one of another form is returned as it is.
    """
    if not is_in_file(name):
        return name
    path, attribute = name.rsplit(":", 1)
    return f"{Path(path).expanduser().absolute()}:{attribute}"


def load_from_file(name: str) -> Any:
    """Load an object from a user's file.

    Args:
        name: FILE.py:NAME.

    Returns:
        The object. A file is imported once per process.
    """
    path, attribute = name.rsplit(":", 1)
    module = _module(str(Path(path).expanduser().absolute()))
    if not hasattr(module, attribute):
        public = [n for n, value in vars(module).items() if not (n.startswith("_") or isinstance(value, types.ModuleType))]
        meant = did_you_mean(attribute, public)
        raise SondeError(f"{path} has no {attribute!r};{meant} it has: {', '.join(public) or 'nothing'}")
    return getattr(module, attribute)


def loaded_module(path: Path) -> types.ModuleType | None:
    """The module of a file that is loaded already under any name, such as the program itself.

    Args:
        path: Absolute path of the file.
    """
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path:
            return module
    return None


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Runs the source that was read and checked, never a compiled file beside it, which may hold other code."""

    def __init__(self, name: str, path: str, source: bytes):
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self._source, self.path)


@functools.cache  # once per file: compiled programs are looked up by the identity of functions
def _module(path: str) -> Any:
    file = Path(path)
    try:
        source = read_limited(file, MAX_BYTES)
    except OSError:
        meant = did_you_mean(file.name, [other.name for other in file.parent.glob("*.py")])
        raise SondeError(f"there is no file {path};{meant} expected FILE.py:NAME with a path to an existing file") from None
    # files of the same name in different folders are different modules
    name = f"sonde_user_{file.stem}_{zlib.crc32(os.fsencode(path)):08x}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_SourceLoader(name, path, source))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up here
    sys.path.insert(0, str(file.parent))  # it may import its neighbours, as a script may
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise SondeError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    return module


def task_label(name: str) -> str:
    """Short name of a task for tables and figures.

    Args:
        name: Name of the task, or FILE.py:NAME.
    """
    return name.rsplit(":", 1)[1] if is_in_file(name) else name
