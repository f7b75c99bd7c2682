"""The worked example of CONTRIBUTING.md, run as it stands there."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sonde import ICEM, METHODS
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.runs.figures._curves import draw_curves

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()


@pytest.fixture
def example(monkeypatch):
    """What the example defines; the table is as before afterwards."""
    monkeypatch.setitem(METHODS, "largest", None)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    names = {"__name__": "example"}
    exec(code, names)
    return names


def test_the_worked_example_runs_end_to_end(example, tmp_path):
    solver = ICEM(horizon=4, samples=8, elites=2, iterations=2)
    small = replace(example["config"], rounds=2, horizon=12, evaluation_horizon=5, solver=solver)
    small = replace(small, model=replace(small.model, epochs=2))
    store = RunStore.create(tmp_path / "run", small)
    explorer = run(store, lambda *_: None)
    assert explorer.params.networks.weights[0].shape == (1, 3, 4, 32)
    draw_curves([store], tmp_path / "curves.png")
    rows = RunStore.open(tmp_path / "run").load_metrics()
    assert [row["round"] for row in rows] == [1, 2]
    assert np.isfinite([row["max_epistemic"] for row in rows]).all()
