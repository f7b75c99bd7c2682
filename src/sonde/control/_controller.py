"""Policies on a real system: numpy arrays in, numpy arrays out.

A `Policy` is pure: its state is passed from step to step, so that a whole rollout compiles. A `Controller` wraps it in an
object that remembers the state, for users who step a system themselves. A real system does not wait: with a `budget`, a
controller interrupts the planning of an `AnytimePolicy` so that the action comes in time, and falls back on the latest plan
where that fails (`sonde.control._deadline`).
"""

import time
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError, positive
from sonde._internal.lockstep import lockstep_rollouts
from sonde._internal.past import NO_PAST, Memory, Past
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, rollout_keys
from sonde.control._anytime import AnytimeRunner, tree_where
from sonde.control._deadline import DeadlineRunner, Timing
from sonde.data import SystemSpec
from sonde.solvers import AnytimePolicy, Checked, Policy


@eqx.filter_jit
def _initial_state(policy: Policy, num_seeds: int, rollouts: int):
    """The policy's state at the start of an episode, [S, R, ...]."""
    # a policy without arrays (random) has no axis to map over, hence the explicit size
    state = jax.vmap(lambda p: p.initial_state(), axis_size=num_seeds)(policy)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (num_seeds, rollouts, *leaf.shape[1:])), state)


@eqx.filter_jit
def _act(policy: Policy, state: Any, x: Array, keys: Array, step: Array, goals: Array | None = None):
    """Actions [S * R, du], the policy's next state, expected information [S * R], checks; keys and goals lead with [S, R]."""

    def one(policy, state, x, key, goal):
        u, state, planned = policy.with_goal(goal).act(state, x, jax.random.fold_in(key, step))
        return u, state, planned, policy.checked(state)

    def follow(policy, state, x, key, goal):
        u, state, planned = policy.with_goal(goal).follow(state, x, jax.random.fold_in(key, step))
        return u, state, planned, policy.checked(state)

    arguments, due = (policy, state, x.reshape(*keys.shape, -1), keys, goals), policy.due(state)
    if due is None:
        actions, state, planned, checked = lockstep_rollouts(one)(*arguments)
    else:  # copies that restarted an episode may be due at other steps than the rest
        run = lambda function: lambda: lockstep_rollouts(function)(*arguments)
        actions, state, planned, checked = jax.lax.cond(jnp.any(due), run(one), run(follow))
    flat = lambda array: array.reshape(-1)
    return actions.reshape(keys.size, -1), state, flat(planned), jax.tree.map(flat, checked)


@eqx.filter_jit
def _restart_episodes(policy: Policy, state: Any, which: Array):
    """The policy's state, reset where `which` [S, R] is true."""
    return tree_where(which, _initial_state(policy, *which.shape), state)


class Controller:
    """A policy for S seeds in lockstep: call it with states, get actions.

    With a single seed, a state [dx] gives an action [du]; in general, states [S, dx] give actions [S, du]. With R rollouts in
    parallel per seed, there are S * R states, those of a seed next to each other. Where the past belongs to the state, the
    controller remembers it: call it once per step of the system, and `restart_episodes` or `reset` where an episode begins.
    """

    timing: Timing
    """How long the calls of this episode took, and how many were late."""
    iterations: int
    """Iterations of planning in the last call; 0 if it was late, or if the policy has no iterations or no budget."""
    checked: Checked | None
    """What the check of constraints said about the plan of the last action, arrays [S] or [S * R]; None without constraints."""
    checks: list[Checked]
    """The same for all calls so far, over all episodes."""

    @double_precision
    def __init__(
        self,
        policy: Policy,
        keys: Key[Array, "seeds *rollouts"],
        state_dim: int,
        budget: float | None = None,
        goals: Float[Array, "seeds *rollouts dg"] | None = None,
        spec: SystemSpec | None = None,
    ):
        """Start an episode; with a budget, compile everything here, so that the first call is not late.

        Args:
            policy: The policy, with a leading axis S on its arrays.
            keys: Randomness of the episode, one key per seed or per rollout.
            state_dim: Number of state dimensions dx.
            budget: Seconds per call; by default unlimited.
            goals: Goal of each seed or rollout, if the task has goals.
            spec: The system, if its past belongs to the state.
        """
        self.policy, self.keys, self.state_dim, self.budget = policy, keys, state_dim, budget
        self.spec, self._memory = spec, None
        if spec is not None and spec.past:
            self._memory = Memory(spec.past, keys.size, spec.state_dim, spec.action_dim)
        self._plan_keys = for_purpose(keys, "plan").reshape(self.num_seeds, -1)
        self.goals = None if goals is None else goals.reshape(*self._plan_keys.shape, -1)
        self._anytime: AnytimeRunner | None = None
        self.checks = []
        if budget is not None:
            positive("policy", budget=budget)
            if self.copies > self.num_seeds:
                raise SondeError(
                    f"policy: a budget allows one rollout per seed, got {self.copies} rollouts for {self.num_seeds} seed(s); "
                    "leave the budget out"
                )
            self._prepare(budget)
        self.reset()

    def _prepare(self, budget: float) -> None:
        """Compile everything that a call runs."""
        if isinstance(self.policy, AnytimePolicy):
            policy = self.policy if self.goals is None else self.policy.with_goal(self.goals[:, 0])
            assert isinstance(policy, AnytimePolicy)
            self._anytime = AnytimeRunner(policy, self._plan_keys[:, 0], self._full_dim, budget)
            self._runner = DeadlineRunner(self._anytime.search, self._anytime.initial)
        else:
            x, state = jnp.zeros((self.num_seeds, self._full_dim)), _initial_state(self.policy, self.num_seeds, 1)
            jax.block_until_ready(_act(self.policy, state, x, self._plan_keys, jnp.asarray(0)))

    @property
    def num_seeds(self) -> int:
        """Number of seeds S in lockstep."""
        return self.keys.shape[0]

    @property
    def past(self) -> Past:
        """What of the past belongs to the state."""
        return NO_PAST if self.spec is None else self.spec.past

    @property
    def _full_dim(self) -> int:
        """Numbers in the states that the policy sees: with the past."""
        return self.state_dim + (self.spec.input_dim - self.spec.action_dim if self.spec is not None else 0)

    @property
    def copies(self) -> int:
        """Number of copies of the system that it acts on: S * R."""
        return self.keys.size

    def for_rollouts(self, numbers: Iterable[int], goals: Float[np.ndarray, "seeds rollouts dg"] | None = None) -> "Controller":
        """The same policy for several rollouts per seed in parallel.

        Args:
            numbers: Numbers of the rollouts, each of which has noise draws of its own.
            goals: Goal of each rollout, if the task has goals.
        """
        device_goals = None if goals is None else jnp.asarray(goals)
        return Controller(self.policy, rollout_keys(self.keys, numbers), self.state_dim, goals=device_goals, spec=self.spec)

    @property
    def late(self) -> int:
        """Calls of this episode without a new plan, or without any action, within the budget."""
        return self.timing.late

    def reset(self) -> None:
        """Start a new episode with the same randomness."""
        self._step, self._state = 0, None
        self.timing, self.iterations, self.checked = Timing(), 0, None
        if self._memory is not None:
            self._memory.reset()
        if self._anytime is not None:
            self._runner.restart(self._anytime.initial)

    @double_precision
    def restart_episodes(self, which: np.ndarray) -> None:
        """Reset the policy's state where the system started a new episode; the steps go on.

        Args:
            which: Which copies, [S] or [S * R].
        """
        if self._memory is not None:
            self._memory.reset(np.asarray(which, bool).reshape(-1))
        if self._anytime is not None:
            self._runner.restart(self._anytime.restart_episodes(self._runner.drain(), which, self._step))
        elif self._state is not None:
            self._state = _restart_episodes(self.policy, self._state, jnp.asarray(which).reshape(self._plan_keys.shape))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Choose actions.

        Args:
            x: States [S, dx] or [S * R, dx]; with a single copy also [dx].

        Returns:
            Actions in [-1, 1], with the same leading axes; a new array that is the caller's to change.
        """
        x = np.asarray(x, dtype=np.float64)
        single = self.copies == 1 and x.shape == (self.state_dim,)
        actions, _ = self._take(x[None] if single else x, self.policy.without_report())
        return actions[0] if single else actions

    def act(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose actions, and report what the policy expects of them.

        Args:
            states: States [S, dx] or [S * R, dx].

        Returns:
            Actions [S, du] or [S * R, du], and the expected information gain per step [S] or [S * R] in nats (NaN if the policy
            does not plan, or has a budget).
        """
        return self._take(states, self.policy)

    def _take(self, states: np.ndarray, policy: Policy) -> tuple[np.ndarray, np.ndarray]:
        """Act as `act` does, with a form of the policy for calls without a deadline."""
        began = time.perf_counter()
        if states.shape != (self.copies, self.state_dim):
            raise SondeError(f"policy: states must have shape [{self.copies}, {self.state_dim}], got {list(states.shape)}")
        if not np.isfinite(states).all():
            raise SondeError("policy: states must be finite, got NaN or infinity; check the sensor that delivered it")
        past = None if self._memory is None else self._memory.recall(states)
        full = states if past is None else np.concatenate([states, past], axis=-1)
        if self._anytime is None or self.budget is None:
            (actions, planned), new = self._act_without_deadline(full, policy), True
        else:
            actions, new = self._runner(full, self._step, began + self.budget)
            planned, self.iterations = np.full(self.copies, np.nan), self._runner.latest.iterations if new else 0
            self.checked = self._runner.latest.checked
        if self.checked is not None:
            self.checks.append(self.checked)
        self._step += 1
        if not np.isfinite(actions).all():
            raise SondeError(
                "policy: expected finite actions, got NaN or infinity, so none is returned; the model may have diverged at "
                "this state: stop the episode, and check the measurements told so far"
            )
        if self._memory is not None and past is not None:
            self._memory.acted(past, states, actions)
        took = time.perf_counter() - began
        self.timing.add(took, late=not new or (self.budget is not None and took > self.budget))
        return actions, planned

    @double_precision
    def _act_without_deadline(self, states: np.ndarray, policy: Policy) -> tuple[np.ndarray, np.ndarray]:
        if self._step == 0:
            self._state = _initial_state(policy, *self._plan_keys.shape)
        arguments = jnp.asarray(states), self._plan_keys, jnp.asarray(self._step), self.goals
        actions, self._state, planned, checked = _act(policy, self._state, *arguments)
        self.checked = jax.tree.map(np.array, checked)
        return np.array(actions), np.array(planned)  # copies, since JAX's own arrays cannot be written to
