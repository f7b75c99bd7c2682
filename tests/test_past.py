"""States with a past: late actions and hidden entries, from measurements to plans, runs and real systems."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import (
    ICEM,
    METHODS,
    SAC,
    Explorer,
    GaussianProcess,
    Learned,
    OwnSystem,
    RunConfig,
    SondeError,
    SystemSpec,
    TaskSetup,
    Trajectory,
    load_policy,
    rollout,
)
from sonde._internal.past import Memory, Past
from sonde.evaluation import plan_robust_task, plan_task, run_task, score_on_model
from sonde.evaluation._whiteness import incomplete_warning, whiteness_metrics
from sonde.evaluation._windows import reachable_with_past
from sonde.imagination import Mean, Optimistic, Pessimistic
from sonde.models import KnownPhysics, Posterior, Prediction, ProbabilisticEnsemble
from sonde.objectives import InformationGain
from sonde.runs import Callback, Experiment, explore
from sonde.runs._round_metrics import per_seed
from sonde.solvers import ControlProblem
from sonde.worlds import Delayed, GymWorld, Observed, Pendulum

TINY = ICEM(samples=8, elites=2, iterations=1, horizon=4)
SMALL_GP = GaussianProcess(steps=5, fit_points=40, rank=16)


def measured(seeds=2, steps=12, dx=2, du=1, ends=()):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(seeds, steps + 1, dx))
    ended = np.zeros((seeds, steps), bool)
    for seed, step in ends:
        ended[seed, step] = True
    return Trajectory(states[:, :-1], rng.uniform(-1, 1, (seeds, steps, du)), states[:, 1:], truncated=ended)


def by_hand(past, trajectory, seed, t):
    """The past of one step, gathered entry by entry."""
    x, u, ended = trajectory.states[seed], trajectory.actions[seed], trajectory.truncated[seed]
    first = max([0, *(np.flatnonzero(ended[:t]) + 1)])
    changes = [x[t - ago + 1] - x[t - ago] if t - ago >= first else 0 * x[0] for ago in range(1, past.history)]
    actions = [u[t - ago] if t - ago >= first else 0 * u[0] for ago in range(1, past.delay + past.history)]
    return np.concatenate([*changes, *actions]) if changes or actions else np.zeros(0)


# ---- windows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("past", [Past(2, 1), Past(0, 2), Past(1, 3), Past(0, 1)])
def test_inputs_are_the_past_of_each_episode_and_the_action(past):
    trajectory = measured(ends=[(0, 4), (1, 7)])
    found = trajectory.with_past(past)
    for seed in range(2):
        for t in range(12):
            expected = np.append(by_hand(past, trajectory, seed, t), trajectory.actions[seed, t])
            np.testing.assert_array_equal(found.actions[seed, t], expected)
    names = SystemSpec(("a", "b"), ("u",), past)
    assert len(names.input_names) == names.input_dim == found.actions.shape[-1]


@pytest.mark.parametrize("past", [Past(2, 1), Past(1, 3)])
def test_memory_recalls_what_trajectories_hold(past):
    trajectory = measured(ends=[(0, 4), (1, 7)])
    memory, expected = Memory(past, 2, 2, 1), trajectory.with_past(past)
    for t in range(12):
        x, u = trajectory.states[:, t], trajectory.actions[:, t]
        if t:
            memory.reset(trajectory.truncated[:, t - 1])
        before = memory.recall(x)
        np.testing.assert_array_equal(memory.recall(x), before)  # asking again, as after an error, changes nothing
        np.testing.assert_array_equal(before, expected.actions[:, t, :-1])
        memory.acted(before, x, u)


def test_past_moves_alike_in_jax_and_numpy():
    past, rng = Past(1, 2), np.random.default_rng(0)
    before, x, u, x_next = (rng.normal(size=(3, size)) for size in (past.size(2, 1), 2, 1, 2))
    with jax.enable_x64(True):
        found = past.moved(*map(jnp.asarray, (before, x, u, x_next)))
    np.testing.assert_array_equal(np.asarray(found), past.moved(before, x, u, x_next))
    np.testing.assert_array_equal(past.moved(before, x, u, x_next), np.hstack([x_next - x, u, before[:, 2:3]]))


@pytest.mark.parametrize("wrong", [{"delay": -1}, {"delay": True}, {"history": 0}])
def test_impossible_pasts_are_rejected(wrong):
    with pytest.raises(SondeError, match="state"):
        Past(**wrong)


# ---- plans -------------------------------------------------------------------------------------------------------------------


class Linear(Posterior):
    """x' = x + what acts now, with an epistemic std of 1 and an aleatoric std of 0.5."""

    weights: jax.Array

    def predict(self, x, u):
        mean = x + self.weights @ u
        return Prediction(mean, jnp.ones_like(mean), 0.5 * jnp.ones_like(mean))


def test_plans_follow_the_true_delayed_system_and_count_new_outputs_only():
    past = Past(2, 1)
    late = Linear(jnp.array([[0.0, 1.0, 0.0], [0.0, 0.5, 0.0]]))  # inputs: u[-1], u[-2], u
    problem = ControlProblem(late, Mean(), InformationGain(), 2, 1, past=past)
    assert (problem.full_dim, problem.control_dim) == (4, 1)
    assert ControlProblem(late, Optimistic(), InformationGain(), 2, 1, past=past).control_dim == 3  # eta for new outputs only
    plan = jnp.array([[0.5], [-0.25], [1.0], [0.75]])
    imagined = problem.imagine(problem.start(jnp.zeros(2)), plan, jax.random.key(0))
    waiting, x = [0.0, 0.0], np.zeros(2)
    for step, u in enumerate(np.ravel(plan)):
        x = x + np.array([1.0, 0.5]) * waiting.pop(0)
        waiting.append(u)
        np.testing.assert_allclose(imagined.next_states[0, step], x, rtol=1e-6)
    np.testing.assert_allclose(problem.objective.rewards(imagined), 2 * 0.5 * np.log(5.0), rtol=1e-5)


def test_visited_states_have_the_past_that_models_are_given():
    past = Past(1, 2)
    explorer = Explorer(METHODS["random"], SMALL_GP, TINY, SystemSpec(("a", "b"), ("u",), past), capacity=40, seeds=(0, 1))
    explorer.tell(measured())
    problem = ControlProblem(explorer.posterior, Mean(), InformationGain(), 2, 1, past=past)
    with jax.enable_x64(True):
        visited = problem.visited(explorer.data)
    expected = measured().with_past(past)
    np.testing.assert_array_equal(visited.states[:, :12], np.concatenate([expected.states, expected.actions[..., :-1]], -1))
    np.testing.assert_array_equal(visited.actions[:, :12], measured().actions)
    np.testing.assert_array_equal(visited.next_states[:, :11], visited.states[:, 1:12])


# ---- worlds ------------------------------------------------------------------------------------------------------------------


def test_delayed_world_is_the_world_with_earlier_actions():
    plain, actions = Pendulum(), np.random.default_rng(0).uniform(-1, 1, (6, 2, 1))
    copies = Delayed(plain, steps=2).open(2)
    x = copies.reset([0, 1])
    restarts = np.array([False, True])
    waiting = [np.zeros((2, 1))] * 2
    for t, u in enumerate(actions):
        after = copies.step(u).next_states
        for copy in range(2):
            with jax.enable_x64(True):
                expected = plain.dynamics(jnp.asarray(x[copy]), jnp.asarray(waiting[0][copy]))
            np.testing.assert_allclose(after[copy], expected, atol=1e-12)
        waiting, x = [waiting[1], u], after
        if t == 3:
            x = copies.restart(restarts)
            waiting = [np.where(restarts[:, None], 0.0, each) for each in waiting]
            np.testing.assert_array_equal(x[1], [-1.0, 0.0, 0.0])


def test_observed_world_shows_some_entries_and_rewards_need_no_others():
    world = Observed(Pendulum(), ("cos th", "sin th"))
    plain, copies = Pendulum(), world.open(1)
    with jax.enable_x64(True):
        x, u = jnp.asarray([0.6, 0.8, -2.0]), jnp.asarray([0.3])
        x_next = plain.dynamics(x, u)
        found = world.tasks["swing-up"](x[:2], u, x_next[:2])
        fast = x.at[2].set(x_next[2])  # the speed of the next state, which leads from one angle to the next
        np.testing.assert_allclose(found, plain.tasks["swing-up"](fast, u, x_next), rtol=1e-9)
    np.testing.assert_array_equal(copies.reset([0]), [[-1.0, 0.0]])
    with pytest.raises(SondeError, match="cos th"):
        Observed(Pendulum(), ("angle",))
    with pytest.raises(SondeError, match="cannot run OwnSystem"):
        Delayed(OwnSystem())


def test_reachable_transitions_of_a_complete_world_obey_its_dynamics():
    past = Past(2, 1)
    found = reachable_with_past(Pendulum(), past)
    with jax.enable_x64(True):
        expected = jax.vmap(Pendulum().dynamics)(jnp.asarray(found.states[:50]), jnp.asarray(found.actions[:50, -1:]))
    np.testing.assert_allclose(found.next_states[:50], expected, atol=1e-12)
    assert found.actions.shape[1] == 3 and reachable_with_past(OwnSystem(), past) is None


# ---- runs --------------------------------------------------------------------------------------------------------------------


def tiny_config(world, **changes):
    method = replace(METHODS["opax"], imagination=Optimistic(particles=1))
    given = {"rounds": 2, "horizon": 12, "evaluation_horizon": 5, "solver": TINY, "model": SMALL_GP, "seeds": 2}
    return RunConfig(world=world, method=method, **{**given, **changes})


class Interrupted(Callback):
    """Ends the program after the first round."""

    def on_round_end(self, round_number, rows):
        raise KeyboardInterrupt


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "changes"),
    [
        (Delayed(), {"delay": 2, "rollouts": 2}),
        (Observed(), {"history": 2, "model": ProbabilisticEnsemble(members=2, width=8, layers=1, max_steps=5)}),
        (Pendulum(), {"delay": 1, "history": 2, "seeds": 1, "evaluation_tasks": ("swing-up",)}),
        (GymWorld("Pendulum-v1", reachable_steps=0), {"delay": 1, "history": 2}),
    ],
)
def test_run_with_a_past_resumes_bit_identically(world, changes, tmp_path):
    config = tiny_config(world, **changes)
    whole = explore(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        explore(config, tmp_path / "part", [Interrupted()])
    part = explore(config, tmp_path / "part")
    assert same((whole.data, whole.params), (part.data, part.params))
    for name in ("0001", "0002"):
        path = f"data/{name}.safetensors"
        assert (tmp_path / "whole" / path).read_bytes() == (tmp_path / "part" / path).read_bytes()


@pytest.mark.slow
def test_own_system_gives_and_gets_plain_observations(tmp_path):
    config = tiny_config(OwnSystem(states=("a", "b"), actions=("u",)), delay=2, seeds=1, rounds=1)
    with Experiment(tmp_path / "run", config) as experiment:
        policy = experiment.ask(budget=0.2)
        x, rows = np.zeros(2), []
        for _ in range(10):
            u = policy(x)
            rows.append((x, u, x + 0.1 * u))
            x = rows[-1][2]
        told = Trajectory(*map(np.stack, zip(*rows, strict=True)))
        experiment.tell(told)
        found = np.asarray(experiment.explorer.data.actions[0, :10])
        assert experiment.solve(lambda x, u, x_next: -jnp.sum(x_next**2))(x).shape == (1,)
    np.testing.assert_array_equal(found[2:], np.column_stack([told.actions[1:-1], told.actions[:-2], told.actions[2:]]))


@pytest.mark.slow
def test_rollouts_on_both_kinds_of_worlds_follow_the_same_past():
    """A Delayed world with no late actions that matter: plans on JAX worlds and on host worlds see the same states."""
    spec = replace(Pendulum().spec, past=Past(1, 2))
    explorer = Explorer(METHODS["opax"], SMALL_GP, TINY, spec, capacity=40, seeds=(0, 1))
    compiled = rollout(Pendulum(), explorer.ask(), 8)
    policy, x, rows = explorer.ask(), np.tile([-1.0, 0.0, 0.0], (2, 1)), []
    for t in range(8):
        rows.append(policy(x))
        x = compiled.next_states[:, t]
    np.testing.assert_allclose(np.stack(rows, axis=1), compiled.actions, atol=1e-6)


@pytest.mark.slow
def test_deployed_policy_remembers_the_past_as_the_controller_does(tmp_path):
    spec = replace(Pendulum().spec, past=Past(1, 2))
    solver = SAC(training_steps=1, gradient_steps=1, starts=2, horizon=2, batch_size=2, buffer=8, actor=(4,), critic=(4,))
    explorer = Explorer(METHODS["opax"], SMALL_GP, solver, spec, capacity=40)
    told = rollout(Pendulum(), explorer.ask(), 8)
    explorer.tell(told)  # then it is trained, from visited states with their past
    controller = explorer.ask()
    controller.policy = replace(controller.policy, samples=False)
    (tmp_path / "policy.safetensors").write_bytes(controller.policy.to_bytes())
    deployed = load_policy(tmp_path / "policy.safetensors")
    for x in told.states[0]:
        np.testing.assert_allclose(deployed(x), controller(x), atol=1e-6)
    later = deployed(told.states[0, 4])
    deployed.reset()
    controller.reset()
    np.testing.assert_allclose(deployed(told.states[0, 4]), controller(told.states[0, 4]), atol=1e-6)
    assert deployed.state_dim == 3 and not np.array_equal(deployed(told.states[0, 4]), later)


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True])
def test_robust_plans_take_states_with_a_past(trained):
    sac = SAC(training_steps=1, gradient_steps=1, starts=2, horizon=2, batch_size=2, buffer=8, actor=(4,), critic=(4,))
    past = Past(1, 2)
    explorer = Explorer(METHODS["opax"], SMALL_GP, TINY, replace(Pendulum().spec, past=past), capacity=40)
    explorer.tell(rollout(Pendulum(), explorer.ask(), 8))
    setup = replace(TaskSetup.named(Pendulum(), "swing-up", sac if trained else TINY, 3), past=past)
    learned, keys, adversary = Learned(explorer.posterior, explorer.data), explorer.keys(), Pessimistic()
    plain = score_on_model(setup, learned.posterior, keys, plan_task(setup, learned, keys), adversary)
    robust = plan_robust_task(setup, learned, keys, adversary, plain)
    assert (robust.returns.guaranteed <= robust.returns.nominal + 1e-6).all()
    assert np.isfinite(run_task(setup, robust.policy, keys).returns).all()


def test_initial_data_is_cut_into_episodes_and_incomplete_rows_are_left_out():
    spec = SystemSpec(("a", "b"), ("u",), Past(2, 1))
    explorer = Explorer(METHODS["random"], SMALL_GP, TINY, spec, capacity=40)
    one, other = measured(seeds=1, steps=6), measured(seeds=1, steps=5)
    both = Trajectory(
        *(
            np.concatenate([getattr(one, name)[0], getattr(other, name)[0] + shift])
            for name, shift in (("states", 5.0), ("actions", 0.0), ("next_states", 5.0))
        )
    )
    explorer.start_from(both)
    assert explorer.transitions == (6 - 2) + (5 - 2)
    np.testing.assert_array_equal(np.asarray(explorer.data.states[0, :4]), one.states[0, 2:])
    with pytest.raises(SondeError, match="longer episodes"):
        Explorer(METHODS["random"], SMALL_GP, TINY, spec, capacity=9).start_from(
            Trajectory(one.states[0, :2], one.actions[0, :2], one.next_states[0, :2])
        )


# ---- whiteness ---------------------------------------------------------------------------------------------------------------


def round_of(world_past, kind, steps=150, noise=0.1):
    """A round of a linear system, and the errors of the best model of its present state and action."""
    rng, dx = np.random.default_rng(1), 2
    u = rng.uniform(-1, 1, (1, steps, 1))
    x, rows, before = np.zeros(dx), [], np.zeros(2)
    for t in range(steps):
        late = u[0, t - 2, 0] if kind == "late" and t > 1 else 0.0
        hidden = 0.8 * before if kind == "hidden" else 0.0
        step = -0.3 * x + hidden + np.array([0.5, 1.0]) * (late if kind == "late" else u[0, t, 0]) + noise * rng.normal(size=2)
        before = step
        rows.append((x, x + step))
        x = x + step
    states, nexts = (np.array(column)[None] for column in zip(*rows, strict=True))
    z = np.column_stack([np.ones(steps), states[0], u[0]])
    best = z @ np.linalg.lstsq(z, nexts[0], rcond=None)[0]
    return Trajectory(states, u, nexts), (nexts[0] - best)[None]


@pytest.mark.parametrize(("kind", "remedy"), [("late", "--delay 2"), ("hidden", "--history 2"), ("complete", None)])
def test_whiteness_names_what_is_missing(kind, remedy):
    found = whiteness_metrics(*round_of(Past(), kind), Past())
    said = incomplete_warning([{"round": 1, **per_seed(found)[0]}], Past())
    assert (said is None) if remedy is None else remedy in said
    assert (found["whiteness"][0] < 1e-6) == (remedy is not None)


def test_whiteness_of_noise_is_uniform():
    """p-values of white errors: as many below each level as it says (Bonferroni's are at most that)."""
    trajectory, _ = round_of(Past(), "complete")
    rng = np.random.default_rng(0)
    found = [whiteness_metrics(trajectory, rng.normal(size=(1, 150, 2)), Past())["whiteness"][0] for _ in range(200)]
    assert np.mean(np.array(found) < 0.2) == pytest.approx(0.2, abs=0.08)
    assert np.isnan(whiteness_metrics(*[trajectory, rng.normal(size=(1, 150, 2))], Past(120, 1))["whiteness"]).all()


def test_warning_needs_most_seeds():
    row = {"round": 3, "whiteness": 1e-9, "past_explains": 0.3, "past_delay": None}
    white = {"round": 3, "whiteness": 0.4, "past_explains": 0.01, "past_delay": None}
    assert incomplete_warning([row, white], Past()) is None
    assert "in 2 of 3 seeds; try --history 3." in incomplete_warning([row, row, white], Past(0, 2))
    assert incomplete_warning([{"round": 1}], Past()) is None


def test_a_past_is_rejected_beside_known_physics_and_without_resets():
    config = RunConfig(world=Delayed(Pendulum(), 1), delay=1)
    with pytest.raises(SondeError, match="leave out the prior"):
        replace(config, model=KnownPhysics(GaussianProcess(), Pendulum()))
    with pytest.raises(SondeError, match="begins without a past"):
        replace(config, reset=False)
