"""Where the numbers of a figure come from: configs, machines, versions, seconds; kept when the runs are gone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.grid import Grid
from experiments.references import REFERENCES
from sonde._internal.errors import SondeError
from sonde.runs import RunConfig
from sonde.runs._codec import from_json, to_json
from sonde.runs._config import differences
from sonde.runs.sweep import Batch

FILE = "provenance.json"


def provenance(scale: str, grid: Grid, path: Path) -> dict[str, Any]:
    """Facts about the runs that are here, and what `path` says of earlier ones.

    It is an error if runs that are here would be put together with earlier ones that had other settings. Where none are here,
    earlier ones stay as recorded, also if presets have changed since.
    """
    earlier = read(path)
    batches = [batch for batch in grid.batches() if batch.rows()]
    here = {batch.setting for batch in batches}
    _check({name: facts for name, facts in earlier["batches"].items() if facts["setting"] in here}, grid, path)
    machines = [machine for batch in batches for machine in batch.machines()]
    return {
        "scale": scale,
        "settings": "lite" if grid.lite else "paper",
        "machines": joined([*earlier["machines"], *machines]),
        "batches": earlier["batches"] | {f"{b.setting} {b.method} {b.folder.name}": _facts(b) for b in batches},
    }


def _facts(batch: Batch) -> dict[str, Any]:
    seconds = {row["round"]: sum(v for k, v in row.items() if k.startswith("seconds/")) for row in batch.rows()}
    return {
        "setting": batch.setting,
        "method": batch.method,
        "rounds": batch.rounds_done(),
        "of": batch.rounds,
        "seconds": round(sum(seconds.values()), 1),
        "config": json.loads(to_json(batch.config)),
    }


def read(path: Path) -> dict[str, Any]:
    """What a file says of the making of results; nothing, if there is no such file."""
    if not path.exists():
        return {"machines": [], "batches": {}}
    try:
        found = json.loads(path.read_text())
        for machine in found["machines"]:
            machine["device"], machine["processor"]
        for facts in found["batches"].values():
            facts["setting"], facts["method"], facts["of"], facts["seconds"], facts["config"]
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SondeError(f"{path} does not say where results come from ({error}); restore it, or remove its folder") from None


def _check(batches: dict[str, Any], grid: Grid, path: Path) -> None:
    """Numbers are put together only if they were made with the same settings; numbers of seeds and rounds may differ."""
    for name, facts in batches.items():
        if facts["setting"] in grid.settings and facts["method"] in (*grid.methods, REFERENCES):
            saved = from_json(RunConfig, json.dumps(facts["config"]), f"{path}: {name}")
            wanted = grid.config(facts["setting"], facts["method"])
            if differing := list(differences(comparable(saved), comparable(wanted))):
                others = "; ".join(differing)
                raise SondeError(f"{path}: {name} was made with other settings: {others}; name another folder with --out")


def comparable(config: RunConfig) -> RunConfig:
    """A config without what may differ between results that are put together."""
    return replace(config, rounds=1, seeds=1, first_seed=0, evaluate_every=1)


def joined(entries: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Machines, each once."""
    return [entry for i, entry in enumerate(entries) if entry not in entries[:i]]
