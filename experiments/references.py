"""What returns are measured by: random actions and, on worlds written in JAX, the same solver on the true system.

The references of a setting are a batch of a sweep like any other, but for the work that is done for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys
from sonde._internal.user_code import task_label
from sonde.control import SimulatorPool
from sonde.data import Data
from sonde.evaluation import Learned, TrueDynamics, evaluate
from sonde.runs import Callback, RunConfig
from sonde.runs._store import RunStore
from sonde.runs.sweep import Batch, Results
from sonde.runs.sweep._results import Row
from sonde.worlds import JaxWorld

REFERENCES = "references"
"""The method of a batch of references."""
ORACLE, RANDOM_ACTIONS = "oracle", "random-actions"
"""Methods of rows that no exploration made: the same planner on the true system, and uniformly random actions."""
REFERENCE_FILE = "references.csv"


@dataclass(frozen=True)
class ReferenceBatch(Batch):
    """The references of a setting; they are evaluated once, without rounds."""

    worker: ClassVar[str] = "experiments.references:evaluate_references"

    @property
    def rounds(self) -> int:
        """One piece of work."""
        return 1

    def rounds_done(self) -> int:
        """Whether it was done."""
        return int((self.folder / REFERENCE_FILE).exists())

    def rows(self) -> list[Row]:
        """Returns and success of each seed."""
        saved = Results.load(self.folder / REFERENCE_FILE).rows if self.finished else []
        return [row | {"setting": self.setting} for row in saved]

    def seconds_per_round(self) -> float | None:
        """Nothing is known of it before it is done."""
        return None


def evaluate_references(store: RunStore, callbacks: Sequence[Callback]) -> None:
    """The work for a batch of references."""
    del callbacks  # there are no rounds to tell of
    path = store.folder / REFERENCE_FILE
    if not path.exists():
        with store.locked():
            Results(reference_rows(store.config)).save(path)


@double_precision
def reference_rows(config: RunConfig) -> list[Row]:
    """Returns and success of the references on all tasks of a config, one row per reference and seed."""
    keys, rows = round_keys(config.seed_list, 0), []
    learners: dict[str, Learned | None] = {RANDOM_ACTIONS: None}
    if isinstance(config.world, JaxWorld):
        learners[ORACLE] = Learned(TrueDynamics(config.world), _visited(config))
    for name, learned in learners.items():
        found = _evaluated(config, learned, keys)
        rows += [
            {"setting": "", "method": name, "seed": seed, "round": 0, **{k: float(v[i]) for k, v in found.items()}}
            for i, seed in enumerate(config.seed_list)
        ]
    return rows


def _evaluated(config: RunConfig, learned: Learned | None, keys: Key[Array, " seeds"]) -> dict[str, np.ndarray]:
    """Returns and success of all tasks, per seed."""
    found = {}
    with SimulatorPool() as pool:
        for task in config.task_names:
            played, label = evaluate(config.task_setup(task), learned, keys, pool=pool), task_label(task)
            found[f"return/{label}"] = played.returns
            if played.success is not None:
                found[f"success/{label}"] = played.success
    return found


def _visited(config: RunConfig) -> Data:
    """States all over the reachable set, where a solver that trains a policy may begin."""
    reachable = config.world.reachable()
    assert reachable is not None
    states, actions, next_states = map(jnp.asarray, reachable)
    data = Data(states, actions, next_states, jnp.asarray(len(states)))
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (config.seeds, *leaf.shape)), data)
