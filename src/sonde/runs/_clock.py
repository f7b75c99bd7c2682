"""The phases of a round: how long each takes, and how a round is learned from."""

import time
from collections.abc import Callable
from typing import TypeVar

from sonde.control import OnStep
from sonde.data import Trajectory
from sonde.explorer import Explorer
from sonde.runs._callbacks import Callback

Result = TypeVar("Result")


class RoundClock:
    """Announces the phases of one round to callbacks, and adds up how long each took."""

    def __init__(self, listeners: Callback, round_number: int):
        """Start with no time spent.

        Args:
            listeners: Called when a phase begins.
            round_number: The round, from 1.
        """
        self.listeners, self.round, self.phase = listeners, round_number, ""
        self.seconds: dict[str, float] = dict.fromkeys(("plan", "fit", "world", "evaluate"), 0.0)
        self.shared: dict[str, float] = {}  # other metrics of the round, the same for all seeds; saved with the data

    def __call__(self, phase: str, work: Callable[[], Result]) -> Result:
        """Do some work as part of a phase.

        Args:
            phase: One of `PHASES`.
            work: The work to do.

        Returns:
            What `work` returns.
        """
        self.phase = phase
        self.listeners.on_phase(self.round, phase, "")
        began = time.perf_counter()
        result = work()
        self.seconds[phase] += time.perf_counter() - began
        return result

    def on_step(self, phase: str, what: str = "") -> OnStep:
        """Make the function that is called after each step of a host world.

        Args:
            phase: The phase that the steps belong to.
            what: What is being run, such as a task.
        """
        return lambda taken, _: self.listeners.on_phase(self.round, phase, f"{what} {taken}".strip())


Tell = Callable[[Explorer, Trajectory, RoundClock], None]
"""tell(explorer, trajectory, clock): learns from a round, and adds to the clock how long it took."""


def tell_alone(explorer: Explorer, trajectory: Trajectory, clock: RoundClock) -> None:
    """Learn from a round of one run.

    Args:
        explorer: The explorer, which is changed.
        trajectory: Measurements of the round [S, T, ...].
        clock: The clock of the round.
    """
    clock("fit", lambda: explorer.tell(trajectory))
