"""Actions by a deadline, even if planning takes longer.

Planning runs in a thread of its own (compiled code releases Python's lock), and the caller waits for it until the deadline at
most. If no new plan is ready by then, the action is that of the latest plan for this step. Planning cannot be cancelled, so it
finishes late; its plan still counts from the step that it was made for, and the next search continues from it. Steps without a
search are skipped in the search as they have passed in the system. So a computer that is too slow for the rate acts on plans
that are a few steps old.
"""

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.errors import SondeError, positive

POLICY_SHARE = 0.9
"""Share of each period that the policy may use at a given rate; the rest is for sensors, motors and the loop itself."""
RECENT_CALLS = 10_000
"""Calls that quantiles are computed from, so that memory stays bounded in long episodes."""


def seconds_per_action(budget: float | None, rate: float | int | None) -> float | None:
    """The time budget per action.

    Args:
        budget: Seconds per action.
        rate: Actions per second (Hz); give either a budget or a rate.

    Returns:
        Seconds per action; None if there is no limit.
    """
    if rate is None:
        return budget
    if budget is not None:
        raise SondeError(f"policy: expected a budget (seconds) or a rate (Hz), got both, {budget} and {rate}; give one of them")
    positive("policy", rate=rate)
    return POLICY_SHARE / rate


class Timing:
    """How long the calls of an episode took, in seconds."""

    calls: int
    """Number of calls."""
    late: int
    """Number of calls without a new plan, or without any action, within the budget."""
    worst: float
    """Duration of the longest call."""

    def __init__(self):
        """Start without calls."""
        self.calls, self.late, self.worst = 0, 0, 0.0
        self._recent: deque[float] = deque(maxlen=RECENT_CALLS)

    def add(self, seconds: float, late: bool) -> None:
        """Add a call.

        Args:
            seconds: Duration of the call.
            late: Whether it was late.
        """
        self.calls, self.late, self.worst = self.calls + 1, self.late + late, max(self.worst, seconds)
        self._recent.append(seconds)

    def quantile(self, share: float) -> float:
        """A quantile of the durations of the last 10,000 calls; NaN before the first.

        Args:
            share: Share of the calls in [0, 1] that took no longer than the result.
        """
        return float(np.quantile(self._recent, share)) if self._recent else float("nan")

    def __str__(self) -> str:
        """One line of text."""
        median, p99 = (1e3 * self.quantile(share) for share in (0.5, 0.99))
        return (
            f"{self.calls} actions, {self.late} late; median {median:.1f} ms, p99 {p99:.1f} ms, worst {1e3 * self.worst:.1f} ms"
        )


class SearchResult(NamedTuple):
    """The latest plan of S seeds, and the search to continue from."""

    plan: np.ndarray
    """Actions [S, H, du]."""
    first_step: int
    """Step of the plan's first action."""
    search: Any
    """The search to continue from."""
    next_step: int
    """Step that `search` is ready for."""
    iterations: int
    """Number of iterations that the plan took."""
    checked: Any = None
    """What the check of constraints said about the plan; None without constraints."""

    def actions(self, step: int) -> np.ndarray:
        """The plan's actions at a step, as a copy; after the end of the plan, its last actions.

        Args:
            step: The step, at least `first_step`.

        Returns:
            Actions [S, du].
        """
        return self.plan[:, min(step - self.first_step, self.plan.shape[1] - 1)].copy()


Search = Callable[[SearchResult, np.ndarray, int, float], SearchResult]
"""search(latest, states, step, deadline): plan the actions at `step`; it may finish after the deadline."""


def done_by(deadline: float, work: concurrent.futures.Future) -> bool:
    """Wait for work, but not longer than until a deadline.

    Args:
        deadline: Time of `time.perf_counter`.
        work: What to wait for.

    Returns:
        Whether the work is done.
    """
    left = min(max(0.0, deadline - time.perf_counter()), threading.TIMEOUT_MAX)
    return bool(concurrent.futures.wait([work], left).done)


class DeadlineRunner:
    """Runs a search in a thread and returns actions by the deadline, whether or not the search is done."""

    latest: SearchResult
    """The result of the latest search that was collected."""

    def __init__(self, search: Search, initial: SearchResult):
        """Start the thread's executor.

        Args:
            search: What plans.
            initial: The plan and the search before any planning, for step 0.
        """
        self._search, self.latest = search, initial
        # its thread ends with this object, or with the program after the iteration that is running
        self._worker = concurrent.futures.ThreadPoolExecutor(1, "sonde-real-time")
        self._pending: concurrent.futures.Future[SearchResult] | None = None

    def restart(self, result: SearchResult) -> None:
        """Continue from another result; a search that is running is discarded.

        Args:
            result: What to continue from.
        """
        if self._pending is not None:
            concurrent.futures.wait([self._pending])
        self._pending, self.latest = None, result

    def drain(self) -> SearchResult:
        """Wait for the search that is running, if any, and return the latest result."""
        if self._pending is not None:
            concurrent.futures.wait([self._pending])
            self._collect()
        return self.latest

    def __call__(self, states: np.ndarray, step: int, deadline: float) -> tuple[np.ndarray, bool]:
        """Return actions by the deadline.

        Args:
            states: States [S, dx].
            step: Number of the step in the episode.
            deadline: Time of `time.perf_counter`.

        Returns:
            Actions [S, du], and whether they come from a new plan rather than from the latest one.
        """
        if self._pending is not None:  # the search of an earlier step is still running
            if not done_by(deadline, self._pending):
                return self.latest.actions(step), False
            self._collect()
        # a copy: the caller may reuse the array for the next measurement while the search is running
        self._pending = self._worker.submit(self._search, self.latest, states.copy(), step, deadline)
        in_time = done_by(deadline, self._pending)
        if in_time:
            self._collect()
        return self.latest.actions(step), in_time

    def _collect(self) -> None:
        """Take over the result of a finished search; its exception is raised here."""
        pending, self._pending = self._pending, None
        assert pending is not None
        self.latest = pending.result()
