"""The plan of the house: which room may import which, sizes of functions, docstrings of public names, and the language."""

import ast
import importlib
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sonde

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sonde"
MODULES = {
    ".".join(("sonde", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}

MODEL_SIDE = ("data", "models", "imagination", "objectives", "methods", "solvers")
LOOP = (*MODEL_SIDE, "worlds", "control", "explorer")
BELOW_RUNS = (*LOOP, "evaluation", "theory", "analysis")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "_internal": (),
    "data": (),
    "models": ("data",),
    "imagination": ("models",),
    "objectives": ("models",),
    "methods": ("models", "imagination", "objectives"),
    "solvers": ("data", "models", "imagination", "objectives", "methods"),
    "worlds": ("data",),
    "control": (*MODEL_SIDE, "worlds"),
    "explorer": (*MODEL_SIDE, "worlds", "control"),
    "evaluation": LOOP,
    "theory": ("data", "models"),
    "analysis": ("data", "models", "worlds", "control"),
    "runs": BELOW_RUNS,
    "cli": (*BELOW_RUNS, "runs"),
}
"""What each room may import, besides itself and `_internal`."""
SUB_ROOMS = ("control.deploy", "solvers.adversarial", "worlds.fetch")
SUB_ROOMS = (*SUB_ROOMS, "runs.figures", "runs.logs", "runs.report", "runs.sweep", "runs.trackers")
FORBIDDEN = ("anew", "so many", "in the mind", "nobody knows", "whoever", "namesake")
MAX_ENTRIES, MAX_LINES, MAX_PARAMETERS, MAX_INIT_LINES = 18, 50, 7, 80


def room_of(module: str) -> str:
    """The room of a module; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules of ours that a tree imports, also inside functions; not those for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "sonde")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            if node.module.split(".")[0] == "sonde":
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name if name in MODULES else node.module for name in full)
        elif is_type_checking(node):
            assert isinstance(node, ast.If)
            for other in node.orelse:
                yield from imported(other)
        else:
            yield from imported(node)


IMPORTS = {module: set(imported(ast.parse(path.read_text()))) for module, path in MODULES.items()}


# ---- walls -------------------------------------------------------------------------------------------------------------------


def test_every_room_has_a_rule():
    assert {room_of(module) for module in MODULES} - {"", "__main__"} == MAY_IMPORT.keys()


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_room_imports_only_what_it_may(room):
    allowed = {room, "_internal", *MAY_IMPORT[room]}
    wrong = [
        f"{module} imports {other}"
        for module, others in IMPORTS.items()
        for other in others
        # the package itself holds nothing but the version
        if room_of(module) == room and other != "sonde" and room_of(other) not in allowed
    ]
    assert not wrong, wrong


def test_no_import_cycle():
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above[above.index(module) :], module))
        if module not in done:
            for other in sorted(IMPORTS[module]):
                visit(other, (*above, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def test_rooms_are_few_and_their_front_doors_short():
    # folders without any module are leftovers of another version
    entries = [path.name for path in SOURCE.iterdir() if path.is_file() or any(path.glob("*.py"))]
    assert len(entries) <= MAX_ENTRIES, sorted(entries)
    lengths = {str(path): len(path.read_text().splitlines()) for path in SOURCE.rglob("__init__.py")}
    assert not {path: length for path, length in lengths.items() if length >= MAX_INIT_LINES}


def test_lazy_names_are_those_that_type_checkers_see():
    for module in ("sonde", "sonde.control", "sonde.runs"):
        (block,) = [node for node in ast.parse(MODULES[module].read_text()).body if is_type_checking(node)]
        seen = [alias.asname for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names]
        assert sorted(seen, key=str) == sorted(importlib.import_module(module).__all__)


# ---- sizes -------------------------------------------------------------------------------------------------------------------


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module}.{node.name}", node


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = node.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    names = [argument.arg for argument in every if argument is not None]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_functions_are_short_and_take_few_parameters():
    lines = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in functions()}
    assert not {name: count for name, count in lines.items() if count > MAX_LINES}
    counts = {name: len(parameters(node)) for name, node in functions()}
    assert not {name: count for name, count in counts.items() if count > MAX_PARAMETERS}


# ---- docstrings --------------------------------------------------------------------------------------------------------------


def rooms() -> Iterator[ModuleType]:
    """Rooms that users import from."""
    for room in (*MAY_IMPORT, *SUB_ROOMS):
        if room not in ("_internal", "cli"):
            yield importlib.import_module(f"sonde.{room}")


def public(room: ModuleType) -> Iterator[tuple[str, Any]]:
    """Names in `__all__`; where a room has none, the public classes and functions that it defines."""
    names = getattr(room, "__all__", None)
    if names is None:
        own = lambda value: getattr(value, "__module__", None) == room.__name__ and callable(value)
        names = [name for name, value in vars(room).items() if not name.startswith("_") and own(value)]
    for name in names:
        yield f"{room.__name__}.{name}", getattr(room, name)


def documented_values(room: ModuleType) -> set[str]:
    """Names of constants and aliases in a room that have a docstring: a string below the assignment."""
    found = set()
    for module, path in MODULES.items():
        if module == room.__name__ or module.startswith(f"{room.__name__}."):
            body = ast.parse(path.read_text()).body
            for node, below in itertools.pairwise(body):
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
                    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                    found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def undescribed(function: Any, docstring: str | None) -> list[str]:
    """Parameters that the docstring does not explain below `Args:`."""
    names = [name for name in inspect.signature(inspect.unwrap(function)).parameters if name not in ("self", "cls")]
    explained = (docstring or "").partition("Args:")[2]
    return [name for name in names if not re.search(rf"^\s*\**{name}: \S", explained, re.MULTILINE)]


def problems_of_class(name: str, kind: type) -> Iterator[str]:
    for attribute, value in vars(kind).items():
        member = getattr(value, "__func__", value)  # of class methods and static methods
        generated = attribute == "__init__" and "__dataclass_fields__" in vars(kind)
        if (attribute.startswith("_") and attribute != "__init__") or generated:
            continue
        if isinstance(value, property):
            if not value.__doc__:
                yield f"{name}.{attribute} has no docstring"
        elif inspect.isroutine(member):
            overrides = attribute != "__init__" and any(getattr(base, attribute, None) for base in kind.__mro__[1:])
            if not member.__doc__:
                yield f"{name}.{attribute} has no docstring"
            elif not overrides and (missing := undescribed(member, member.__doc__)):
                yield f"{name}.{attribute} does not describe {', '.join(missing)}"


def problems(room: ModuleType) -> Iterator[str]:
    values = documented_values(room)
    for name, value in public(room):
        if inspect.isclass(value) and value.__module__.startswith("sonde"):
            if not value.__doc__:
                yield f"{name} has no docstring"
            yield from problems_of_class(name, value)
        elif inspect.isroutine(value):
            if not value.__doc__:
                yield f"{name} has no docstring"
            elif missing := undescribed(value, value.__doc__):
                yield f"{name} does not describe {', '.join(missing)}"
        elif name.rpartition(".")[2] not in values:
            yield f"{name} has no docstring"


@pytest.mark.slow
def test_public_names_are_documented():
    found = sorted({problem for room in rooms() for problem in problems(room)})
    assert not found, "\n".join(found)


def test_public_names_of_the_package_are_those_of_its_rooms():
    of_rooms = {value for room in rooms() for name, value in public(room) if inspect.isclass(value) or inspect.isroutine(value)}
    others = [name for name in sonde.__all__ if callable(value := getattr(sonde, name)) and value not in of_rooms]
    assert others == ["SondeError"]


# ---- language ----------------------------------------------------------------------------------------------------------------


def test_forbidden_words_do_not_occur():
    pages = [*MODULES.values(), ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = []
    for page in pages:
        text = re.sub(r"\s+", " ", page.read_text().lower())
        found += [f"{page.relative_to(ROOT)}: {word}" for word in FORBIDDEN if re.search(rf"\b{word}\b", text)]
    assert not found, "\n".join(found)
