"""Real time: an answer by the deadline, whatever becomes of the planning.

Thinking happens in a thread of its own (compiled code does not hold Python's lock), and whoever asks waits for it until the
deadline and no longer. If nothing is ready by then, the answer is the last plan's action for this step. Thinking cannot be
interrupted, so it ends late; its plan counts from the step that it was made for, and the next step goes on from it. A step for
which nothing could be state_of_search at all passes in the search as it passed in the world. So a computer that is too slow for the
rate acts on plans that are a few steps old, instead of on none.
"""

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.errors import SondeError, positive

POLICYS_SHARE = 0.9
"""Of each period at a given rate; the rest is for sensors, motors and the loop itself."""
REMEMBERED = 10_000
"""Calls that quantiles are taken of, so that an episode may last for days."""


def seconds_per_action(budget: float | None, rate: float | int | None) -> float | None:
    """The budget, given as such or by a rate in Hz; None: there is no hurry."""
    if rate is None:
        return budget
    if budget is not None:
        raise SondeError(f"policy: expected a budget (seconds) or a rate (Hz), got both, {budget} and {rate}; give one of them")
    positive("policy", rate=rate)
    return POLICYS_SHARE / rate


class Timing:
    """How long the calls of an episode took, in seconds."""

    calls: int
    """How many there were."""
    late: int
    """Those that had no new plan, or no answer at all, within the budget."""
    worst: float
    """The longest."""

    def __init__(self):
        """No calls yet."""
        self.calls, self.late, self.worst = 0, 0, 0.0
        self._recent: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, seconds: float, late: bool) -> None:
        """One more call."""
        self.calls, self.late, self.worst = self.calls + 1, self.late + late, max(self.worst, seconds)
        self._recent.append(seconds)

    def quantile(self, share: float) -> float:
        """The time that this share of the calls did not exceed (of the last 10,000); NaN before the first."""
        return float(np.quantile(self._recent, share)) if self._recent else float("nan")

    def __str__(self) -> str:
        """In a line."""
        median, p99 = (1e3 * self.quantile(share) for share in (0.5, 0.99))
        return (
            f"{self.calls} actions, {self.late} late; median {median:.1f} ms, p99 {p99:.1f} ms, worst {1e3 * self.worst:.1f} ms"
        )


class SearchState(NamedTuple):
    """What has been state_of_search, for S runs."""

    plan: np.ndarray
    """Actions [S, H, du]."""
    first: int
    """The step that the plan begins with."""
    state: Any
    """What planning goes on from."""
    ready: int
    """The step that it would go on with."""
    iteration_sizes: int
    """How much was state_of_search about the plan."""

    def actions(self, step: int) -> np.ndarray:
        """The plan's actions [S, du] for a step, the caller's to keep; the last ones, when it has come to its end."""
        return self.plan[:, min(step - self.first, self.plan.shape[1] - 1)].copy()


SearchOn = Callable[[SearchState, np.ndarray, int, float], SearchState]
"""search_on(state_of_search, states, step, deadline): about the action at `step`; it may take too long."""


def done_by(deadline: float, work: concurrent.futures.Future) -> bool:
    """Wait for the work until then, and say whether it is done."""
    left = min(max(0.0, deadline - time.perf_counter()), threading.TIMEOUT_MAX)
    return bool(concurrent.futures.wait([work], left).done)


class DeadlineRunner:
    """Makes of planning that may take too long an answer by the deadline."""

    def __init__(self, search_on: SearchOn, initial: SearchState):
        """`initial` is what there is before any planning, for step 0."""
        self._search_on, self.state_of_search = search_on, initial
        # its thread ends with this object, or with the program after the turn that is under way
        self._worker = concurrent.futures.ThreadPoolExecutor(1, "sonde-real-time")
        self._pending: concurrent.futures.Future[SearchState] | None = None

    def restart(self, state_of_search: SearchState) -> None:
        """Go on from this; what is still under way is forgotten."""
        if self._pending is not None:
            concurrent.futures.wait([self._pending])
        self._pending, self.state_of_search = None, state_of_search

    def drain(self) -> SearchState:
        """What has been state_of_search, once nothing is under way any more."""
        if self._pending is not None:
            concurrent.futures.wait([self._pending])
            self._collect()
        return self.state_of_search

    def __call__(self, states: np.ndarray, step: int, deadline: float) -> tuple[np.ndarray, bool]:
        """The actions [S, du], and whether they are new: if not, they are the last plan's for this step."""
        if self._pending is not None:  # a step before this one is still being state_of_search about
            if not done_by(deadline, self._pending):
                return self.state_of_search.actions(step), False
            self._collect()
        # a copy, since the caller's array may be a buffer that the next measurement overwrites while this one is state_of_search about
        self._pending = self._worker.submit(self._search_on, self.state_of_search, states.copy(), step, deadline)
        in_time = done_by(deadline, self._pending)
        if in_time:
            self._collect()
        return self.state_of_search.actions(step), in_time

    def _collect(self) -> None:
        """Take over what is done; an error in it is raised here."""
        pending, self._pending = self._pending, None
        assert pending is not None
        self.state_of_search = pending.result()
