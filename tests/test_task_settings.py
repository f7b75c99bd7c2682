"""Tasks that are evaluated in their own way, and on an ensemble's members one by one."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro

from sonde import ICEM, Prediction, Pendulum, Posterior, ProbabilisticEnsemble, SondeError, TaskSettings, TrueDynamics
from sonde._internal.randomness import round_keys
from sonde.cli._main import ExploreArguments
from sonde.control._controller import Controller
from sonde.data import Data
from sonde.evaluation._evaluate import task_policy
from sonde.imagination import Mean, MemberTrajectories
from sonde.models._base import MemberPredictions
from sonde.runs._config import from_json, to_json
from sonde.runs._presets import FETCH_ENSEMBLE, FETCH_SOLVER, FETCH_TASK_SETTINGS
from sonde.runs._run import build_explorer, evaluate_task
from sonde.runs.sweep._worker import reference_rows
from sonde.worlds._task import Task
from tiny import TINY

OWN = ICEM(samples=8, elites=2, iterations=1, horizon=3, aggregate="best", use_mean=False)
CONFIG = replace(TINY, task_settings=(TaskSettings("swing-up", 4, OWN),))
ENSEMBLE = ProbabilisticEnsemble(members=3, layers=1, width=8, epochs=2)


def test_each_task_is_evaluated_in_its_own_way():
    explorer = build_explorer(CONFIG)
    own, other = (evaluate_task(CONFIG, explorer, task, explorer.posterior) for task in ("swing-up", "keep-down"))
    assert own.rewards.shape == (1, 4) and own.policy.planner == OWN
    assert other.rewards.shape == (1, 10) and other.policy.planner == TINY.solver


def test_references_are_judged_in_the_same_way():
    """Random torques hardly move the pendulum: each step of swing-up costs about pi^2, and there are 4 instead of 10."""
    rows = {row["method"]: row for row in reference_rows("here", replace(CONFIG, solver=OWN))}
    assert -4.5 * np.pi**2 < rows["random-actions"]["return/swing-up"] < -3 * np.pi**2
    assert set(rows) == {"random-actions", "oracle"}


def test_settings_go_to_json_and_back():
    config = replace(CONFIG, model=ENSEMBLE, evaluation_imagination="members")
    entries = json.loads(to_json(config))
    assert entries["task_settings"][0]["solver"]["kind"] == "icem"
    assert entries["task_settings"][0]["solver"]["use_mean"] is False
    assert from_json(to_json(config), "here") == config
    assert not {"task_settings", "evaluation_imagination"} & json.loads(to_json(TINY)).keys()
    fetch = replace(TINY, model=FETCH_ENSEMBLE, solver=FETCH_SOLVER)
    assert from_json(to_json(fetch), "here") == fetch
    assert [settings.task for settings in FETCH_TASK_SETTINGS] == ["pick-place", "throw", "flip"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[0].update(colour="red"), r"task_settings: unknown field\(s\) colour"),
        (lambda s: s[0].pop("horizon"), r"task_settings: missing field\(s\) horizon"),
        (lambda s: s[0].update(horizon=0), "settings of swing-up: horizon must be above 0, got 0"),
        (lambda s: s[0]["solver"].update(kind="guess"), "unknown kind of"),
        (lambda s: s[0].update(task="fly"), "task_settings name fly, and the tasks are keep-down, swing-up"),
        (lambda s: s.append(s[0]), "task_settings must name each task once, got swing-up, swing-up"),
        (lambda s: s.append("swing-up"), "expected an object with the fields of TaskSettings, got 'swing-up'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change, message):
    entries = json.loads(to_json(CONFIG))
    change(entries["task_settings"])
    with pytest.raises(SondeError, match=message):
        from_json(json.dumps(entries), "config.json")


def test_a_preset_that_has_settings_offers_them_as_options():
    words = ["--task-settings.0.horizon", "7", "--task-settings.0.solver.samples", "9", "--evaluation-imagination", "members"]
    default = ExploreArguments(replace(CONFIG, model=ENSEMBLE))
    chosen = tyro.cli(ExploreArguments, default=default, args=words).config
    assert chosen.task_settings == (TaskSettings("swing-up", 7, replace(OWN, samples=9)),)
    assert chosen.evaluation_imagination == "members" and chosen.solver == TINY.solver


# ---- on members --------------------------------------------------------------------------------------------------------------


class Divided(Posterior):
    """Two members: the action moves the state forwards, or backwards; on average it does nothing."""

    side: jax.Array

    def predict(self, x, u):
        means = jnp.stack([x + u, x - u])
        mine = jnp.where(self.side == 0, x, jnp.where(self.side > 0, x + u, x - u))
        return Prediction(mine, jnp.abs(u), 1 + 0 * u, MemberPredictions(means, jnp.ones_like(means)))

    def member(self, index):
        return Divided(jnp.where(index % 2 == 0, 1, -1) + 0 * self.side)


class OneByOne(Pendulum):
    """Only its number of states and actions matters."""

    @property
    def state_names(self):
        return ("x",)


def test_what_is_good_on_average_over_members_may_be_nothing_to_their_mean(x64):
    """Worth x'^2: on the mean x' = x, whatever is done; over both members it is x^2 + u^2."""
    keys, task = round_keys([0, 1], 0), Task(lambda x, u, x_next: x_next[0] ** 2)
    solver = ICEM(horizon=1, samples=50, elites=5, iterations=6)
    posterior, data = Divided(jnp.zeros(2, int)), Data.empty(1, 1, 1)
    policies = [task_policy(OneByOne(), posterior, task, solver, data, keys, members) for members in (0, 2)]
    assert [policy.problem.simulated_particles for policy in policies] == [1, 2]
    on_mean, on_members = (Controller(policy, keys, 1)(np.zeros((2, 1))) for policy in policies)
    assert np.abs(on_members).min() > 0.95 > np.abs(on_mean).max()


def test_a_config_may_ask_for_members():
    config = replace(TINY, model=ENSEMBLE, evaluation_imagination="members", evaluation_horizon=3)
    explorer = build_explorer(config)
    problem = evaluate_task(config, explorer, "keep-down", explorer.posterior).policy.problem
    assert isinstance(problem.imagination, MemberTrajectories) and problem.simulated_particles == 3
    oracle = evaluate_task(config, explorer, "keep-down", TrueDynamics(config.world)).policy.problem
    assert isinstance(oracle.imagination, Mean), "the truth has no members"
    with pytest.raises(SondeError, match="tasks cannot be planned on members, since GaussianProcess has none"):
        replace(TINY, evaluation_imagination="members")
