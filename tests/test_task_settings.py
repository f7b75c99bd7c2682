"""Tasks with their own settings, and tasks planned on the members of an ensemble."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro

from experiments.references import reference_rows
from sonde import ICEM, Learned, ProbabilisticEnsemble, RunConfig, SondeError, TaskSetup, TrueDynamics, evaluate
from sonde._internal.randomness import round_keys
from sonde.cli._choices import with_parts
from sonde.cli._explore import ExploreArguments
from sonde.control import Controller
from sonde.evaluation import plan_task
from sonde.imagination import Mean, MemberTrajectories
from sonde.models import MemberPredictions, Posterior, Prediction
from sonde.runs import TaskSettings
from sonde.runs._codec import from_json, to_json
from sonde.runs._presets import FETCH_ENSEMBLE, FETCH_SOLVER, FETCH_TASK_SETTINGS
from sonde.runs._run import build_explorer
from sonde.worlds import Pendulum, Task
from tiny import TINY

OWN = ICEM(samples=8, elites=2, iterations=1, horizon=3, aggregate="best", use_mean=False)
CONFIG = replace(TINY, task_settings=(TaskSettings("swing-up", 4, OWN),))
ENSEMBLE = ProbabilisticEnsemble(members=3, layers=1, width=8, epochs=2)


@pytest.mark.slow
def test_each_task_is_evaluated_with_its_own_settings():
    explorer = build_explorer(CONFIG)
    learned = Learned(explorer.posterior, explorer.data)
    own, other = (evaluate(CONFIG.task_setup(task), learned, explorer.keys()) for task in ("swing-up", "keep-down"))
    assert own.rewards.shape == (1, 4) and own.policy.planner == OWN
    assert other.rewards.shape == (1, 10) and other.policy.planner == TINY.solver


@pytest.mark.slow
def test_references_are_evaluated_with_the_same_settings():
    """Random torques hardly move the pendulum: each step of swing-up costs about pi^2, and there are 4 instead of 10."""
    rows = {row["method"]: row for row in reference_rows(replace(CONFIG, solver=OWN))}
    assert -4.5 * np.pi**2 < rows["random-actions"]["return/swing-up"] < -3 * np.pi**2
    assert set(rows) == {"random-actions", "oracle"}


def test_settings_are_read_back_from_json():
    config = replace(CONFIG, model=ENSEMBLE, evaluation_imagination=MemberTrajectories())
    entries = json.loads(to_json(config))
    assert entries["task_settings"][0]["solver"]["class"] == "sonde.solvers:ICEM"
    assert entries["task_settings"][0]["solver"]["use_mean"] is False
    assert entries["evaluation_imagination"]["class"] == "sonde.imagination:MemberTrajectories"
    assert from_json(RunConfig, to_json(config), "here") == config
    assert json.loads(to_json(TINY))["task_settings"] == []
    fetch = replace(TINY, model=FETCH_ENSEMBLE, solver=FETCH_SOLVER)
    assert from_json(RunConfig, to_json(fetch), "here") == fetch
    assert [settings.task for settings in FETCH_TASK_SETTINGS] == ["pick-place", "throw", "flip"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[0].update(colour="red"), r"task_settings: unknown field\(s\) colour"),
        (lambda s: s[0].pop("horizon"), r"task_settings: missing field\(s\) horizon"),
        (lambda s: s[0].update(horizon=0), "settings of swing-up: horizon must be above 0, got 0"),
        (lambda s: s[0]["solver"].update({"class": "guess"}), "task_settings: solver: expected a class such as"),
        (lambda s: s[0].update(task="fly"), "task_settings name fly, and the tasks are keep-down, swing-up"),
        (lambda s: s.append(s[0]), "task_settings must name each task once, got swing-up, swing-up"),
        (lambda s: s.append("swing-up"), "task_settings: expected TaskSettings, got 'swing-up'"),
    ],
)
def test_settings_that_cannot_be_used_are_rejected(change, message):
    entries = json.loads(to_json(CONFIG))
    change(entries["task_settings"])
    with pytest.raises(SondeError, match=message):
        from_json(RunConfig, json.dumps(entries), "config.json")


def test_settings_of_a_preset_are_options_of_the_command_line():
    words = [
        "--task-settings.0.horizon",
        "7",
        "--task-settings.0.solver.samples",
        "9",
        "--evaluation-imagination",
        "member-trajectories",
    ]
    config, words = with_parts(replace(CONFIG, model=ENSEMBLE), words)
    chosen = tyro.cli(
        ExploreArguments, default=ExploreArguments(config), args=words, config=(tyro.conf.AvoidSubcommands,)
    ).config
    assert chosen.task_settings == (TaskSettings("swing-up", 7, replace(OWN, samples=9)),)
    assert chosen.evaluation_imagination == MemberTrajectories() and chosen.solver == TINY.solver


# Plans on members


class Divided(Posterior):
    """Two members: the action moves the state forwards, or backwards; on average it does nothing."""

    side: jax.Array

    @property
    def ensemble_size(self):
        return 2

    def predict(self, x, u):
        means = jnp.stack([x + u, x - u])
        mine = jnp.where(self.side == 0, x, jnp.where(self.side > 0, x + u, x - u))
        return Prediction(mine, jnp.abs(u), 1 + 0 * u, MemberPredictions(means, jnp.ones_like(means)))

    def member(self, index):
        return Divided(jnp.where(index % 2 == 0, 1, -1) + 0 * self.side)


class OneByOne(Pendulum):
    """Only the numbers of states and actions matter."""

    @property
    def state_names(self):
        return ("x",)


@pytest.mark.slow
def test_plan_on_members_finds_what_the_mean_does_not_show(x64):
    """The reward x'^2 does not depend on the action on the mean, where x' = x; over both members it is x^2 + u^2."""
    keys, task = round_keys([0, 1], 0), Task(lambda x, u, x_next: x_next[0] ** 2)
    solver = ICEM(horizon=1, samples=50, elites=5, iterations=6)
    learned = Learned(Divided(jnp.zeros(2, int)))
    setups = [TaskSetup(OneByOne(), task, "far", solver, 1, imagination=how) for how in (Mean(), MemberTrajectories())]
    policies = [plan_task(setup, learned, keys) for setup in setups]
    assert [policy.problem.simulated_particles for policy in policies] == [1, 2]
    on_mean, on_members = (Controller(policy, keys, 1)(np.zeros((2, 1))) for policy in policies)
    assert np.abs(on_members).min() > 0.95 > np.abs(on_mean).max()


@pytest.mark.slow
def test_config_may_plan_tasks_on_members():
    config = replace(TINY, model=ENSEMBLE, evaluation_imagination=MemberTrajectories(), evaluation_horizon=3)
    explorer = build_explorer(config)
    setup = config.task_setup("keep-down")
    problem = evaluate(setup, Learned(explorer.posterior), explorer.keys()).policy.problem
    assert isinstance(problem.imagination, MemberTrajectories) and problem.simulated_particles == 3
    oracle = evaluate(setup, Learned(TrueDynamics(config.world)), explorer.keys()).policy.problem
    assert isinstance(oracle.imagination, Mean), "the true dynamics have no members"
    with pytest.raises(SondeError, match="MemberTrajectories needs an ensemble, and GaussianProcess has no members"):
        replace(TINY, evaluation_imagination=MemberTrajectories())
