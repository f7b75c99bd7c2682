"""Policies: what runs on the real system.

A `Policy` is pure: its state is handed from step to step, so that a whole episode compiles. `Controller` is the same thing as
an object that remembers its state and speaks numpy, for people who step a system themselves. A real system does not wait: a
controller with a `budget` cuts an `Interruptible` policy's planning short, so that the action is there in time, and answers
from the last plan where that fails (`sonde.control._deadline`).
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
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, rollout_keys
from sonde.control._anytime import AnytimeRunner, chosen
from sonde.control._deadline import DeadlineRunner, Timing
from sonde.solvers._policy import AnytimePolicy, Policy


@eqx.filter_jit
def _start(policy: Policy, num_seeds: int, rollouts: int):
    """The policy's state at the beginning, [S, R, ...]."""
    # a policy without arrays (random) has no axis to map over, hence the explicit size
    start = jax.vmap(lambda p: p.start(), axis_size=num_seeds)(policy)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (num_seeds, rollouts, *leaf.shape[1:])), start)


@eqx.filter_jit
def _act(policy: Policy, state: Any, x: Array, keys: Array, step: Array, goals: Array | None = None):
    """Actions and expected information of all copies [S * R, ...], and the policy's next state; keys and goals are [S, R]."""

    def one(policy, state, x, key, goal):
        return policy.with_goal(goal).act(state, x, jax.random.fold_in(key, step))

    actions, state, planned = lockstep_rollouts(one)(policy, state, x.reshape(*keys.shape, -1), keys, goals)
    return actions.reshape(keys.size, -1), state, planned.reshape(-1)


@eqx.filter_jit
def _restart_episodes(policy: Policy, state: Any, which: Array):
    """The policy's state, from the beginning where `which` [S, R] is true."""
    return chosen(which, _start(policy, *which.shape), state)


class Controller:
    """A policy for S runs in lockstep: call it with states, get actions, both numpy arrays.

    With a single run, states of shape [dx] give actions of shape [du]; otherwise [S, dx] gives [S, du]. Where a run has R
    rollouts side by side, there are S * R states, those of a run next to each other.
    """

    timing: Timing
    """How long the calls of this episode took, and how many were late."""
    iterations: int
    """Turns of planning that the last call had time for; 0 if it was late, does not search_on in turns or has no budget."""

    @double_precision
    def __init__(
        self,
        policy: Policy,
        keys: Key[Array, "seeds *rollouts"],
        state_dim: int,
        budget: float | None = None,
        goals: Float[Array, "seeds *rollouts dg"] | None = None,
    ):
        """`policy` carries a leading axis S on its arrays; `keys`, [S] or [S, R], name the randomness of the episode.

        `budget` is the time for each call in seconds. With one, all is compiled here, so that the first call is not late.
        `goals`, [S, dg] or [S, R, dg], are what the policy is for, where its task has a goal.
        """
        self.policy, self.keys, self.state_dim, self.budget = policy, keys, state_dim, budget
        self._plan_keys = for_purpose(keys, "plan").reshape(self.num_seeds, -1)
        self.goals = None if goals is None else goals.reshape(*self._plan_keys.shape, -1)
        self._anytime: AnytimeRunner | None = None
        if budget is not None:
            positive("policy", budget=budget)
            if self.copies > self.num_seeds:
                raise SondeError("policy: rollouts side by side wait for their planner; give it no budget")
            if isinstance(policy, AnytimePolicy):
                aimed = policy if self.goals is None else policy.with_goal(self.goals[:, 0])
                assert isinstance(aimed, AnytimePolicy)
                self._anytime = AnytimeRunner(aimed, self._plan_keys[:, 0], state_dim, budget)
                self._runner = DeadlineRunner(self._anytime.search_on, self._anytime.initial)
            else:
                x, state = jnp.zeros((self.num_seeds, state_dim)), _start(policy, self.num_seeds, 1)
                jax.block_until_ready(_act(policy, state, x, self._plan_keys, jnp.asarray(0)))
        self.reset()

    @property
    def num_seeds(self) -> int:
        """How many runs are in lockstep."""
        return self.keys.shape[0]

    @property
    def copies(self) -> int:
        """How many copies of the system it acts on: the runs, times the rollouts that each has side by side."""
        return self.keys.size

    def for_rollouts(self, numbers: Iterable[int], goals: Float[np.ndarray, "seeds rollouts dg"] | None = None) -> "Controller":
        """The same policy for the rollouts of these numbers of every run, each with draws, and perhaps a goal, of its own."""
        aims = None if goals is None else jnp.asarray(goals)
        return Controller(self.policy, rollout_keys(self.keys, numbers), self.state_dim, goals=aims)

    @property
    def late(self) -> int:
        """Calls of this episode that had no new plan, or no answer at all, within the budget."""
        return self.timing.late

    def reset(self) -> None:
        """Begin the episode anew."""
        self._step, self._state = 0, None
        self.timing, self.iterations = Timing(), 0
        if self._anytime is not None:
            self._runner.restart(self._anytime.initial)

    @double_precision
    def restart_episodes(self, which: np.ndarray) -> None:
        """The system began a new episode in the copies where `which` [S], or [S * R], is true."""
        if self._anytime is not None:
            self._runner.restart(self._anytime.restart_episodes(self._runner.drain(), which, self._step))
        elif self._state is not None:
            self._state = _restart_episodes(self.policy, self._state, jnp.asarray(which).reshape(self._plan_keys.shape))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The actions, in [-1, 1]."""
        x = np.asarray(x, dtype=np.float64)
        single = self.copies == 1 and x.shape == (self.state_dim,)
        actions, _ = self.act(x[None] if single else x)
        return actions[0] if single else actions

    def act(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The actions [S, du], or [S * R, du], and the information per step that the policy expects for each.

        That is NaN if it does not plan, and with a budget, which has no time for it.
        """
        began = time.perf_counter()
        if states.shape != (self.copies, self.state_dim):
            raise SondeError(f"policy: states must have shape [{self.copies}, {self.state_dim}], got {list(states.shape)}")
        if not np.isfinite(states).all():
            raise SondeError("policy: states must be finite; check the sensor that delivered NaN or infinity")
        if self._anytime is None or self.budget is None:
            (actions, planned), new = self._act_at_leisure(states), True
        else:
            actions, new = self._runner(states, self._step, began + self.budget)
            planned, self.iterations = np.full(self.copies, np.nan), self._runner.state_of_search.iteration_sizes if new else 0
        self._step += 1
        if not np.isfinite(actions).all():
            raise SondeError("policy: the action is not finite, so it is withheld; the model may have diverged at this state")
        took = time.perf_counter() - began
        self.timing.add(took, late=not new or (self.budget is not None and took > self.budget))
        return actions, planned

    @double_precision
    def _act_at_leisure(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._step == 0:
            self._state = _start(self.policy, *self._plan_keys.shape)
        arguments = jnp.asarray(states), self._plan_keys, jnp.asarray(self._step), self.goals
        actions, self._state, planned = _act(self.policy, self._state, *arguments)
        return np.asarray(actions), np.asarray(planned)
