"""The model that is chosen by simulations, simulations with uncertainty, and coverage on new data."""

import io
import json
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from rich.console import Console

from sonde import METHODS, Explorer, GaussianProcess, ProbabilisticEnsemble, SondeError, SystemSpec, Trajectory
from sonde.data import Data
from sonde.evaluation._coverage import STEPS, coverage_metrics
from sonde.models import Auto, Model, Posterior, Prediction
from sonde.models._auto import AutoParams, simulation_error
from sonde.models._simulate import simulate
from sonde.runs import RunConfig
from sonde.runs._codec import from_json, to_json
from sonde.runs._progress import ProgressDisplay
from sonde.runs._run import run
from sonde.runs._store import RunStore
from tiny import TINY

SPEC = SystemSpec.of_size(2, 1)
NOISE = 0.05


class Known(Posterior):
    """x' = (0.9 x0 + u + offset, 0.9 x1), with given stds of both."""

    offset: Float[Array, "*seeds"]
    epistemic: Float[Array, "*seeds"]
    aleatoric: Float[Array, "*seeds"]

    def predict(self, x, u):
        mean = 0.9 * x + jnp.array([1.0, 0.0]) * (u[0] + self.offset)
        return Prediction(mean, jnp.ones(2) * self.epistemic, jnp.ones(2) * self.aleatoric)


@dataclass(frozen=True)
class Guess(Model):
    """A model that learns nothing."""

    offset: float = 0.0

    def init(self, state_dim, action_dim, key):
        return jnp.asarray(self.offset)

    def fit(self, params, data, filled, key):
        return params

    def condition(self, params, data):
        return Known(params, jnp.zeros(()), jnp.asarray(0.1))


def walk(count: int, seed: int = 0, episode: int = 30) -> Trajectory:
    """The system of `Known` without offset, with noise, in episodes."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (count, 1))
    states, next_states = np.zeros((count, 2)), np.zeros((count, 2))
    for t in range(count):
        states[t] = rng.normal(size=2) if t % episode == 0 else next_states[t - 1]
        next_states[t] = 0.9 * states[t] + [actions[t, 0], 0.0] + NOISE * rng.normal(size=2)
    return Trajectory(states, actions, next_states, truncated=(np.arange(count) + 1) % episode == 0)


def data_of(trajectory: Trajectory, capacity: int) -> Data:
    empty = Data.empty(capacity, 2, 1)
    return empty.append(trajectory.states, trajectory.actions, trajectory.next_states)


# ---- the error of simulations ------------------------------------------------------------------------------------------------


def test_simulation_error_is_that_of_a_loop_over_held_out_blocks(x64):
    trajectory, offset = walk(120), 0.1
    data = data_of(trajectory, 150)
    found = simulation_error(Known(jnp.asarray(offset), jnp.zeros(()), jnp.ones(())), data)
    errors = []
    judged = np.asarray(data.mask() & ~data.without(0.2).mask())
    for t in range(120):
        starts = t % 20 == 0 or t % 30 == 0  # a block, or an episode
        x = trajectory.states[t] if starts else x
        x = 0.9 * x + [trajectory.actions[t, 0] + offset, 0.0]
        if judged[t]:
            errors.append((x - trajectory.next_states[t]) / trajectory.states.std(axis=0))
    assert 20 <= len(errors) <= 40
    np.testing.assert_allclose(found, np.sqrt(np.mean(np.square(errors))), rtol=1e-9)


def test_simulation_error_is_infinite_without_held_out_blocks_and_bounded_otherwise(x64):
    posterior = Known(jnp.asarray(jnp.nan), jnp.zeros(()), jnp.ones(()))
    assert np.isinf(simulation_error(posterior, data_of(walk(15), 40)))
    assert 1 < simulation_error(posterior, data_of(walk(120), 120)) <= 10


# ---- the choice --------------------------------------------------------------------------------------------------------------


def choice_after(model: Auto, count: int, before: AutoParams | None = None) -> AutoParams:
    data = data_of(walk(count), 200)
    params = before or model.init(2, 1, jax.random.key(0))
    return model.fit(params, data, data.count, jax.random.key(1))


def test_the_candidate_that_simulates_best_is_chosen(x64):
    model = Auto((Guess(0.5), Guess(0.0), Guess(0.2)))
    assert model.init(2, 1, jax.random.key(0)).choice == 0
    params = choice_after(model, 100)
    assert params.choice == 1 and np.argmin(params.errors) == 1
    x, u = jnp.array([1.0, 2.0]), jnp.zeros(1)
    posterior = model.condition(params, data_of(walk(100), 200))
    np.testing.assert_allclose(posterior.predict(x, u).mean, [0.9, 1.8])
    assert isinstance(posterior.specialise(), Known)


def test_a_choice_changes_only_for_a_clear_advantage(x64):
    errors = choice_after(Auto((Guess(0.0), Guess(0.005))), 100).errors
    better, worse = (Guess(0.0), Guess(0.005)) if errors[0] < errors[1] else (Guess(0.005), Guess(0.0))
    close = Auto((worse, better))
    first = replace(choice_after(close, 100), choice=jnp.asarray(0))
    assert 0.95 < first.errors[1] / first.errors[0] < 1
    assert choice_after(close, 100, first).choice == 0
    clear = Auto((Guess(0.3), Guess(0.0)))
    assert choice_after(clear, 100, replace(choice_after(clear, 100), choice=jnp.asarray(0))).choice == 1


def test_nothing_is_chosen_before_there_is_anything_to_compare(x64):
    assert choice_after(Auto((Guess(0.5), Guess(0.0))), 15).choice == 0


def test_candidates_are_checked():
    with pytest.raises(SondeError, match="two or more models"):
        Auto((GaussianProcess(),))
    assert Auto().labels == ("gp-rbf", "gp-matern52", "pe")
    assert Auto((GaussianProcess(), GaussianProcess(rank=0))).labels == ("gp-rbf-0", "gp-rbf-1")


SMALL = Auto((GaussianProcess(steps=2, rank=16), ProbabilisticEnsemble(members=2, layers=1, width=4, epochs=1)))


@pytest.mark.slow
def test_a_run_says_which_model_it_took_and_why(tmp_path):
    config = replace(TINY, horizon=20, rounds=2, evaluate_every=0, model=SMALL)
    assert from_json(RunConfig, to_json(config), "here") == config
    store = RunStore.create(tmp_path / "run", config)
    run(store)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["simulation_error/gp-rbf"] is None, "nothing was held out yet"
    last = rows[-1]
    errors = [last["simulation_error/gp-rbf"], last["simulation_error/pe"]]
    assert last["model_choice"] == np.argmin(errors)
    display = ProgressDisplay(Console(file=(shown := io.StringIO()), width=200))
    display.on_run_start(config, rows[:1])
    display.on_round_end(2, rows[1:])
    chosen, other = ("gp-rbf", "pe") if errors[0] < errors[1] else ("pe", "gp-rbf")
    assert f"model (simulation error) {chosen} {min(errors):.3f} (others: {other} {max(errors):.3f})" in shown.getvalue()


@pytest.mark.slow
def test_seeds_may_choose_differently(x64):
    """Their posteriors are then queried side by side."""
    explorer = Explorer(METHODS["random"], Auto((Guess(0.5), Guess(0.0))), TINY.solver, SPEC, capacity=60, seeds=(0, 1))
    both = walk(60)
    other = replace(both, next_states=both.next_states + np.array([0.5, 0.0]))
    stack = lambda name: np.stack([getattr(both, name), getattr(other, name)])
    explorer.tell(Trajectory(stack("states"), stack("actions"), stack("next_states")))
    np.testing.assert_array_equal(explorer.params.choice, [1, 0])
    found = explorer.predict(np.ones((2, 2)), np.zeros((2, 1)))
    np.testing.assert_allclose(found.mean, [[0.9, 0.9], [1.4, 0.9]])


# ---- simulations with uncertainty --------------------------------------------------------------------------------------------


def test_simulations_keep_what_is_unknown_and_redraw_noise(x64):
    """After T steps of x' = 0.9 x + e + w: e adds (1 - 0.9^T) / 0.1 times, w in quadrature."""
    posterior = Known(jnp.zeros(()), jnp.asarray(0.3), jnp.asarray(0.2))
    found = simulate(posterior, jnp.zeros(2), jnp.zeros((10, 1)), jax.random.key(0), 4000)
    powers = 0.9 ** np.arange(10)
    std = np.hypot(0.3 * powers.sum(), 0.2 * np.sqrt(np.sum(powers**2)))
    assert found.shape == (4000, 10, 2)
    np.testing.assert_allclose(found[:, -1, 0].std(), std, rtol=0.05)
    np.testing.assert_allclose(found[:, -1].mean(axis=0), 0.0, atol=0.15)


@pytest.mark.parametrize("scale, low, high", [(1.0, 0.85, 0.95), (0.3, 0.0, 0.6), (3.0, 0.97, 1.0)])
def test_coverage_is_right_for_the_true_noise_and_tells_a_wrong_one(scale, low, high):
    found = coverage_metrics(Known(*(jnp.asarray([value]) for value in (0.0, 0.0, scale * NOISE))), walk(3000).checked(1, SPEC))
    for key in ("coverage90", "coverage90_simulated"):
        assert low <= found[key][0] <= high, key


def test_windows_of_a_simulation_lie_within_episodes():
    """Episodes of 30 steps have one window each; those of 15 have none."""
    posterior = Known(*(jnp.asarray([value]) for value in (0.0, 0.0, NOISE)))
    assert np.isfinite(coverage_metrics(posterior, walk(60).checked(1, SPEC))["coverage90_simulated"][0])
    assert np.isnan(coverage_metrics(posterior, walk(60, episode=15).checked(1, SPEC))["coverage90_simulated"][0])
    assert STEPS == 20


def test_posterior_of_an_ensemble_is_simulated_member_by_member(x64):
    class Members(Posterior):
        shift: Array = eqx.field(default_factory=lambda: jnp.arange(2.0))

        @property
        def ensemble_size(self):
            return 2

        def predict(self, x, u):
            return Prediction(x + self.shift.mean(), 0 * x, 0 * x)

        def member(self, index):
            return Members(self.shift[index % 2][None])

    found = simulate(Members(), jnp.zeros(1), jnp.zeros((3, 1)), jax.random.key(0), 4)
    np.testing.assert_allclose(found[:, -1, 0], [0.0, 3.0, 0.0, 3.0])


# ---- ensembles with an affine part -------------------------------------------------------------------------------------------


def fitted(model: ProbabilisticEnsemble, trajectory: Trajectory, key: int = 0):
    data = data_of(trajectory, len(trajectory.states))
    fit = jax.jit(
        lambda data: model.condition(
            model.fit(model.init(2, 1, jax.random.key(key)), data, data.count, jax.random.key(1)), data
        )
    )
    return fit(data)


def test_an_ensemble_knows_an_affine_system_before_its_networks_are_trained(x64):
    model = ProbabilisticEnsemble(width=8, epochs=1, patience=0)
    posterior = fitted(model, walk(200))
    rng = np.random.default_rng(1)
    states, actions = 3 * rng.normal(size=(50, 2)), rng.uniform(-1, 1, (50, 1))
    found = jax.vmap(posterior.predict)(jnp.asarray(states), jnp.asarray(actions)).mean
    error = np.asarray(found) - (0.9 * states + np.outer(actions[:, 0], [1.0, 0.0]))
    plain = fitted(replace(model, affine=False), walk(200))
    worse = np.asarray(jax.vmap(plain.predict)(jnp.asarray(states), jnp.asarray(actions)).mean) - found + error
    assert np.sqrt(np.mean(error**2)) < 0.15 * np.sqrt(np.mean(worse**2))


def test_members_draw_affine_functions_as_uncertain_as_least_squares_says(x64):
    from sonde.models._affine import affine_members

    trajectory = walk(300)
    z = np.concatenate([trajectory.states, trajectory.actions], axis=1)
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    changes = trajectory.next_states - trajectory.states
    draws, left = affine_members(*map(jnp.asarray, (z, changes, np.ones(300, bool))), 2000, jax.random.key(0))
    solution, squares, *_ = np.linalg.lstsq(z, changes - changes.mean(axis=0), rcond=None)
    np.testing.assert_allclose(np.mean(draws, axis=0)[0], solution[:, 0], atol=2e-3)
    np.testing.assert_allclose(left[0], np.sqrt(squares[0] / 300), rtol=1e-3)
    wanted = np.sqrt(squares[0] / 296 * np.diag(np.linalg.inv(z.T @ z)))
    np.testing.assert_allclose(np.std(draws, axis=0)[0], wanted, rtol=0.1)


@pytest.mark.slow
def test_training_ends_when_the_error_stops_falling_and_keeps_the_best_weights(x64):
    """Pure noise: a network that trains on learns it by heart."""
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(120, 2)), rng.uniform(-1, 1, (120, 1))
    noise = Trajectory(states, actions, states + rng.normal(size=(120, 2)))
    model = ProbabilisticEnsemble(width=64, members=2, learning_rate=3e-3, epochs=2000, max_steps=4000, patience=300)
    size = lambda model: float(np.std(jax.vmap(fitted(model, noise).predict)(*queries).mean - queries[0]))
    queries = jnp.asarray(rng.normal(size=(200, 2))), jnp.asarray(rng.uniform(-1, 1, (200, 1)))
    assert size(model) < 0.5 * size(replace(model, patience=0))
