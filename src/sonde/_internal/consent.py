"""Whether code that a run's folder names may run.

A config may name code outside of Sonde: classes and functions in files (FILE.py:NAME) and in other packages (MODULE:NAME), and
plants of other tools (FILE.fmu), which hold native code. A
folder that somebody else made may name any. So before anything of a document is built, `check_code` looks at all names in it,
and each must be allowed in one of these ways:

- The caller allows it (`allow_code`): --allow-code, or a config that was passed as an object and names the same code.
- It is a class of a module that is loaded already, so that nothing runs.
- The user allowed the same file with the same content before. `remember` notes that in the user's state folder, one small
  file per path and SHA-256.
"""

import contextlib
import importlib.machinery
import json
import os
import re
import sys
from collections.abc import Generator, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, write_atomically
from sonde._internal.reading import read_limited
from sonde._internal.user_code import FMU, MAX_BYTES, MAX_FMU_BYTES, is_in_file, loaded_module

CLASS = "class"
"""Key under which an object names its class."""
_OURS = re.compile(r"sonde(\.[a-z]\w*){1,2}:\w+")
_MODULE = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
_allowed: ContextVar[frozenset[str] | None] = ContextVar("allowed", default=frozenset())  # None: everything


@contextlib.contextmanager
def allow_code(names: Iterable[str] | None = None) -> Generator[None]:
    """Allow code that documents name, and remember what they named.

    Args:
        names: The names to allow; by default all.
    """
    token = _allowed.set(None if names is None else frozenset(names))
    try:
        yield
    finally:
        _allowed.reset(token)


def code_named(document: Any) -> dict[str, bool]:
    """Find the names of code in a JSON document.

    Args:
        document: The document.

    Returns:
        FILE.py:NAME, FILE.fmu, and MODULE:NAME that are not Sonde's own, each with whether it is the class of an object.
    """
    found, left = dict[str, bool](), [("", document)]
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += [(key, entry) for entry in value]
        elif isinstance(value, str) and _is_code(key, value):
            found[value] = key == CLASS and found.get(value, True)
    return found


def _is_code(key: str, text: str) -> bool:
    if key == CLASS:
        return ":" in text and not _OURS.fullmatch(text)
    if text.endswith(FMU):
        return True
    # Gymnasium imports the module in MODULE:ENV, and its GymV21Environment and GymV26Environment whatever their options say
    return is_in_file(text) or (key == "env" and (":" in text or text.startswith("GymV")))


def check_code(document: Any, source: str) -> None:
    """Reject a document that names code which may not run.

    Args:
        document: The JSON document, nothing of which was built yet.
        source: Where it comes from, for the error message.
    """
    names, allowed = code_named(document), _allowed.get()
    asked = []
    for name, is_class in names.items():
        if allowed is None or name in allowed:
            remember(name)
        elif not (is_class and _is_loaded(name)) and (file := _file_of(name)) is not None and not _is_remembered(file):
            asked.append(f"{name} ({_described(file)})")
    if asked:
        raise SondeError(
            f"{source} names code that would run: {', '.join(asked)}; it was never allowed on this computer, or has changed "
            "since then. Read it, and add --allow-code (in Python: allow_code=True) if you trust it"
        )


def remember(name: str) -> None:
    """Note that the file of some code, as it is now, is allowed; without effect where the note cannot be written.

    Args:
        name: FILE.py:NAME, FILE.fmu or MODULE:NAME.
    """
    with contextlib.suppress(OSError, SondeError, RuntimeError):  # the user is asked again the next time
        file = _file_of(name)
        if file is not None and not (note := _note(file)).exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            facts = {"file": str(file), "sha256": _digest(file)}
            write_atomically(note, (json.dumps(facts, indent=2) + "\n").encode())


def _is_remembered(file: Path) -> bool:
    try:
        return _note(file).is_file()
    except (OSError, SondeError, RuntimeError):
        return False


def _note(file: Path) -> Path:
    """Where it is noted that a file with its present content is allowed."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    # the path counts too: beside a copy elsewhere may lie other modules, which it would import
    return state / "sonde" / "allowed-code" / f"{checksum(f'{file} {_digest(file)}'.encode())}.json"


def _digest(file: Path) -> str:
    return checksum(read_limited(file, MAX_FMU_BYTES if file.suffix == FMU else MAX_BYTES))


def _described(file: Path) -> str:
    try:
        return f"{file}, SHA-256 {_digest(file)}"
    except (OSError, SondeError):
        return f"{file}, which cannot be read"


def _is_loaded(name: str) -> bool:
    place = name.rpartition(":")[0]
    return (loaded_module(Path(place)) is not None) if is_in_file(name) else place in sys.modules


def _file_of(name: str) -> Path | None:
    """The file that would run; None if there is none, so that nothing can run."""
    place = name if name.endswith(FMU) else name.rpartition(":")[0]
    if name.endswith(FMU) or is_in_file(name):
        file = Path(place).expanduser().absolute()
        return file.resolve() if file.exists() else None
    return _file_of_module(place)


def _file_of_module(module: str) -> Path | None:
    """The file of a module; where only a package above it exists, that of the package. Nothing is imported."""
    if not _MODULE.fullmatch(module):
        return Path(module)  # nothing that could be remembered
    file, where, name = None, None, ""
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        specs = (finder.find_spec(name, where) for finder in sys.meta_path)
        spec: importlib.machinery.ModuleSpec | None = next((spec for spec in specs if spec is not None), None)
        if spec is None:
            break
        file, where = Path(spec.origin or name), spec.submodule_search_locations
        if where is None:
            break
    return file
