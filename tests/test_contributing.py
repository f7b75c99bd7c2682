"""The worked example of CONTRIBUTING.md, run as it stands there."""

import importlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sonde import ICEM
from sonde.runs import explore
from sonde.runs._store import RunStore
from sonde.runs.figures._curves import draw_curves

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The module of the example, in a file of its own as a user would have it."""
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    (tmp_path / "worked_example.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module("worked_example")


@pytest.mark.slow
def test_the_worked_example_runs_and_is_drawn(example, tmp_path):
    solver = ICEM(horizon=4, samples=8, elites=2, iterations=2)
    small = replace(example.config, rounds=2, horizon=12, evaluation_horizon=5, evaluation_tasks=("swing-up",), solver=solver)
    small = replace(small, model=replace(small.model, epochs=2))
    explorer = explore(small, tmp_path / "run")
    assert explorer.params.networks.weights[0].shape == (1, 3, 4, 32)
    store = RunStore.open(tmp_path / "run")
    assert store.config == small
    draw_curves([store], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000
    rows = store.load_metrics()
    assert [row["round"] for row in rows] == [1, 2]
    assert np.isfinite([row["max_epistemic"] for row in rows]).all()
