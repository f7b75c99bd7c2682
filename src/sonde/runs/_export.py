"""Write the measurements of a run to FILE.npz, FILE.csv or minari:DATASET; neither model nor code of the run is loaded.

Rows are in the order in which they were measured. An episode of the written file ends where the system was restarted, where a
round ended, and where the next row does not start in the state that this one led to.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically
from sonde.data import SystemSpec, Trajectory
from sonde.methods import Method
from sonde.runs._codec import part_of
from sonde.runs._config import world_label
from sonde.runs._folder import RunFolder
from sonde.runs._measurements import EPISODE, MINARI, csv_columns
from sonde.runs._minari import check_target, write_minari
from sonde.worlds import World


class Measured(NamedTuple):
    """All rows of one seed: N transitions, and where episodes end."""

    states: np.ndarray
    """States before each step [N, dx]."""
    actions: np.ndarray
    """Actions [N, du]."""
    next_states: np.ndarray
    """States after each step [N, dx]."""
    terminated: np.ndarray
    """Where the system itself ended an episode [N]."""
    ended: np.ndarray
    """Where an episode ended for any reason [N]."""

    def episode(self) -> np.ndarray:
        """Number of the episode of each row [N], from 1."""
        return 1 + np.cumsum(self.ended) - self.ended


class Exported(NamedTuple):
    """What was written."""

    path: Path
    """The file, or the folder of the dataset."""
    transitions: int
    """Number of rows."""
    episodes: int
    """Number of episodes."""


def export_run(
    run: RunFolder, out: str, *, seed: int | None = None, initial_data: bool = False, overwrite: bool = False
) -> Exported:
    """Write what one seed of a run has measured.

    Args:
        run: The run.
        out: FILE.npz, FILE.csv or minari:DATASET-v0.
        seed: The seed; by default the first.
        initial_data: Also write, before all others, the measurements that the run started from.
        overwrite: Replace a file or dataset that exists.
    """
    index = run.seed_index(seed)
    _check_target(out, overwrite)
    measured = _measured(run, index, initial_data)
    if out.startswith(MINARI):
        path = _write_minari(out.removeprefix(MINARI), measured, run, run.seeds[index], overwrite)
    else:
        path = Path(out).expanduser()
        write_atomically(path, _as_csv(measured, run.spec) if path.suffix.lower() == ".csv" else _as_npz(measured))
    return Exported(path, len(measured.states), int(measured.ended.sum()))


def _check_target(out: str, overwrite: bool) -> None:
    """Reject a target that cannot or must not be written, before anything is read."""
    if out.startswith(MINARI):
        check_target(out.removeprefix(MINARI), overwrite)
        return
    path = Path(out).expanduser()
    if path.suffix.lower() not in (".npz", ".csv"):
        raise SondeError(f"export: expected --out FILE.npz, FILE.csv or minari:DATASET-v0, got {out}")
    if path.is_dir():
        raise SondeError(f"export: {path} is a folder; name a file")
    if path.exists() and not overwrite:
        raise SondeError(f"export: {path} exists; choose another --out, or replace it with --overwrite")
    if not path.absolute().parent.is_dir():
        raise SondeError(f"export: the folder {path.absolute().parent} does not exist; make it first")


def gathered(rounds: Sequence[Trajectory], initial: Trajectory | None, seed_index: int) -> Measured:
    """Collect all rows of one seed.

    Args:
        rounds: The measurements of each round [S, T, ...].
        initial: The measurements before them [N, ...], if any.
        seed_index: Position of the seed.
    """
    parts = [_part(trajectory, seed_index) for trajectory in rounds]
    if initial is not None:
        first = Trajectory(initial.states[None], initial.actions[None], initial.next_states[None])
        parts.insert(0, _part(first, 0))
    if not parts:
        raise SondeError("the run has no measurements yet")
    return Measured(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _measured(run: RunFolder, seed_index: int, initial_data: bool) -> Measured:
    """The rows to export."""
    rounds, initial = run.load_finished(), run.load_initial_data()
    if initial_data and initial is None:
        raise SondeError(f"{run.folder} has no initial data: leave out --initial-data")
    if not rounds and not initial_data:
        advice = f"run 'sonde resume {run.folder}' first" if initial is None else "add --initial-data for the others"
        raise SondeError(f"{run.folder} has no finished round yet: {advice}")
    return gathered(rounds, initial if initial_data else None, seed_index)


def _part(trajectory: Trajectory, seed_index: int) -> Measured:
    """One seed of a trajectory [S, T, ...]."""
    states, actions, next_states = (
        np.asarray(array[seed_index], dtype=np.float64)
        for array in (trajectory.states, trajectory.actions, trajectory.next_states)
    )
    never = np.zeros(len(states), bool)
    terminated, truncated = (
        never if flags is None else np.asarray(flags[seed_index], dtype=bool)
        for flags in (trajectory.terminated, trajectory.truncated)
    )
    broken = np.append((next_states[:-1] != states[1:]).any(axis=-1), True)
    return Measured(states, actions, next_states, terminated, broken | truncated | terminated)


def _as_npz(measured: Measured) -> bytes:
    buffer = io.BytesIO()
    arrays = {name: getattr(measured, name) for name in ("states", "actions", "next_states", "terminated")}
    np.savez(buffer, **arrays, episode=measured.episode())
    return buffer.getvalue()


def _as_csv(measured: Measured, spec: SystemSpec) -> bytes:
    names = csv_columns(spec)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([EPISODE, *(label for labels in names.values() for label in labels)])
    for number, *arrays in zip(measured.episode(), *(getattr(measured, name) for name in names), strict=True):
        writer.writerow([number, *(repr(float(value)) for value in np.concatenate(arrays))])
    return text.getvalue().encode()


def _write_minari(name: str, measured: Measured, run: RunFolder, seed: int, overwrite: bool) -> Path:
    from sonde import __version__

    method, world, settings = _labels(run)
    stops = np.flatnonzero(measured.ended) + 1
    episodes = []
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        last = np.arange(start, stop) == stop - 1
        terminated = measured.terminated[start:stop]
        episodes.append(
            {
                "observations": np.concatenate([measured.states[start:stop], measured.next_states[stop - 1 : stop]]),
                "actions": measured.actions[start:stop],
                "terminations": terminated,
                "truncations": last & ~terminated,
            }
        )
    facts = {
        "author": {"sonde"},
        "algorithm_name": method,
        "description": (
            f"Measurements that Sonde {__version__} chose ({method}, seed {seed}) to learn the system "
            f"{world!r}. There is no reward: all rewards are 0. Actions are scaled to [-1, 1]."
        ),
        "world": world,
        "world_settings": settings,
        "method": method,
        "seed": seed,
        "state_names": list(run.spec.state_names),
        "action_names": list(run.spec.action_names),
    }
    return write_minari(name, episodes, facts, overwrite)


def _labels(run: RunFolder) -> tuple[str, str, Any]:
    """Names of method and world, and the world's settings; where its code cannot run, what config.json says."""
    method, world = (run.entries.get(name) for name in ("method", "world"))
    named = lambda entry: str(entry.get("label") or entry.get("class", "")).rsplit(":", 1)[-1] if entry else "unknown"
    try:
        method_name = part_of(Method, method, "method").name
    except SondeError:
        method_name = named(method)
    try:
        return method_name, world_label(part_of(World, world, "world")), world
    except SondeError:
        return method_name, named(world), world
