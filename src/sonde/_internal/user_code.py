"""Objects in a user's own file, named as FILE.py:NAME."""

import functools
import importlib.util
import sys
import zlib
from pathlib import Path
from typing import Any

from sonde._internal.errors import SondeError


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
        public = [n for n in vars(module) if not n.startswith("_")]
        raise SondeError(f"{path} has no {attribute!r}; it has: {', '.join(public) or 'nothing'}")
    return getattr(module, attribute)


@functools.cache  # once per file: compiled programs are looked up by the identity of functions
def _module(path: str) -> Any:
    file = Path(path)
    if not file.is_file():
        raise SondeError(f"there is no file {path}; expected FILE.py:NAME with a path to an existing file")
    # files of the same name in different folders are different modules
    spec = importlib.util.spec_from_file_location(f"sonde_user_{file.stem}_{zlib.crc32(path.encode()):08x}", file)
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
