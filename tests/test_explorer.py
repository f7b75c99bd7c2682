"""The loop: ask, roll out, tell."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import (
    METHODS,
    Confidence,
    Explorer,
    Learned,
    Method,
    ProbabilisticEnsemble,
    RunConfig,
    SondeError,
    TaskSetup,
    Trajectory,
    TrueDynamics,
    evaluate,
    rollout,
)
from sonde.evaluation._metrics import model_metrics
from sonde.imagination import Imagination
from sonde.models import Model, Posterior, Prediction
from sonde.objectives import Objective
from sonde.runs._run import build_explorer
from sonde.solvers import Planner
from sonde.worlds import JaxWorld, Pendulum
from tiny import TINY

WORLD = Pendulum()


def explorer(**changes) -> Explorer:
    return build_explorer(replace(TINY, **changes))


def explore(config: RunConfig) -> Explorer:
    it = build_explorer(config)
    for _ in range(config.rounds):
        it.tell(rollout(config.world, it.ask(), config.horizon))
    return it


MODELS = {"gp": TINY.model, "ensemble": ProbabilisticEnsemble(members=3, layers=1, width=8, epochs=2)}
CONFIDENCE = {"gp": Confidence(), "ensemble": Confidence(holdout=0.4, recalibrate=True)}


def needs_members(method: Method) -> bool:
    return any(part is not None and part.needs_members for part in (method.imagination, method.objective))


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if not needs_members(METHODS[name])])
def test_every_method_without_members_explores_with_a_gaussian_process(method):
    """With an ensemble, where all methods work, the command line does the same in test_cli.py."""
    it = explore(TINY.with_method(method, "swing-up" if METHODS[method].needs_task else None))
    assert it.transitions == 36 and it.round == 3
    metrics = model_metrics(it.posterior, it.data, WORLD)
    assert all(np.isfinite(value).all() for value in metrics.values())


def test_same_seed_gives_the_same_run_and_another_seed_another_one():
    first, again, other = explore(TINY), explore(TINY), explore(replace(TINY, first_seed=7))
    assert np.array_equal(first.data.states, again.data.states)
    assert not np.array_equal(first.data.actions, other.data.actions)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_seeds_in_lockstep_give_what_each_gives_alone(kind):
    config = replace(TINY, model=MODELS[kind], confidence=CONFIDENCE[kind])
    together = explore(replace(config, seeds=10))
    for seed in (0, 3, 9):
        alone = explore(replace(config, first_seed=seed))
        for name in ("states", "actions", "next_states"):
            lockstep = np.asarray(getattr(together.data, name))[seed]
            np.testing.assert_allclose(lockstep, np.asarray(getattr(alone.data, name))[0], atol=1e-5)
        single = model_metrics(alone.posterior, alone.data, WORLD)
        for name, values in model_metrics(together.posterior, together.data, WORLD).items():
            np.testing.assert_allclose(values[seed], single[name][0], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_nothing_compiles_after_the_first_round(kind):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    # settings that no other test has used in this process, so that the first round does compile
    it = explorer(rounds=10, horizon=11, seeds=2, model=MODELS[kind], confidence=CONFIDENCE[kind])
    setup = TaskSetup.named(WORLD, "swing-up", it.solver, 9)
    counts = []
    for _ in range(10):
        it.tell(rollout(WORLD, it.ask(), 11))
        model_metrics(it.posterior, it.data, WORLD)
        evaluate(setup, Learned(it.posterior), it.keys())
        counts.append(len(compiled))
    assert counts[0] > 0, "the listener must have seen the first round compile"
    assert counts[-1] == counts[0], f"compilations after each round: {counts}"


@pytest.mark.slow
def test_stepping_by_hand_equals_the_compiled_rollout():
    it = explorer()
    expected = rollout(WORLD, it.ask(), 12)
    policy, x = it.ask(), np.asarray([-1.0, 0.0, 0.0])
    step = jax.jit(WORLD.dynamics)
    for t in range(12):
        u = policy(x)
        np.testing.assert_allclose(u, expected.actions[0, t], atol=1e-9)
        with jax.enable_x64(True):
            x = np.asarray(step(jnp.asarray(x), jnp.asarray(u)))
    np.testing.assert_allclose(x, expected.next_states[0, -1], atol=1e-9)


def test_reset_policy_acts_as_at_the_start():
    it = explorer()
    policy = it.ask()
    x = np.asarray([-1.0, 0.0, 0.0])
    first = [policy(x) for _ in range(3)]
    policy.reset()
    assert np.array_equal(first, [policy(x) for _ in range(3)])


def test_policy_rejects_states_of_wrong_shape_and_nan():
    policy = explorer().ask()
    with pytest.raises(SondeError, match=r"shape \[1, 3\], got \[2\]"):
        policy(np.zeros(2))
    with pytest.raises(SondeError, match="finite"):
        policy(np.asarray([np.nan, 0.0, 0.0]))


def test_predict_takes_and_returns_numpy_arrays():
    it, x, u = explorer(), np.asarray([0.6, 0.8, 3.0]), np.asarray([0.3])
    prediction = it.predict(x, u)
    # before any data: no change expected, the model's own signal and noise std in state units
    np.testing.assert_allclose(prediction.mean, x)
    np.testing.assert_allclose(prediction.epistemic_std, 1.0)
    np.testing.assert_allclose(prediction.aleatoric_std, it.model.noise_std)
    assert isinstance(prediction.mean, np.ndarray) and prediction.mean.dtype == np.float64
    two = explorer(seeds=2).predict(np.stack([x, x]), np.stack([u, u]))
    np.testing.assert_allclose(two.mean, [x, x])
    with pytest.raises(SondeError, match=r"expected states \[1, 3\] and actions \[1, 1\], got \[1, 3\] and \[1, 2\]"):
        it.predict(x, np.zeros(2))


def test_predicting_many_states_at_once_equals_predicting_each():
    it = explorer(seeds=2)
    it.tell(rollout(WORLD, it.ask(), TINY.horizon))
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(2, 5, 3)), rng.uniform(-1, 1, (2, 5, 1))
    many = it.predict(x, u)
    each = [it.predict(x[:, n], u[:, n]) for n in range(5)]
    for name in ("mean", "epistemic_std", "aleatoric_std"):
        np.testing.assert_allclose(getattr(many, name), np.stack([getattr(one, name) for one in each], axis=1), rtol=1e-9)
    with pytest.raises(
        SondeError, match=r"expected states \[2, 5, 3\] and actions \[2, 5, 1\], got \[2, 5, 3\] and \[2, 4, 1\]"
    ):
        it.predict(x, u[:, 1:])


def good_trajectory(steps=12):
    rng = np.random.default_rng(0)
    return {
        "states": rng.normal(size=(steps, 3)),
        "actions": rng.uniform(-1, 1, (steps, 1)),
        "next_states": rng.normal(size=(steps, 3)),
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("states", np.zeros((12, 2)), r"states must have shape \[seeds=1, steps >= 1, 3\], got \[1, 12, 2\]"),
        ("actions", np.zeros((11, 1)), "equally many steps"),
        ("next_states", np.full((12, 3), np.nan), "finite, got nan at seed 0, step 0"),
        ("states", np.full((12, 3), np.inf), "finite"),
        ("actions", np.full((12, 1), 1.5), r"\[-1, 1\].*1.5"),
        ("states", "not numbers", "array of real numbers, got one of type"),
        ("states", np.zeros((0, 3)), "steps >= 1"),
    ],
)
def test_tell_rejects_bad_measurements_and_changes_nothing(name, value, message):
    it = explorer()
    before = np.asarray(it.data.states).copy()
    # np.asarray so that the test's own type checks let the bad value reach the code under test
    with pytest.raises(SondeError, match=message):
        it.tell(Trajectory(**{**good_trajectory(), name: np.asarray(value)}))
    assert it.transitions == 0 and it.round == 0 and np.array_equal(before, it.data.states)
    it.tell(Trajectory(**good_trajectory()))
    assert it.transitions == 12


def test_tell_rejects_more_measurements_than_fit():
    it = explorer()
    with pytest.raises(SondeError, match="0 of 36 transitions are taken and 40 more do not fit"):
        it.tell(Trajectory(**good_trajectory(40)))


def test_callers_precision_is_not_changed():
    assert jnp.asarray(1.0).dtype == jnp.float32
    explorer()
    assert jnp.asarray(1.0).dtype == jnp.float32


def test_oracle_predicts_the_true_dynamics():
    with jax.enable_x64(True):
        x, u = jnp.asarray([0.6, 0.8, 3.0]), jnp.asarray([0.3])
        prediction = TrueDynamics(WORLD).predict(x, u)
        np.testing.assert_array_equal(prediction.mean, WORLD.dynamics(x, u))
        assert not np.asarray(prediction.epistemic_std).any()


# Parts of one's own: one class each, passed as objects. Each is a toy, and together they explore.


@dataclass(frozen=True)
class Line(JaxWorld):
    """A point on a line: x' = x + 0.1 u."""

    @property
    def state_names(self):
        return ("x",)

    @property
    def action_names(self):
        return ("u",)

    @property
    def tasks(self):
        return {"right": lambda x, u, x_next: x_next[0]}

    def reset(self, key):
        return jnp.zeros(1)

    def dynamics(self, x, u):
        return x + 0.1 * u

    def step(self, x, u, key):
        return self.dynamics(x, u)

    def reachable_points(self):
        return np.linspace(-1, 1, 5)[:, None], np.zeros((5, 1))


class Slope(Posterior):
    """Predicts x' = x + a u, and becomes more certain with each measurement."""

    slope: jax.Array
    std: jax.Array

    def predict(self, x, u):
        return Prediction(x + self.slope * u, jnp.full_like(x, self.std), jnp.full_like(x, 0.1))


@dataclass(frozen=True)
class LeastSquares(Model):
    """Fits a by least squares."""

    def init(self, state_dim, action_dim, key):
        return jnp.zeros(())

    def fit(self, params, data, filled, key):
        u, y = data.actions[:, 0], data.targets()[:, 0]
        return jnp.sum(u * y, where=data.mask()) / jnp.sum(u * u, where=data.mask())

    def condition(self, params, data):
        return Slope(params, 1.0 / (1.0 + data.count))


@dataclass(frozen=True)
class Timid(Imagination):
    """Predicts that half of the motion happens."""

    def resolve(self, prediction, extra, draws):
        return 0.5 * prediction.mean, prediction.aleatoric_std


@dataclass(frozen=True)
class Effort(Objective):
    """Rewards large actions."""

    def rewards(self, imagined):
        return jnp.sum(imagined.actions**2, axis=-1)[None]


@dataclass(frozen=True)
class FullForce(Planner):
    """Tries both extremes and takes the better."""

    def initial_state(self, problem):
        return jnp.zeros(())

    def plan(self, problem, state, x, key):
        plans = jnp.asarray([-1.0, 1.0])[:, None, None] * jnp.ones((2, 3, problem.control_dim))
        return plans[jnp.argmax(problem.rewards(x, plans, key).sum(axis=(1, 2)))], state + 1


@pytest.mark.slow
def test_parts_of_ones_own_are_passed_as_objects():
    world, method = Line(), Method(Timid(), Effort())
    assert method.name == "Timid-Effort"
    it = Explorer(method, LeastSquares(), FullForce(), world.spec, capacity=10, seeds=(0, 1))
    for _ in range(2):
        it.tell(rollout(world, it.ask(), 5))
    np.testing.assert_allclose(it.posterior.slope, 0.1, rtol=1e-9)
    metrics = model_metrics(it.posterior, it.data, world)
    np.testing.assert_allclose(metrics["max_epistemic"], 1 / 11)
    np.testing.assert_allclose(metrics["model_rmse"], 0, atol=1e-9)
    returns = evaluate(TaskSetup.named(world, "right", FullForce(), 4), Learned(it.posterior), it.keys()).returns
    np.testing.assert_allclose(returns, 0.1 + 0.2 + 0.3 + 0.4)


@pytest.mark.slow
def test_exact_posterior_explores():
    """All other tests here explore with a low-rank posterior."""
    it = explore(replace(TINY, model=replace(TINY.model, rank=0)))
    assert np.isfinite(model_metrics(it.posterior, it.data, WORLD)["model_nll"]).all()
