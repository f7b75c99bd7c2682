"""Public names of the package, and the examples of the API reference.

The examples of a room are cells of the script beside its page, `docs/api/models.py` beside `docs/api/models.md`. A cell begins
with `# %%` and the names that it is an example of. It runs after the first cell, `# %% setup`, and after no other. They are run
by `tests/test_api_examples.py`.
"""

import ast
import importlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOMS = ("data", "models", "imagination", "objectives", "methods", "solvers", "control", "control.deploy", "worlds", "explorer")
ROOMS = (*ROOMS, "solvers.adversarial", "evaluation", "theory", "analysis")
ROOMS = (*ROOMS, "runs", "runs.figures", "runs.logs", "runs.report", "runs.sweep", "runs.trackers", "")
"""Packages and modules that users import from; of a name that several have, the first one is its home."""
SETUP = "setup"
PAGES = Path(__file__).parent.parent / "api"


@dataclass(frozen=True)
class Cell:
    """One example."""

    names: tuple[str, ...]
    """The public names that it shows."""
    code: str
    """The code."""
    line: int
    """Line of the script where the code begins."""


def module(room: str) -> ModuleType:
    """Import a room.

    Args:
        room: Its name below `sonde`, or empty for the package itself.
    """
    return importlib.import_module(f"sonde.{room}".rstrip("."))


def public_names(room: str) -> list[str]:
    """Names in `__all__`; where a room has none, the classes, functions and tables that it defines.

    Args:
        room: Its name below `sonde`, or empty for the package itself.
    """
    where = module(room)
    names = getattr(where, "__all__", None)
    if names is not None:
        return list(names)
    defined = lambda name, value: (
        isinstance(value, dict) if name.isupper() else getattr(value, "__module__", "") == where.__name__
    )
    return [name for name, value in vars(where).items() if not name.startswith("_") and defined(name, value)]


def homes() -> dict[str, str]:
    """Every public name with its room in front, such as `sonde.Task`, and where the reference describes it."""
    found: dict[str, str] = {}
    first: dict[tuple[str, int], str] = {}
    for room in ROOMS:
        for name in public_names(room):
            full = f"{module(room).__name__}.{name}"
            found[full] = first.setdefault((name, id(getattr(module(room), name))), full)
    return found


def page(room: str) -> str:
    """Name of a room's page and of its script in docs/api, without suffix.

    Args:
        room: Its name below `sonde`, or empty for the package itself.
    """
    return room.replace(".", "_") or "sonde"


def cells(room: str) -> list[Cell]:
    """The examples of a room, the setup first.

    Args:
        room: Its name below `sonde`, or empty for the package itself.
    """
    lines = (PAGES / f"{page(room)}.py").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("# %%")]
    found = []
    for start, end in itertools.pairwise([*starts, len(lines)]):
        names = tuple(re.split(r",\s*", lines[start].removeprefix("# %%").strip()))
        blank = next((number for number in range(start + 1, end) if lines[number].strip()), end)
        found.append(Cell(names, "\n".join(lines[blank:end]).rstrip() + "\n", blank + 1))
    return found


def assignment(room: str, name: str) -> tuple[str, str]:
    """Docstring and value of a constant or of a type alias, as they stand in the source.

    Args:
        room: A room.
        name: The constant.

    Returns:
        The string below its assignment, and the assigned expression; both empty if there is none.
    """
    where = module(room)
    file = Path(str(where.__file__))
    for path in [file, *sorted(file.parent.glob("*.py"))] if file.name == "__init__.py" else [file]:
        for node, below in itertools.pairwise(ast.parse(path.read_text()).body):
            value = getattr(below, "value", None)
            if name in targets(node) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value, ast.unparse(getattr(node, "value", ast.Constant(None)))
    return "", ""


def targets(node: ast.stmt) -> Iterator[str]:
    """Names that a statement assigns to.

    Args:
        node: The statement.
    """
    every: list[Any] = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return (target.id for target in every if isinstance(target, ast.Name))
