"""How well a model predicts measurements that it has not seen, one step and many steps ahead.

Errors are root mean squares in units of each state's spread, beside those of two predictions that anybody can make: that
nothing changes, and an affine function by least squares.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.past import Past
from sonde._internal.reading import MAX_JSON_BYTES, parse_json, read_limited
from sonde.data import Trajectory
from sonde.evaluation._coverage import OUTSIDE, PARTICLES, QUANTILE
from sonde.models import Posterior
from sonde.runs._simulation import Simulation, predicted, simulated

WINDOWS = 100
"""Most starts of simulations; they lie evenly among all that there are."""
BAND = 1 - 2 * OUTSIDE / (PARTICLES + 1)
"""Share of measurements that bands are meant to contain: 0.9."""
MODEL, AFFINE, NOTHING = "model", "affine", "no change"
FORMAT = 1


@dataclass(frozen=True)
class Judgement:
    """How well a model predicts held-out measurements; errors are shares of the spread of each state."""

    states: tuple[str, ...]
    """Names of the states."""
    fitted: int
    """Transitions that the judged model was fitted on."""
    held_out: int
    """Transitions that it had not seen."""
    split: str
    """Which those are, in words."""
    steps: tuple[int, ...]
    """Steps ahead of each prediction: 1, and the length of a simulation."""
    windows: tuple[int, ...]
    """Predictions that each error is computed from."""
    spread: tuple[float, ...]
    """Standard deviation of each state in the fitted measurements, in its own unit."""
    errors: dict[str, tuple[tuple[float, ...], ...]]
    """Errors [steps, dx] of the model, of affine least squares and of predicting no change; mean over seeds."""
    coverage: tuple[tuple[float, ...], ...]
    """Shares of the measurements in the model's 90 % bands [steps, dx]."""
    final: str
    """What the model of the run was fitted on after this, in words."""

    def to_json(self) -> str:
        """Write it."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> "Judgement":
        """Read what `to_json` wrote.

        Args:
            text: The document.
            source: Its path, for error messages.
        """
        entries = parse_json(text, source)
        names = {field.name for field in fields(cls)}
        if not isinstance(entries, dict) or entries.pop("format", None) != FORMAT or entries.keys() != names:
            raise SondeError(f"{source} is not the judgement of a fit; run 'sonde fit' again")
        tuples = lambda value: tuple(map(tuples, value)) if isinstance(value, list) else value
        entries = {name: tuples(value) for name, value in entries.items()}
        try:
            entries["errors"] = {name: tuples(value) for name, value in entries["errors"].items()}
            found = cls(**entries)
            shapes = {np.shape(table) for table in (*found.errors.values(), found.coverage)}
        except (AttributeError, TypeError, ValueError):
            shapes = set()
        if shapes != {(len(entries["steps"]), len(entries["states"]))}:
            raise SondeError(f"{source} is not the judgement of a fit; run 'sonde fit' again")
        return found


def judgement_path(folder: Path) -> Path:
    """Where a run that was fitted to measurements keeps its judgement.

    Args:
        folder: Folder of the run.
    """
    return folder / "fit.json"


def judgement_of(folder: Path) -> Judgement | None:
    """The judgement of a run; None if it was not made by a fit.

    Args:
        folder: Folder of the run.
    """
    path = judgement_path(folder)
    return Judgement.from_json(read_limited(path, MAX_JSON_BYTES), str(path)) if path.is_file() else None


class HeldOut(NamedTuple):
    """Held-out measurements as a model is given them: rows [M, ...], of which those of one episode follow each other."""

    states: np.ndarray
    inputs: np.ndarray
    """Actions, after the past if there is one [M, dz]."""
    next_states: np.ndarray

    def stretches(self) -> list[tuple[int, int]]:
        """First row and length of each unbroken stretch of time."""
        starts = np.flatnonzero(episode_begins(self.states, self.next_states))
        return list(zip(starts.tolist(), np.diff(np.append(starts, len(self.states))).tolist(), strict=True))

    def windows(self, steps: int, most: int) -> np.ndarray:
        """First rows of windows without a break, evenly among all that there are.

        Args:
            steps: Length of a window.
            most: Most windows.
        """
        every = [np.arange(first, first + length - steps + 1) for first, length in self.stretches() if length >= steps]
        starts = np.concatenate(every) if every else np.zeros(0, int)
        return starts[np.unique(np.linspace(0, len(starts) - 1, min(most, len(starts))).round().astype(int))]


def episode_begins(states: np.ndarray, next_states: np.ndarray) -> np.ndarray:
    """Where rows do not continue the ones before them, bool [N].

    Args:
        states: States before each step [N, dx].
        next_states: States after it [N, dx].
    """
    return np.append(True, (next_states[:-1] != states[1:]).any(axis=-1))


def last_share(measured: Trajectory, share: float) -> tuple[int, str]:
    """Where the held-out part of a log begins.

    It is the fewest last episodes that have at least the share, if they have no more than twice that; otherwise the last share
    of the rows, which cuts an episode in two.

    Args:
        measured: Transitions [N, ...].
        share: Share of the rows.

    Returns:
        The first held-out row, and the part in words.
    """
    count = len(measured.states)
    if not 0 < share < 1 or not 1 <= round(share * count) < count:
        raise SondeError(f"fit: holdout must be a share between 0 and 1 that leaves rows on both sides of {count}, got {share}")
    begins = np.flatnonzero(episode_begins(measured.states, measured.next_states))
    enough = begins[begins <= count - share * count]
    if len(enough) and count - enough[-1] <= min(2 * share, 0.5) * count:
        number = int((begins >= enough[-1]).sum())
        said = f"the last {number} of {len(begins)} episodes" if number > 1 else f"the last of {len(begins)} episodes"
        return int(enough[-1]), said
    return count - round(share * count), f"the last {100 * share:g} % of the rows"


class _Affine:
    """x' = A x + B z + c by least squares."""

    def __init__(self, states: np.ndarray, inputs: np.ndarray, next_states: np.ndarray):
        rows = np.concatenate([states, inputs, np.ones((len(states), 1))], axis=1)
        self._matrix = np.linalg.lstsq(rows, next_states, rcond=None)[0]

    def simulated(self, starts: np.ndarray, inputs: np.ndarray, past: Past) -> np.ndarray:
        """The states after each step [N, T, dx]."""
        before, own = past.split(inputs, starts.shape[-1])
        x, before, found = starts, before[:, 0], []
        for t in range(inputs.shape[1]):
            u = own[:, t]
            x_next = np.concatenate([x, before, u, np.ones((len(x), 1))], axis=1) @ self._matrix
            before = past.moved(before, x, u, x_next)
            x = x_next
            found.append(x)
        return np.stack(found, axis=1)


class Judge:
    """Compares a model with held-out measurements."""

    def __init__(self, fitted: HeldOut, held_out: HeldOut, past: Past, steps: int):
        """Prepare the predictions that need no model.

        Args:
            fitted: The measurements that models are fitted on.
            held_out: Those that they are judged on.
            past: What of the past belongs to the state.
            steps: Steps of a simulation; as many as an episode has, where they are shorter.
        """
        self.held_out, self.past = held_out, past
        longest = max(length for _, length in held_out.stretches())
        self.steps = (1, min(steps, longest)) if min(steps, longest) > 1 else (1,)
        self.spread = np.maximum(fitted.states.std(axis=0), np.finfo(float).tiny)
        self._affine = _Affine(*fitted)
        self._starts = [held_out.windows(steps, WINDOWS if steps > 1 else 100 * WINDOWS) for steps in self.steps]

    @property
    def windows(self) -> tuple[int, ...]:
        """Predictions of each length."""
        return tuple(map(len, self._starts))

    def _window(self, steps: int, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts [W, dx], inputs [W, T, dz] and the measured states after each step [W, T, dx]."""
        rows = first[:, None] + np.arange(steps)
        return self.held_out.states[first], self.held_out.inputs[rows], self.held_out.next_states[rows]

    def _error(self, found: np.ndarray, measured: np.ndarray) -> np.ndarray:
        """Root mean square per state, in units of its spread; infinite where a simulation left all numbers."""
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.sqrt(np.mean(((found - measured) / self.spread) ** 2, axis=0))
        return np.where(np.isfinite(error), error, np.inf)

    def of_model(self, posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
        """Errors and coverage of a model.

        Args:
            posterior: The posterior of one seed.

        Returns:
            Errors [steps, dx] in units of the spread, and the shares of the measurements in its 90 % bands [steps, dx].
        """
        errors, inside = [], []
        for steps, first in zip(self.steps, self._starts, strict=True):
            starts, inputs, measured = self._window(steps, first)
            end = measured[:, -1]
            if steps == 1:
                found = predicted(posterior, starts, inputs[:, 0])
                std = np.sqrt(np.asarray(found.epistemic_std) ** 2 + np.asarray(found.aleatoric_std) ** 2)
                mean, within = np.asarray(found.mean), np.abs(end - np.asarray(found.mean)) <= QUANTILE * std
            else:
                band = simulated(posterior, starts, inputs, self.past, PARTICLES, BAND)
                mean, within = band.mean[:, -1], (band.low[:, -1] <= end) & (end <= band.high[:, -1])
            errors.append(self._error(mean, end))
            inside.append(within.mean(axis=0))
        return np.array(errors), np.array(inside)

    def of_baselines(self) -> dict[str, np.ndarray]:
        """Errors [steps, dx] of affine least squares and of predicting no change."""
        found = {AFFINE: [], NOTHING: []}
        for steps, first in zip(self.steps, self._starts, strict=True):
            starts, inputs, measured = self._window(steps, first)
            with np.errstate(over="ignore", invalid="ignore"):
                ahead = self._affine.simulated(starts, inputs, self.past)[:, -1]
            found[AFFINE].append(self._error(ahead, measured[:, -1]))
            found[NOTHING].append(self._error(starts, measured[:, -1]))
        return {name: np.array(errors) for name, errors in found.items()}

    def examples(self, posterior: Posterior, count: int, steps: int) -> list[tuple[np.ndarray, Simulation]]:
        """Long simulations to look at, from the beginnings of the longest stretches.

        Args:
            posterior: The posterior of one seed.
            count: Most of them.
            steps: Most steps of each.

        Returns:
            The measured states, the first one included [T + 1, dx], and the simulation of each [1, T, dx].
        """
        found = []
        for first in self._places(count, steps):
            length = next(start + size - first for start, size in self.held_out.stretches() if start <= first < start + size)
            starts, inputs, measured = self._window(min(steps, length), np.array([first]))
            band = simulated(posterior, starts, inputs, self.past, PARTICLES, BAND)
            found.append((np.concatenate([starts, measured[0]]), band))
        return found

    def _places(self, count: int, steps: int) -> list[int]:
        """First rows of examples: of different episodes if there are several, else one after the other."""
        longest = sorted(self.held_out.stretches(), key=lambda stretch: -stretch[1])
        if len(longest) > 1:
            return sorted(first for first, _ in longest[:count])
        first, length = longest[0]
        return list(range(first, first + length, steps))[: max(1, min(count, length // steps))]


def judged(judge: Judge, posteriors: Sequence[Posterior], facts: dict[str, Any]) -> Judgement:
    """Judge the models of all seeds; the result is their mean.

    Args:
        judge: The judge.
        posteriors: The posterior of each seed.
        facts: What else belongs to the judgement: names, counts and words.
    """
    errors, inside = (np.mean(each, axis=0) for each in zip(*map(judge.of_model, posteriors), strict=True))
    table = lambda array: tuple(tuple(map(float, row)) for row in array)
    tables = {MODEL: table(errors), **{name: table(each) for name, each in judge.of_baselines().items()}}
    spread = tuple(map(float, judge.spread))
    return Judgement(steps=judge.steps, windows=judge.windows, spread=spread, errors=tables, coverage=table(inside), **facts)
