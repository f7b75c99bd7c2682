"""Several runs in one process, fitted by one program: the same results as alone, whatever ends or fails meanwhile."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

from command_line import call
from sonde._internal.errors import SondeError
from sonde.cli import _sweep as command
from sonde.control import rollout
from sonde.explorer import Explorer, Told, fit_together
from sonde.methods import METHODS
from sonde.models import GaussianProcess, ProbabilisticEnsemble
from sonde.runs import Callback, RunConfig, explore, explore_together
from sonde.runs import _together as together
from sonde.runs._store import RunStore
from sonde.runs.sweep import Batch, LocalBackend, Sweep, _local, run_sweep
from sonde.runs.sweep._worker import explore_in_lockstep, to_text
from sonde.solvers import ICEM
from sonde.worlds import Pendulum
from sweep_parts import Interrupt, RoundsInFile
from tiny import TINY

NETWORKS = ProbabilisticEnsemble(members=2, width=8, layers=1, epochs=20, patience=0, noise="fixed")
SMALL = replace(TINY, model=NETWORKS, horizon=6, rounds=3, seeds=2, evaluate_every=0)


def methods(*names: str, start: RunConfig = SMALL) -> list[RunConfig]:
    return [start.with_method(name) for name in names]


def measured(folder: Path) -> list[dict]:
    rows = RunStore.open(folder).load_metrics()
    return [{key: value for key, value in row.items() if not key.startswith("seconds/")} for row in rows]


def learned(folder: Path, round_number: int) -> dict[str, np.ndarray]:
    return safetensors.numpy.load((folder / "checkpoints" / f"{round_number:04d}.safetensors").read_bytes())


def assert_alike(folder: Path, other: Path, rtol: float = 0.0) -> None:
    """Same rounds and metrics; same measurements and params, bit by bit unless a tolerance is given."""
    ours, theirs = measured(folder), measured(other)
    assert [row.keys() for row in ours] == [row.keys() for row in theirs] != []
    for row, expected in zip(ours, theirs, strict=True):
        assert row == pytest.approx(expected, rel=rtol or 1e-12, abs=rtol, nan_ok=True)
    newest = RunStore.open(folder).checkpoints()[-1]
    assert newest == RunStore.open(other).checkpoints()[-1]
    for name, array in learned(folder, newest).items():
        np.testing.assert_allclose(array, learned(other, newest)[name], rtol=rtol, atol=rtol, err_msg=name)


# One fit of several explorers


@pytest.mark.parametrize(
    "model", [NETWORKS, replace(NETWORKS, patience=5), replace(TINY.model, steps=3), GaussianProcess()], ids=repr
)
def test_explorers_fitted_together_learn_what_each_learns_alone(model):
    world, solver = Pendulum(), ICEM(samples=8, elites=2, iterations=1, horizon=3)
    make = lambda name, seeds: Explorer(METHODS[name], model, solver, world.spec, capacity=24, seeds=seeds)
    seeds = {"opax": (0, 1), "random": (0, 1, 2), "mean-ae": (5,)}
    alone, joined = ([make(name, numbers) for name, numbers in seeds.items()] for _ in range(2))
    for _ in range(2):
        trajectories = [rollout(world, explorer.ask(), 12) for explorer in alone]
        for explorer, trajectory in zip(alone, trajectories, strict=True):
            explorer.tell(trajectory)
        told = [Told.of(explorer, trajectory) for explorer, trajectory in zip(joined, trajectories, strict=True)]
        for each, params in zip(told, fit_together(told), strict=True):
            each.learn(params)
    for explorer, other in zip(joined, alone, strict=True):
        assert explorer.round == other.round == 2
        # single precision sums in another order in a larger batch; algebra of Gaussian processes is double
        tolerance = 1e-4 if isinstance(model, ProbabilisticEnsemble) else 1e-6
        for ours, theirs in zip(jax.tree.leaves(explorer.params), jax.tree.leaves(other.params), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_explorers_that_are_at_different_rounds_or_of_different_sizes_are_not_fitted_together():
    world, solver = Pendulum(), ICEM(samples=8, elites=2, iterations=1, horizon=3)
    one, two = (Explorer(METHODS["random"], NETWORKS, solver, world.spec, capacity=24) for _ in range(2))
    larger = Explorer(METHODS["random"], NETWORKS, solver, world.spec, capacity=25)
    trajectory = rollout(world, one.ask(), 6)
    two.tell(trajectory)
    for other in (two, larger):
        with pytest.raises(SondeError, match="same model, holdout, capacity and number of measurements"):
            fit_together([Told.of(one, trajectory), Told.of(other, trajectory)])
