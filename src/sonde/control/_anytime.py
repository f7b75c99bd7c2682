"""An interruptible policy (`sonde.control._controller.Interruptible`) against the clock: as many turns of planning as fit a budget."""

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.lockstep import lockstep
from sonde._internal.precision import double_precision
from sonde.control._deadline import SearchState


def chosen(which: Array | np.ndarray, new: Any, old: Any) -> Any:
    """Of two states, the new one where `which` is true; its axes are the first ones of the states' arrays."""
    choose = lambda new, old: jnp.where(which.reshape(*which.shape, *[1] * (new.ndim - which.ndim)), new, old)
    return jax.tree.map(choose, new, old)


# These run several times per action, against the clock. Plain `jit` calls them in half the time of `filter_jit`: all that is
# an array in a policy is a leaf, and all else is static.


@jax.jit
def _ready(policy: Any, keys: Array):
    """The search before the first turn of an episode."""
    return lockstep(lambda p, _: p.begin(p.start()))(policy, keys)


@functools.partial(jax.jit, static_argnames="size")
def _improve(policy: Any, search: Any, x: Array, keys: Array, step: Array, iteration: Array, last: Array, size: int):
    """One more turn."""

    def one(policy, search, x, key):
        return policy.improve(search, x, jax.random.fold_in(key, step), iteration, last, size)

    return lockstep(one)(policy, search, x, keys)


@jax.jit
def _finish(policy: Any, search: Any):
    """The plan, and the search before the first turn of the next step."""

    def one(policy, search):
        plan, state = policy.finish(search)
        return plan, policy.begin(state)

    return lockstep(one)(policy, search)


SHARES = 1.0, 0.5, 0.25
ENOUGH_ITERATIONS = 3
"""A policy with a budget takes the largest turns of which so many fit."""


class _Pace:
    """How long something took lately, at worst."""

    def __init__(self):
        self._recent: deque[float] = deque(maxlen=20)

    def timed(self, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = jax.block_until_ready(work())
        self._recent.append(time.perf_counter() - began)
        return result

    @property
    def slowest(self) -> float:
        return max(self._recent, default=0.0)


class AnytimeRunner:
    """An interruptible policy against the clock, for S runs in lockstep."""

    initial: SearchState
    """What there is before any planning, at the beginning of an episode."""

    def __init__(self, policy: Any, keys: Array, state_dim: int, budget: float):
        """`policy` and `keys` have a leading axis S. All compiles here; the largest turns that suit the budget are chosen."""
        self._policy, self._keys = policy, keys
        # scopes are a thread's own, and planning has a thread of its own
        self._device = getattr(jax.config, "jax_default_device", None)
        search = _ready(policy, keys)
        self.initial = SearchState(np.asarray(_finish(policy, search)[0]), 0, search, 0, 0)
        # several small turns are better than a large one: a search needs rounds
        for share in SHARES:
            self._iteration_sizes = policy.iteration_sizes(share)
            self._warm_up(search, np.zeros((len(keys), state_dim)))
            if (
                min(ENOUGH_ITERATIONS, len(self._iteration_sizes)) * self._iteration_pace.slowest + self._finish_pace.slowest
                < budget
            ):
                break

    def _warm_up(self, search: Any, x: np.ndarray) -> None:
        """Compile all that a call runs, and learn how long it takes; which state it is shown does not matter."""
        for number in range(5):
            if number < 3:  # the first rounds compile (a first step, and one that follows another): their times mean nothing
                self._iteration_pace, self._finish_pace = _Pace(), _Pace()
            for size in dict.fromkeys(self._iteration_sizes):
                search = self._improve(search, x, 0, 0, False, size)
            _, search = self._finish(search)

    def search_on(self, state_of_search: SearchState, x: np.ndarray, step: int, deadline: float) -> SearchState:
        """What `DeadlineRunner` asks for, under the settings of the thread that made this."""
        with jax.default_device(self._device):
            return self._search_on(state_of_search, x, step, deadline)

    @double_precision
    def _search_on(self, state_of_search: SearchState, x: np.ndarray, step: int, deadline: float) -> SearchState:
        """SearchOn until a turn as slow as the slowest of late would not fit, but one turn at least."""
        search, done, last = self._caught_up(state_of_search, step), 0, False
        while not last:
            left = deadline - time.perf_counter() - self._finish_pace.slowest
            if done > 0 and left < self._iteration_pace.slowest:
                break
            last = done + 1 == len(self._iteration_sizes) or left < 2 * self._iteration_pace.slowest
            search = self._improve(search, x, step, done, last, self._iteration_sizes[done])
            done += 1
        plan, search = self._finish(search)
        return SearchState(np.asarray(plan), step, search, step + 1, done)

    def restart_episodes(self, state_of_search: SearchState, which: np.ndarray, step: int) -> SearchState:
        """The system began a new episode in the runs where `which` [S] is true, and the next step is `step`."""
        passed = np.arange(state_of_search.plan.shape[1]) + step - state_of_search.first
        plan = state_of_search.plan[:, np.minimum(passed, state_of_search.plan.shape[1] - 1)]
        plan = np.where(which[:, None, None], self.initial.plan, plan)
        return SearchState(plan, step, chosen(which, self.initial.state, self._caught_up(state_of_search, step)), step, 0)

    def _caught_up(self, state_of_search: SearchState, step: int) -> Any:
        """The search, ready for `step`: what was planned moves on by one for each step that passed without a state_of_search."""
        search = state_of_search.state
        for _ in range(step - state_of_search.ready):
            _, search = self._finish(search)
        return search

    def _improve(self, search: Any, x: np.ndarray, step: int, iteration: int, last: bool, size: int) -> Any:
        work = lambda: _improve(self._policy, search, x, self._keys, step, iteration, last, size=size)
        return self._iteration_pace.timed(work)

    def _finish(self, search: Any) -> Any:
        return self._finish_pace.timed(lambda: _finish(self._policy, search))
