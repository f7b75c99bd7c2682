"""Frequency and step responses of a linearisation with bands, and the linearisation as a system of python-control."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError, positive, whole
from sonde.analysis._linear import Linearisation
from sonde.analysis._plausible import plausible

DECADES, FREQUENCIES = 3, 200
"""Decades of frequencies below the highest that measurements can show, and the number of frequencies, by default."""


def to_control(
    linear: Linearisation, dt: float | None = None, states: Sequence[str] | None = None, inputs: Sequence[str] | None = None
) -> Any:
    """The mean as a state-space system of the package python-control, whose outputs are its states.

    Args:
        linear: The linearisation.
        dt: Seconds per step; 0 for a linearisation in continuous time, None if a step has no duration.
        states: Names of the states.
        inputs: Names of the actions.

    Returns:
        A `control.StateSpace`.
    """
    try:
        control = importlib.import_module("control")
    except ImportError:
        raise SondeError("to_control needs the package control: pip install 'sonde[control]'") from None
    (d, du), names = linear.B.shape, dict[str, list[str]]()
    if states is not None:
        names |= {"states": list(states), "outputs": list(states)}
    if inputs is not None:
        names["inputs"] = list(inputs)
    return control.ss(linear.A, linear.B, np.eye(d), np.zeros((d, du)), True if dt is None else dt, **names)


@dataclass(frozen=True)
class FrequencyResponse:
    """How deviations of the state answer a sine of the action, at F frequencies."""

    frequencies: np.ndarray
    """Frequencies in rad/s [F]."""
    mean: np.ndarray
    """Complex response of the mean system [F, d, du]."""
    magnitude_band: np.ndarray
    """Limits between which the magnitude of the stated share of plausible systems lies, at each frequency [2, F, d, du]."""
    phase_band: np.ndarray
    """The same of the phase, in rad, around that of the mean [2, F, d, du]."""
    share: float
    """The share."""

    @property
    def magnitude(self) -> np.ndarray:
        """Magnitude of the mean system [F, d, du]."""
        return np.abs(self.mean)

    @property
    def phase(self) -> np.ndarray:
        """Phase of the mean system in rad, without jumps [F, d, du]."""
        return np.unwrap(np.angle(self.mean), axis=0)


@dataclass(frozen=True)
class StepResponse:
    """How deviations of the state answer a step of the action by 1."""

    times: np.ndarray
    """Times in seconds, or steps [T + 1]."""
    mean: np.ndarray
    """Deviations of the mean system [T + 1, d, du]; one column per action."""
    band: np.ndarray
    """Limits between which those of the stated share of plausible systems lie, at each time [2, T + 1, d, du]."""
    share: float
    """The share."""


def _check(share: float) -> None:
    if not 0 < share < 1:
        raise SondeError(f"response: share must lie between 0 and 1, got {share}")


def frequency_response(
    linear: Linearisation, dt: float = 1.0, frequencies: np.ndarray | None = None, share: float = 0.95
) -> FrequencyResponse:
    """Frequency response from the actions to all coordinates.

    Args:
        linear: The linearisation, in discrete time.
        dt: Seconds per step.
        frequencies: Frequencies in rad/s [F], at most pi / dt; by default the three decades below.
        share: Share of the plausible systems inside the bands.
    """
    positive("response", dt=dt)
    _check(share)
    highest = np.pi / dt
    given = np.geomspace(highest / 10**DECADES, highest, FREQUENCIES) if frequencies is None else np.asarray(frequencies, float)
    if given.ndim != 1 or not len(given) or not ((given > 0) & (given <= highest * (1 + 1e-9))).all():
        raise SondeError(f"response: frequencies must lie between 0 and pi / dt = {highest:.4g} rad/s, got {given.tolist()}")
    systems, identity = plausible(linear), np.eye(len(linear.A))
    mean, magnitudes, turns = [], [], []
    tails = [(1 - share) / 2, (1 + share) / 2]
    for z in np.exp(1j * given * dt):
        centre = np.linalg.solve(z * identity - linear.A, linear.B)
        each = np.linalg.solve(z * identity - systems.A, systems.B)
        mean.append(centre)
        magnitudes.append(np.quantile(np.abs(each), tails, axis=0))
        # of an entry that is exactly 0 there is no phase
        turns.append(np.quantile(np.angle(each * centre.conj()), tails, axis=0))
    found = np.stack(mean)
    phase = np.unwrap(np.angle(found), axis=0) + np.stack(turns, axis=1)
    return FrequencyResponse(given, found, np.stack(magnitudes, axis=1), phase, share)


def step_response(linear: Linearisation, steps: int, dt: float = 1.0, share: float = 0.95) -> StepResponse:
    """Response of all coordinates to a constant action that begins at time 0.

    Args:
        linear: The linearisation, in discrete time.
        steps: Number of steps T.
        dt: Seconds per step.
        share: Share of the plausible systems inside the bands.
    """
    whole("response", steps=steps)
    positive("response", dt=dt)
    _check(share)
    systems = plausible(linear)
    q, each = np.zeros_like(linear.B), np.zeros_like(systems.B)
    mean, bands = [q], [np.zeros((2, *q.shape))]
    for _ in range(steps):
        q, each = linear.A @ q + linear.B, systems.A @ each + systems.B
        mean.append(q)
        bands.append(np.quantile(each, [(1 - share) / 2, (1 + share) / 2], axis=0))
    return StepResponse(dt * np.arange(steps + 1), np.stack(mean), np.stack(bands, axis=1), share)
