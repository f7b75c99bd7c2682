"""What is done for one batch, in a process of its own: `python -m sonde.runs.sweep._worker KIND FOLDER SETTING`.

It goes on where the folder stands, so it may be killed and started again at any time. It ends when its parent does, which it
knows by the end of its standard input.
"""

import json
import os
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp

from sonde._internal.errors import SondeError
from sonde._internal.machine import this_machine
from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys
from sonde.data import Data
from sonde.evaluation._evaluate import TrueDynamics
from sonde.runs._config import RunConfig
from sonde.runs._run import evaluate_as_configured, run
from sonde.runs._store import RunStore
from sonde.runs.sweep._grid import MACHINES, REFERENCE_FILE, REFERENCES
from sonde.runs.sweep._results import ORACLE, RANDOM_ACTIONS, Results, Row
from sonde.worlds._base import JaxWorld


def work(kind: str, folder: Path, setting: str) -> None:
    """Bring a batch to its end."""
    store = RunStore.open(folder)
    with (folder / MACHINES).open("a") as file:
        file.write(json.dumps(this_machine()) + "\n")
    if kind == REFERENCES:
        with store.locked():
            Results(reference_rows(setting, store.config)).save(folder / REFERENCE_FILE)
    else:
        run(store, lambda *_: None)


@double_precision
def reference_rows(setting: str, config: RunConfig) -> list[Row]:
    """Returns of random actions and, on worlds written in JAX, of the same solver on the true system."""
    world, keys = config.world, round_keys(config.seed_list, 0)
    rows = []
    planners = {RANDOM_ACTIONS: None, **({ORACLE: TrueDynamics(world)} if isinstance(world, JaxWorld) else {})}
    for name, posterior in planners.items():
        found = {}
        for task in config.task_names:
            played = evaluate_as_configured(config, task, posterior, keys, None if posterior is None else _visited(config))
            found[f"return/{task}"] = played.returns
            if played.success is not None:
                found[f"success/{task}"] = played.success
        rows += [
            {"setting": setting, "method": name, "seed": seed, "round": 0, **{k: float(v[i]) for k, v in found.items()}}
            for i, seed in enumerate(config.seed_list)
        ]
    return rows


def _visited(config: RunConfig) -> Data:
    """States all over the reachable set, where a solver that trains a policy may begin."""
    reachable = config.world.reachable()
    assert reachable is not None
    states, actions, next_states = map(jnp.asarray, reachable)
    data = Data(states, actions, next_states, jnp.asarray(len(states)))
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (config.seeds, *leaf.shape)), data)


def _end_with_parent() -> None:
    def wait() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock would be held when the process ends
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Entry point of the process."""
    from sonde.cli._main import remember_compilations

    kind, folder, setting = sys.argv[1:]
    _end_with_parent()
    remember_compilations()
    try:
        work(kind, Path(folder), setting)
    except SondeError as error:
        print(f"sonde: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
