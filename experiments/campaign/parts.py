"""The parts of the campaign by name; a part is imported only by the processes that run it."""

import importlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from experiments.campaign.harness import Outcome


class Part(NamedTuple):
    """A part: how many cases, and how long one may take."""

    module: str
    """Module with `prepare(folder)` and `case(prepared, rng, folder, outcome)`."""
    cases: int
    """Cases at full scale."""
    limit: float
    """Seconds that a case may take."""

    def load(self) -> tuple[Callable[[Path], Any], Callable[[Any, Random, Path, Outcome], None]]:
        """Import the part.

        Returns:
            What prepares a worker in a folder of its own, and what runs one case in an empty folder.
        """
        module = importlib.import_module(f"experiments.campaign.{self.module}")
        return module.prepare, module.case


PARTS = {
    "kills": Part("kills", 900, 300.0),
    "mutations": Part("mutations", 2000, 300.0),
    "options": Part("options", 10000, 120.0),
    "tell": Part("tell", 500, 300.0),
    "data": Part("data_files", 5000, 60.0),
    "environments": Part("environments", 120, 300.0),
    "soak": Part("soak", 1, 3600.0),
}
"""All parts, in the order in which they run."""
