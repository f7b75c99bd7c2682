"""Planners distilled into networks, which need no model and no search when they act.

Dataset aggregation (Ross et al. 2011) on the learned model: the planner is run from perturbed starts, and a network learns
its actions by regression; then the network itself is run, the planner says what it would have done in each state on the way,
and the network learns from all states so far. Of the networks after each iteration, the one with the largest return is kept.

A network is one function of the state. Where the planner has several good plans for one state (to swing a pendulum up to the
left or to the right), the mean of their actions can be worse than each; what is lost is measured, not promised.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key

from sonde._internal.errors import SondeError, not_negative, positive, whole
from sonde._internal.lockstep import lockstep, lockstep_rollouts
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, rollout_keys
from sonde.control import SimulatorPool, start_states
from sonde.data import Data
from sonde.evaluation._evaluate import plan_task, with_projection
from sonde.evaluation._setup import Learned, TaskSetup
from sonde.imagination import Pessimistic
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.solvers import ICEM, ControlProblem, Planner, Policy
from sonde.solvers._actor import ActorPolicy, squashed_mean
from sonde.solvers.adversarial import mean_returns
from sonde.worlds import GoalTask, has_simulator


@dataclass(frozen=True)
class Distillation:
    """How a planner is distilled into a network."""

    iterations: int = 5
    """Times that states are collected and the network is trained; the planner acts in the first, the network in the others."""
    rollouts: int = 8
    """Rollouts on the learned model per iteration."""
    layers: tuple[int, ...] = (64, 64)
    """Widths of the network's hidden layers."""
    noise: float = 0.1
    """Std of the noise that is added to actions while states are collected, so that they surround the path."""
    spread: float = 0.1
    """Std by which starts are perturbed, in stds of the measured states; the first start is the system's own."""
    gradient_steps: int = 3000
    """Gradient steps (Adam) after each iteration."""
    batch_size: int = 256
    """States per gradient step."""
    learning_rate: float = 1e-3
    """Learning rate at the beginning of each training; it falls to 0."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        names = ("iterations", "rollouts", "gradient_steps", "batch_size")
        whole("distil", **{name: getattr(self, name) for name in names})
        for width in self.layers:
            whole("distil: layers", width=width)
        not_negative("distil", noise=self.noise, spread=self.spread)
        positive("distil", learning_rate=self.learning_rate)


@dataclass(frozen=True)
class Distilled:
    """A network that acts like a planner, and what that loses on the learned model."""

    policy: ActorPolicy
    """The network, with a leading axis S on its arrays; `to_bytes` is the content of a file for `load_policy`."""
    starts: Float[np.ndarray, "S R dx"]
    """Starts of the rollouts that are compared, none of which the network has learned from."""
    planner: Float[np.ndarray, "S R"]
    """Returns of the planner from these starts on the learned model's mean, kept to states that the world can be in."""
    network: Float[np.ndarray, "S R"]
    """Returns of the network from the same starts."""

    @property
    def lost(self) -> Float[np.ndarray, " S"]:
        """Mean return that is lost."""
        return np.mean(self.planner - self.network, axis=1)


@double_precision
def distil(
    setup: TaskSetup, learned: Learned, keys: Key[Array, " seeds"], settings: Distillation, pool: SimulatorPool | None = None
) -> Distilled:
    """Distil the planner of a task into a network, and measure what that loses.

    Args:
        setup: The task, whose solver is a planner.
        learned: What was learned, with the measurements.
        keys: Keys of the round, one per seed.
        settings: How.
        pool: Open simulators to reuse, for the starts.

    Returns:
        The network, and the returns of planner and network from `setup.rollouts` starts.
    """
    check_distillable(setup)
    data = learned.data
    if data is None:
        raise SondeError("distil: the network's input is normalised by the measurements: pass Learned(posterior, data)")
    keys = for_purpose(keys, f"distil/{setup.name}")
    problem = setup.problem(learned.posterior, with_projection(Pessimistic(), setup.world))
    judge = lambda policy, starts, rollouts: np.asarray(mean_returns(policy, problem, setup.horizon, starts, rollouts, None))
    # every action that the network learns from is planned in its own state
    solver = replace(setup.solver, replan_every=1) if isinstance(setup.solver, ICEM) else setup.solver
    expert = plan_task(replace(setup, solver=solver), learned, keys)
    students = _first_student(problem, data, settings, keys)
    best, best_returns, rows = students, np.full(len(keys), -np.inf), []
    for number in range(settings.iterations):
        now = for_purpose(keys, f"iteration/{number}")
        each = rollout_keys(now, range(settings.rollouts))
        starts = _starts(setup, data, each, settings.spread, pool)
        parts, lengths = (expert, students, problem), (setup.horizon, settings.noise)
        collected = _collect(parts, starts, each, jnp.asarray(number == 0), *lengths, setup.world.project)
        rows.append(collected)
        filled = jnp.asarray(number + 1)
        students = _train(students, _stacked(rows, settings.iterations), filled, for_purpose(now, "train"), settings)
        returns = judge(students, starts, each).mean(axis=1)
        better = np.nan_to_num(returns, nan=-np.inf) > best_returns
        choose = lambda new, old, better=better: jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)
        best, best_returns = jax.tree.map(choose, students, best), np.where(better, returns, best_returns)
    each = rollout_keys(for_purpose(keys, "judge"), range(setup.rollouts))
    starts = _starts(setup, data, each, settings.spread, pool)
    planner = plan_task(setup, learned, keys)
    return Distilled(best, np.asarray(starts), judge(planner, starts, each), judge(best, starts, each))


def check_distillable(setup: TaskSetup) -> None:
    """Reject tasks whose solution a network cannot be.

    Args:
        setup: The task.
    """
    if not isinstance(setup.solver, Planner):
        name = type(setup.solver).__name__
        raise SondeError(f"distil: {name} trains a network already: its policies are in the folder policies/ of the run")
    if isinstance(setup.task, GoalTask):
        raise SondeError(f"distil: {setup.name} has another goal in each rollout, and the network sees only the state")
    if setup.safety is not None:
        raise SondeError(
            "distil: constraints are kept by the planner's check of each plan, and a network has none; "
            "use the planner itself (sonde evaluate), or the solver sac, which trains with the constraints"
        )


@eqx.filter_jit
def _first_student(problem: ControlProblem, data: Data, settings: Distillation, keys: Array) -> ActorPolicy:
    def one(problem: ControlProblem, data: Data, key: Array) -> ActorPolicy:
        states = problem.visited(data).states
        sizes = (problem.full_dim, *settings.layers, 2 * problem.action_dim)
        network = Network.init(sizes, for_purpose(key, "network"))
        return ActorPolicy(network, Normaliser.of(states, data.mask()), problem.action_dim, past=problem.past)

    return lockstep(one)(problem, data, keys)


def _starts(
    setup: TaskSetup, data: Data, keys: Key[Array, "S R"], spread: float, pool: SimulatorPool | None
) -> Float[Array, "S R dx"]:
    """The system's own starts, all but the first of each seed perturbed; without a simulator, measured states."""
    starts = start_states(setup.world, keys, pool) if has_simulator(setup.world) else _measured(data, keys)
    scale = spread * jax.vmap(lambda data: Normaliser.of(data.states, data.mask()).scale)(data)
    draw = lambda key: jax.random.normal(key, starts.shape[-1:], starts.dtype)
    moves = scale[:, None] * jax.vmap(jax.vmap(draw))(for_purpose(keys, "perturb"))
    return jnp.concatenate([starts[:, :1], jax.vmap(jax.vmap(setup.world.project))((starts + moves)[:, 1:])], axis=1)


def _measured(data: Data, keys: Key[Array, "S R"]) -> Float[Array, "S R dx"]:
    row = lambda key, data: data.states[jax.random.randint(key, (), 0, data.count)]
    return jax.vmap(lambda keys, data: jax.vmap(lambda key: row(key, data))(keys))(for_purpose(keys, "row"), data)


class _Rows(NamedTuple):
    """States with the past, and what the planner does there."""

    states: Float[Array, "*n full"]
    actions: Float[Array, "*n du"]


@eqx.filter_jit
def _collect(
    parts: tuple[Policy, ActorPolicy, ControlProblem],
    starts: Float[Array, "S R dx"],
    keys: Key[Array, "S R"],
    planner_acts: Bool[Array, ""],
    horizon: int,
    noise: float,
    project: Callable[[Array], Array],
) -> _Rows:
    """Run the planner or the network on the model's mean, and ask the planner in each state [S, R, T]."""

    def one(parts: Any, start: Array, key: Array) -> _Rows:
        expert, student, problem = parts
        plan_key, noise_key = for_purpose(key, "plan"), for_purpose(key, "noise")

        def step(carry: tuple[Array, Any], t: Array) -> tuple[tuple[Array, Any], _Rows]:
            x, state = carry
            planned, state, _ = expert.act(state, x, jax.random.fold_in(plan_key, t))
            learned, _, _ = student.act(None, x, plan_key)
            push = noise * jax.random.normal(jax.random.fold_in(noise_key, t), planned.shape, planned.dtype)
            u = jnp.clip(jnp.where(planner_acts, planned, learned) + push, -1.0, 1.0)
            x_next = problem.moved(x, u, project(problem.predict(problem.posterior, x, u).mean))
            return (x_next.astype(x.dtype), state), _Rows(x, planned)

        return jax.lax.scan(step, (problem.start(start), expert.initial_state()), jnp.arange(horizon))[1]

    return lockstep_rollouts(one)(parts, starts, keys)


def _stacked(rows: list[_Rows], iterations: int) -> _Rows:
    """Rows of all iterations [S, iterations, n, ...], zeros where they are still to come: one program trains on all of them."""
    padded = [*rows, *[jax.tree.map(jnp.zeros_like, rows[0])] * (iterations - len(rows))]
    flat = lambda leaf: leaf.reshape(leaf.shape[0], -1, leaf.shape[-1])
    return jax.tree.map(lambda *leaves: jnp.stack([flat(leaf) for leaf in leaves], axis=1), *padded)


@eqx.filter_jit
def _train(students: ActorPolicy, rows: _Rows, filled: Array, keys: Array, settings: Distillation) -> ActorPolicy:
    """Regression on the rows of the first `filled` iterations, from the present weights; without what is not finite."""
    optimiser = optax.adam(optax.cosine_decay_schedule(settings.learning_rate, settings.gradient_steps))

    def one(student: ActorPolicy, rows: _Rows, key: Array) -> ActorPolicy:
        per_iteration = rows.states.shape[1]
        states, actions = (leaf.reshape(-1, leaf.shape[-1]) for leaf in rows)
        usable = jnp.all(jnp.isfinite(states), axis=-1) & jnp.all(jnp.isfinite(actions), axis=-1)
        z = jnp.where(usable[:, None], student.normaliser(states), 0.0).astype(jnp.float32)
        targets = jnp.where(usable[:, None], actions, 0.0).astype(jnp.float32)
        weights = usable.astype(jnp.float32)

        def loss(network: Network, chosen: Array) -> Array:
            errors = squashed_mean(network(z[chosen])) - targets[chosen]
            return jnp.mean(weights[chosen][:, None] * errors**2)

        def step(carry: tuple[Network, Any], number: Array) -> tuple[tuple[Network, Any], None]:
            network, state = carry
            chosen = jax.random.randint(jax.random.fold_in(key, number), (settings.batch_size,), 0, filled * per_iteration)
            updates, state = optimiser.update(cast(Any, jax.grad(loss)(network, chosen)), state)
            return (cast(Network, optax.apply_updates(cast(Any, network), updates)), state), None

        start = student.network, optimiser.init(cast(Any, student.network))
        (network, _), _ = jax.lax.scan(step, start, jnp.arange(settings.gradient_steps))
        return replace(student, network=network)

    return lockstep(one)(students, rows, keys)
