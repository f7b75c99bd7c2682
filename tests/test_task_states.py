"""Transitions of good policies, on which the error of models is measured where tasks happen."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on import the suite looks for a screen
    pytest.importorskip("mujoco")
    pytest.importorskip("dm_control.suite")

from sonde.data import Data
from sonde.evaluation._metrics import model_metrics
from sonde.models import Posterior, Prediction
from sonde.worlds import Cheetah, Pendulum, Reacher, Swimmer
from sonde.worlds._mujoco import load_mujoco
from sonde.worlds._suite import TASK_STATES


@pytest.mark.parametrize("world", [Cheetah(), Swimmer(), Reacher()], ids=lambda world: world.domain)
def test_recorded_transitions_of_good_policies_are_those_of_the_world(world):
    """Small files of finite single-precision numbers with actions in [-1, 1], read-only and the same at every call."""
    recorded = world.task_transitions()
    assert recorded is world.task_transitions()
    states, actions, next_states = recorded
    assert states.shape == next_states.shape == (len(states), world.state_dim) and len(states) >= 500
    assert actions.shape == (len(states), world.action_dim) and np.abs(actions).max() <= 1
    assert all(np.isfinite(array).all() and not array.flags.writeable for array in recorded)
    assert (TASK_STATES / f"{world.domain}.safetensors").stat().st_size < 300_000
    assert replace(world, gravity_scale=0.5).task_transitions() is None, "other physics have other next states"
    assert replace(world, action_repeat=world.action_repeat + 1).task_transitions() is None
    assert type("Own", (type(world),), {})().task_transitions() is None, "a subclass may have dynamics of its own"


def test_recorded_cheetah_transitions_follow_from_their_states():
    """The whole of MuJoCo's state but the contact solver's warm start is observed, so stepping from it gives the next state."""
    world = Cheetah()
    states, actions, next_states = (array[::50] for array in world.task_transitions())
    copies = world.open(len(states))
    copies.reset(range(len(states)))
    for data, x in zip(copies.data, states, strict=True):
        data.qpos[:], data.qvel[:] = x[:9], x[9:]
        load_mujoco().mj_forward(copies.model, data)
    np.testing.assert_allclose(copies.step(actions).next_states, next_states, rtol=2e-3, atol=2e-3)
    copies.close()


def test_recorded_policies_run_fast_and_reach_targets():
    """What their rewards say of the recorded steps: mean forward speeds, and the share of steps near the target."""
    _, _, next_states = Cheetah().task_transitions()
    speeds = next_states[:, 9]
    assert speeds[: len(speeds) // 2].mean() > 2 and speeds[len(speeds) // 2 :].mean() < -2, "forward, then backward"
    _, _, next_states = Reacher().task_transitions()
    assert np.mean(np.linalg.norm(next_states[:, -2:], axis=1) <= 0.05) > 0.5
    noise = Cheetah().reachable().next_states[:, 9]
    assert np.abs(noise).max() < np.abs(speeds).max(), "policies go further than noise"


class Still(Posterior):
    """Predicts that nothing changes; the shift stands for a seed's own error."""

    shift: jax.Array

    def predict(self, x, u):
        return Prediction(x + self.shift, jnp.ones_like(x), jnp.ones_like(x))


@pytest.mark.slow
@pytest.mark.parametrize("world", [Reacher(), Pendulum()], ids=["reacher", "pendulum"])
def test_error_where_tasks_happen_is_that_of_the_recorded_transitions(x64, world):
    """In numpy; a world without recorded transitions has no such metric, and the others do not change."""
    empty = Data.empty(4, world.state_dim, world.action_dim)
    data = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), empty)
    metrics = model_metrics(Still(jnp.array([0.0, 1.0])), data, world)
    rmse = lambda points, shift: np.sqrt(np.mean(np.sum((points.next_states - points.states - shift) ** 2, axis=-1)))
    np.testing.assert_allclose(metrics["model_rmse"], [rmse(world.reachable(), shift) for shift in (0, 1)], rtol=1e-9)
    recorded = world.task_transitions()
    assert (recorded is None) == ("model_rmse_tasks" not in metrics) == isinstance(world, Pendulum)
    assert ("max_epistemic_box" in metrics) == isinstance(world, Pendulum)
    if recorded is not None:
        np.testing.assert_allclose(metrics["model_rmse_tasks"], [rmse(recorded, shift) for shift in (0, 1)], rtol=1e-9)
