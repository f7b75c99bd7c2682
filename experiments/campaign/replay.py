"""Rounds that were learned before, so that a process that will be killed need not compile anything.

Everything that touches files is the real code: the store, the loop over rounds, `Experiment`, the command line. Only what is
computed (plans, models, metrics) is taken from a recording of a quiet run. Such a process starts in a few milliseconds, without
JAX, and spends its time on files.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

import sonde.runs.figures
from sonde.cli import _explore
from sonde.data import Trajectory
from sonde.models import Confidence
from sonde.runs import _experiment, _run, _store
from sonde.runs._callbacks import Row


class Recorded(NamedTuple):
    """One round."""

    trajectory: Trajectory
    """What was measured."""
    rows: list[Row]
    """Its metrics."""
    params: Any
    """What was learned, as numpy arrays."""


class Replayed:
    """Stands for an explorer."""

    def __init__(self, rounds: list[Recorded], spec: Any, number: int):
        """Be as after a round.

        Args:
            rounds: All rounds.
            spec: The system.
            number: The round; 0 for the beginning.
        """
        self.rounds, self.spec, self.round, self.confidence = rounds, spec, number, Confidence()

    @property
    def params(self) -> Any:
        """What was learned."""
        return self.rounds[self.round - 1].params

    @property
    def num_seeds(self) -> int:
        """Number of seeds."""
        return len(self.rounds[0].rows)

    def ask(self, *_: Any) -> Any:
        """Plan nothing."""
        return SimpleNamespace(policy=SimpleNamespace(to_bytes=lambda: None), budget=None, checks=[])


@contextmanager
def recording() -> Generator[list[Recorded]]:
    """Record the rounds that are learned in this context, all of one run."""
    found, real = list[Recorded](), _run._learned

    def learned(config: Any, explorer: Any, trajectory: Trajectory, *rest: Any) -> Any:
        rows, solved = real(config, explorer, trajectory, *rest)
        found.append(Recorded(trajectory, rows, jax.tree.map(np.asarray, explorer.params)))
        return rows, solved

    with mock.patch.object(_run, "_learned", learned):
        yield found


def replay(recorded: dict[int, list[Recorded]]) -> None:
    """Take all that is computed in this process from recordings.

    Args:
        recorded: Rounds of a run by the number of its rounds.
    """

    def restored(store: Any, number: int | None = None) -> Replayed:
        newest = max(store.checkpoints(), default=0) if number is None else number
        return Replayed(recorded[store.config.rounds], store.config.world.spec, newest)

    def collected(_: Any, explorer: Replayed, *__: Any) -> tuple[Any, Trajectory]:
        return explorer.ask().policy, explorer.rounds[explorer.round].trajectory

    def learned(_: Any, explorer: Replayed, *__: Any) -> tuple[list[Row], dict[str, Any]]:
        explorer.round += 1
        return explorer.rounds[explorer.round - 1].rows, {}

    nothing: Callable[..., None] = lambda *_: None
    replaced: list[tuple[Any, str, Any]] = [
        *((_run, "restore_explorer", restored), (_experiment, "restore_explorer", restored), (_run, "collect", collected)),
        *((_run, "_learned", learned), (_store, "_check_model", nothing), (_store, "check_memory", nothing)),
        *((_explore, "try_world", nothing), (sonde.runs.figures, "draw_run", lambda *_: list[Path]())),
    ]
    for module, name, replacement in replaced:
        assert hasattr(module, name), name
        setattr(module, name, replacement)
