"""The API reference: every public name has an example that uses it, and the examples run."""

import ast
import importlib
import pkgutil

import api_examples
import matplotlib.pyplot as plt
import pytest

import sonde
import test_docs

ROOMS = api_examples.ROOMS
FAST = ("data", "imagination", "methods", "")
"""Rooms whose examples take about a second."""


def used_names(code: str) -> set[str]:
    """Names that code uses: not those that it only imports or assigns."""
    nodes = list(ast.walk(ast.parse(code)))
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return loaded | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_the_reference_has_the_rooms_of_the_index():
    assert set(test_docs.ROOMS) | {"control.deploy"} == set(ROOMS)


def test_no_public_package_is_left_out():
    described = {id(getattr(api_examples.module(room), name)) for room in ROOMS for name in api_examples.public_names(room)}
    packages = [found.name.removeprefix("sonde.") for found in pkgutil.walk_packages(sonde.__path__, "sonde.")]
    public = [name for name in packages if not any(part.startswith("_") for part in name.split(".")) and name != "cli"]
    assert set(ROOMS) - {""} <= set(public)
    for room in public:
        missing = [
            name for name in api_examples.public_names(room) if id(getattr(api_examples.module(room), name)) not in described
        ]
        assert not missing, f"sonde.{room}: {missing}"


def test_every_public_name_has_one_example():
    full = lambda room, name: f"{api_examples.module(room).__name__}.{name}"
    shown = [full(room, name) for room in ROOMS for cell in api_examples.cells(room)[1:] for name in cell.names]
    assert sorted(shown) == sorted(set(api_examples.homes().values()))


@pytest.mark.parametrize("room", ROOMS)
def test_an_example_uses_the_names_that_it_shows(room):
    setup, *cells = api_examples.cells(room)
    assert setup.names == (api_examples.SETUP,)
    for cell in cells:
        missing = set(cell.names) - used_names(cell.code)
        assert not missing, f"{room}, line {cell.line}: {missing}"


@pytest.mark.parametrize("room", [pytest.param(room, marks=[] if room in FAST else [pytest.mark.slow]) for room in ROOMS])
def test_examples_run(room, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = api_examples.PAGES / f"{api_examples.page(room)}.py"
    setup, *cells = api_examples.cells(room)
    begun: dict = {"__name__": "example"}
    for cell in (setup, *cells):
        names = begun if cell is setup else dict(begun)
        # the lines of the file in tracebacks
        exec(compile("\n" * (cell.line - 1) + cell.code, str(file), "exec"), names)
        plt.close("all")
        for name in cell.names if cell is not setup else ():
            assert name not in names or names[name] is getattr(api_examples.module(room), name), f"{name} is another one's"
    capsys.readouterr()


def test_the_index_links_every_page_of_the_reference():
    index = (api_examples.PAGES.parent / "python-api.md").read_text()
    for room in ROOMS:
        assert f"(api/{api_examples.page(room)}.md)" in index
    assert {path.stem for path in api_examples.PAGES.glob("*.md")} == {api_examples.page(room) for room in ROOMS}


def test_names_that_have_moved_or_gone_are_noticed(monkeypatch):
    room = importlib.import_module("sonde.data")
    monkeypatch.setattr(room, "Added", type("Added", (), {"__module__": "sonde.data"}), raising=False)
    assert "sonde.data.Added" in api_examples.homes()
