"""The notebooks: MyST files without outputs whose code is Python and whose names exist; `make docs` executes them."""

import ast
import builtins
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.md"))
EXPECTED = {"pendulum", "uncertainty", "choosing-a-method", "choosing-a-model", "your-own-system", "new-method"}
CELL = re.compile(r"^```\{code-cell\} ipython3\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
OTHERS = {"matplotlib", "numpy", "scipy", "jax", "IPython", "PIL"}
"""Packages besides Sonde and the standard library that a notebook may need: those of a plain install, and the kernel's own."""


def header(text: str) -> dict:
    opening, fields, _ = text.split("---\n", 2)
    assert opening == ""
    return yaml.safe_load(fields)


def cells(notebook: Path) -> list[str]:
    return [found["code"] for found in CELL.finditer(notebook.read_text())]


def tree(notebook: Path) -> ast.Module:
    return ast.parse("\n".join(cells(notebook)), filename=notebook.name)


def defined(module: ast.Module) -> set[str]:
    """All names that a program gives a value, in whatever scope."""
    names = set(dir(builtins))
    for node in ast.walk(module):
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_the_six_notebooks_exist_and_no_other_format_is_kept():
    assert {notebook.stem for notebook in NOTEBOOKS} >= EXPECTED
    assert not [path for path in FOLDER.iterdir() if path.suffix != ".md"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
class TestNotebook:
    def test_it_has_the_header_of_a_myst_notebook(self, notebook):
        fields = header(notebook.read_text())
        assert fields["jupytext"]["text_representation"] == {"extension": ".md", "format_name": "myst"}
        assert fields["kernelspec"]["name"] == "python3"

    def test_it_has_cells_and_nothing_else_in_fences_but_commands(self, notebook):
        """An output that was committed by hand would be a fence of another kind."""
        text = notebook.read_text()
        assert len(cells(notebook)) >= 5
        rest = CELL.sub("", text)
        assert set(re.findall(r"^```(.*)$", rest, re.MULTILINE)) <= {"", "console"}
        assert "data:image" not in text

    def test_its_code_is_python_of_a_readable_width(self, notebook):
        for code in cells(notebook):
            compile(code, notebook.name, "exec")
            assert all(len(line) <= 128 for line in code.splitlines())

    def test_its_imports_exist(self, notebook):
        for node in ast.walk(tree(notebook)):
            if isinstance(node, ast.Import):
                modules = [(alias.name, ()) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [(str(node.module), [alias.name for alias in node.names])]
            else:
                continue
            for module, names in modules:
                package = module.partition(".")[0]
                assert package in OTHERS | {"sonde"} | sys.stdlib_module_names, f"{module} may not be installed"
                assert "._" not in module, f"{module} is private"
                if package == "sonde":
                    loaded = importlib.import_module(module)
                    assert not [name for name in names if not hasattr(loaded, name)]

    def test_its_names_are_defined_and_its_imports_used(self, notebook):
        module = tree(notebook)
        read = {node.id for node in ast.walk(module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        assert read <= defined(module)
        imported = {
            alias.asname or alias.name.split(".")[0]
            for node in module.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert imported <= read

    def test_it_says_what_is_learned_first_and_where_to_go_last(self, notebook):
        prose = CELL.sub("", notebook.read_text()).split("---\n", 2)[2]
        title, first, *_ = prose.strip().split("\n\n")
        assert title.startswith("# ") and first.startswith("You will ")
        last = re.findall(r"^## (.*)$", prose, re.MULTILINE)[-1]
        assert last == "Where to go next"
        assert "](" in prose.partition(last)[2]


def test_undefined_names_would_be_found():
    module = ast.parse("import numpy as np\nx = np.ones(3)\nprint(y)")
    read = {node.id for node in ast.walk(module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert read - defined(module) == {"y"}
