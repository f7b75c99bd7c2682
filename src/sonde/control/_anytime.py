"""Run an `AnytimePolicy` against the clock: as many iterations of planning as fit into a budget."""

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.lockstep import lockstep
from sonde._internal.precision import double_precision
from sonde.control._deadline import SearchResult

SIZE_SHARES = 1.0, 0.5, 0.25
"""Shares of the full iteration sizes to choose from."""
ENOUGH_ITERATIONS = 3
"""The largest share is chosen with which at least this number of iterations fits into the budget."""


def tree_where(which: Array | np.ndarray, new: Any, old: Any) -> Any:
    """Choose between two pytrees of arrays.

    Args:
        which: Where to take the new one; its axes are the leading axes of all arrays.
        new: One pytree.
        old: The other pytree, with the same structure and shapes.
    """
    choose = lambda new, old: jnp.where(which.reshape(*which.shape, *[1] * (new.ndim - which.ndim)), new, old)
    return jax.tree.map(choose, new, old)


class _Iteration(NamedTuple):
    """Which iteration of which step to run."""

    step: int
    number: int
    last: bool


# These functions run several times per action, against the clock. Plain `jit` calls them in half the time of `filter_jit`:
# every array of a policy is a leaf, and everything else is static.


@jax.jit
def _begin(policy: Any, keys: Array):
    """The search before the first iteration of an episode."""
    return lockstep(lambda p, _: p.begin(p.initial_state()))(policy, keys)


@functools.partial(jax.jit, static_argnames="size")
def _improve(policy: Any, search: Any, x: Array, keys: Array, iteration: _Iteration, size: int):
    """One more iteration."""

    def one(policy, search, x, key):
        return policy.improve(search, x, jax.random.fold_in(key, iteration.step), iteration.number, iteration.last, size)

    return lockstep(one)(policy, search, x, keys)


@jax.jit
def _finish(policy: Any, search: Any):
    """The plan, the search before the first iteration of the next step, and what the check of constraints said."""

    def one(policy, search):
        plan, state = policy.finish(search)
        return plan, policy.begin(state), policy.checked(state)

    return lockstep(one)(policy, search)


class _RecentDurations:
    """Durations of the latest calls of a compiled function."""

    def __init__(self):
        self._seconds: deque[float] = deque(maxlen=20)

    def timed(self, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = jax.block_until_ready(work())
        self._seconds.append(time.perf_counter() - began)
        return result

    @property
    def longest(self) -> float:
        return max(self._seconds, default=0.0)


class AnytimeRunner:
    """Runs an anytime policy for S seeds until a deadline."""

    initial: SearchResult
    """The plan and the search at the start of an episode, before any planning."""

    def __init__(self, policy: Any, keys: Array, state_dim: int, budget: float):
        """Compile everything, and choose the largest iterations that suit the budget.

        Args:
            policy: An `AnytimePolicy` with a leading axis S on its arrays.
            keys: Randomness of an episode [S].
            state_dim: Number of state dimensions dx.
            budget: Seconds per action.
        """
        self._policy, self._keys = policy, keys
        # the default device is a setting of this thread, and planning runs in another one
        self._device = getattr(jax.config, "jax_default_device", None)
        search = _begin(policy, keys)
        plan, _, checked = _finish(policy, search)
        self.initial = SearchResult(np.asarray(plan), 0, search, 0, 0, jax.tree.map(np.asarray, checked))
        # several small iterations are better than one large iteration
        for share in SIZE_SHARES:
            self._sizes = policy.iteration_sizes(share)
            self._warm_up(search, np.zeros((len(keys), state_dim)))
            iterations = min(ENOUGH_ITERATIONS, len(self._sizes))
            if iterations * self._iteration_time.longest + self._finish_time.longest < budget:
                break

    def _warm_up(self, search: Any, x: np.ndarray) -> None:
        """Compile everything that `search` runs and measure how long it takes, which does not depend on the state."""
        for number in range(5):
            if number < 3:  # these compile (the first step of an episode, and later ones): their durations do not count
                self._iteration_time, self._finish_time = _RecentDurations(), _RecentDurations()
            for size in dict.fromkeys(self._sizes):
                search = self._improve(search, x, _Iteration(0, 0, False), size)
            _, search, _ = self._finish(search)

    def search(self, latest: SearchResult, x: np.ndarray, step: int, deadline: float) -> SearchResult:
        """Plan until the deadline, with the device settings of the thread that created this object.

        Args:
            latest: The result to continue from.
            x: States [S, dx].
            step: Number of the step in the episode.
            deadline: Time of `time.perf_counter`.
        """
        with jax.default_device(self._device):
            return self._search(latest, x, step, deadline)

    @double_precision
    def _search(self, latest: SearchResult, x: np.ndarray, step: int, deadline: float) -> SearchResult:
        """Iterate until an iteration as long as the longest recent one would not fit, but at least once."""
        search, done, last = self._advanced(latest, step), 0, False
        while not last:
            left = deadline - time.perf_counter() - self._finish_time.longest
            if done > 0 and left < self._iteration_time.longest:
                break
            last = done + 1 == len(self._sizes) or left < 2 * self._iteration_time.longest
            search = self._improve(search, x, _Iteration(step, done, last), self._sizes[done])
            done += 1
        plan, search, checked = self._finish(search)
        return SearchResult(np.asarray(plan), step, search, step + 1, done, jax.tree.map(np.asarray, checked))

    def restart_episodes(self, latest: SearchResult, which: np.ndarray, step: int) -> SearchResult:
        """Discard plan and search of the seeds whose system started a new episode.

        Args:
            latest: The result so far.
            which: Which seeds [S].
            step: The next step.
        """
        ahead = np.arange(latest.plan.shape[1]) + step - latest.first_step
        plan = latest.plan[:, np.minimum(ahead, latest.plan.shape[1] - 1)]
        plan = np.where(which[:, None, None], self.initial.plan, plan)
        checked = jax.tree.map(np.asarray, tree_where(which, self.initial.checked, latest.checked))
        return SearchResult(plan, step, tree_where(which, self.initial.search, self._advanced(latest, step)), step, 0, checked)

    def _advanced(self, latest: SearchResult, step: int) -> Any:
        """The search, ready for `step`: its plan is shifted once for each step without a search."""
        search = latest.search
        for _ in range(step - latest.next_step):
            _, search, _ = self._finish(search)
        return search

    def _improve(self, search: Any, x: np.ndarray, iteration: _Iteration, size: int) -> Any:
        work = lambda: _improve(self._policy, search, x, self._keys, iteration, size=size)
        return self._iteration_time.timed(work)

    def _finish(self, search: Any) -> Any:
        return self._finish_time.timed(lambda: _finish(self._policy, search))
