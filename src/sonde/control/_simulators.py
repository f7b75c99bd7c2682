"""Open copies of host worlds, kept between rollouts because they are costly to make."""

import time
from collections.abc import Callable
from typing import TypeVar

from sonde.worlds import HostWorld, Simulators

MAX_OPEN = 4
Result = TypeVar("Result")


class SimulatorPool:
    """Open simulators, by world and number of copies; the four used last stay open.

    Use it as a context: leaving it closes all of them.
    """

    seconds: float
    """Time spent in the simulators so far, as measured by `timed`."""

    def __init__(self):
        """Start without open simulators."""
        self.seconds = 0.0
        self._open: dict[tuple[HostWorld, int], Simulators] = {}

    def __enter__(self) -> "SimulatorPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, world: HostWorld, num_copies: int) -> Simulators:
        """Copies of a world, opened if they are not open yet.

        Args:
            world: The world.
            num_copies: Number of copies.
        """
        key = (world, num_copies)
        self._open[key] = self._open.pop(key) if key in self._open else world.open(num_copies)
        while len(self._open) > MAX_OPEN:
            self._open.pop(next(iter(self._open))).close()
        return self._open[key]

    def discard(self, world: HostWorld, num_copies: int) -> None:
        """Close copies that failed in the middle of something, so that they are not used again.

        Args:
            world: The world.
            num_copies: Number of copies.
        """
        if (copies := self._open.pop((world, num_copies), None)) is not None:
            copies.close()

    def timed(self, work: Callable[[], Result]) -> Result:
        """Run `work` and add the time it takes to `seconds`.

        Args:
            work: A call of the simulators.
        """
        began = time.perf_counter()
        result = work()
        self.seconds += time.perf_counter() - began
        return result

    def close(self) -> None:
        """Close everything."""
        while self._open:
            self._open.popitem()[1].close()
