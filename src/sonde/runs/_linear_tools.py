"""What `sonde analyse --at` and `--lqr` print and write: the system at a point, and regulators there, as plain numbers."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from sonde._internal.errors import SondeError, did_you_mean
from sonde._internal.precision import double_precision
from sonde.analysis import Equilibrium, LearnedSystem, Linearisation, OperatingPoint, Regulator, Weights, lqr, robust_lqr


@dataclass(frozen=True)
class LinearRequest:
    """What is asked about a point."""

    dt: float | None = None
    """Seconds per step, for the system in continuous time; None if a step has no duration."""
    regulator: bool = False
    """Whether to design a regulator."""
    weights: str = ""
    """Its weights, as text: `Q,Q,...;R,...`; empty for Bryson's rule."""
    share: float | None = None
    """Share of the plausible systems that it must stabilise; None for the regulator of the mean."""


def numbers_in(text: str, names: tuple[str, ...], what: str) -> np.ndarray:
    """Read numbers such as `0.1,0` or `th=0.1,thdot=0`.

    Args:
        text: The text.
        names: The names, in order.
        what: What the numbers are, for error messages.

    Returns:
        One number per name.
    """
    parts, known = [part.strip() for part in text.split(",") if part.strip()], ", ".join(names)
    if any("=" in part for part in parts):
        split = [part.partition("=") for part in parts]
        pairs = {name.strip(): value.strip() for name, _, value in split}
        if len(pairs) < len(parts):
            raise SondeError(f"{what}: expected each name once, got {text!r}")
        for name in pairs.keys() - set(names):
            raise SondeError(f"{what}: unknown name {name!r};{did_you_mean(name, names)} expected {known}")
        if missing := [name for name in names if name not in pairs]:
            raise SondeError(f"{what}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing from {text!r}")
        parts = [pairs[name] for name in names]
    try:
        values = np.array([float(part) for part in parts])
    except ValueError:
        raise SondeError(f"{what}: expected numbers for {known}, got {text!r}") from None
    if len(values) != len(names) or not np.isfinite(values).all():
        raise SondeError(f"{what}: expected {len(names)} finite numbers, for {known}, got {text!r}")
    return values


def _halves(text: str, what: str) -> tuple[str, str]:
    first, separator, second = text.partition(";")
    if ";" in second:
        raise SondeError(f"{what}: expected at most one ';', between states and actions, got {text!r}")
    return first, second if separator else ""


@double_precision
def place_in(text: str, system: LearnedSystem, action: tuple[float, ...], samples: int) -> OperatingPoint:
    """Study the system at a point that is given as text.

    Args:
        text: Coordinates or state, then `;` and the action if it is not that of `action`.
        system: The system.
        action: The action [du] where the text has none; empty for zero.
        samples: Number of samples of A and B.
    """
    first, second = _halves(text, "at")
    world, coordinates = system.world, system.coordinates
    given = [part.partition("=")[0].strip() for part in first.split(",") if part.strip()]
    named = "=" in first
    as_state = set(given) <= set(world.state_names) if named else len(given) == world.state_dim != len(coordinates.names)
    if as_state and coordinates.names != world.state_names:
        state = numbers_in(first, world.state_names, "at")
    else:
        state = np.asarray(coordinates.to_state(jnp.asarray(numbers_in(first, coordinates.names, "at"))))
    if second and action:
        raise SondeError("at: the action is given twice, after ';' and by --action; leave out one of them")
    return system.at(state, numbers_in(second, world.action_names, "at") if second else action or None, samples)


def weights_in(text: str, system: LearnedSystem) -> Weights:
    """Read weights.

    Args:
        text: Diagonal of Q, then `;` and the diagonal of R; empty for Bryson's rule.
        system: The system.
    """
    if not text:
        return Weights.by_range(system)
    first, second = _halves(text, "weights")
    if not first or not second:
        raise SondeError(f"weights: expected weights of the coordinates, ';' and weights of the actions, got {text!r}")
    names = system.coordinates.names
    return Weights.of(numbers_in(first, names, "weights"), numbers_in(second, system.world.action_names, "weights"))


def regulator_of(system: LearnedSystem, place: OperatingPoint | Equilibrium, request: LinearRequest) -> Regulator | None:
    """The regulator that was asked for, if any.

    Args:
        system: The system.
        place: Where.
        request: What is asked.
    """
    if not request.regulator and request.share is None:
        return None
    weights = weights_in(request.weights, system)
    return lqr(system, place, weights) if request.share is None else robust_lqr(system, place, weights, request.share)


def linear_part(linear: Linearisation) -> dict[str, Any]:
    """A linearisation as plain numbers, complex ones as pairs.

    Args:
        linear: The linearisation.
    """
    control = linear.controllability
    low, high = np.quantile(linear.spectral_radius_samples, [0.025, 0.975])
    return {
        "eigenvalues": _pairs(linear.eigenvalues),
        "eigenvalue_std": linear.eigenvalue_std.tolist(),
        "spectral_radius": linear.spectral_radius,
        "spectral_radius_95": [float(low), float(high)],
        "stability": linear.stability,
        "controllability": {"rank": control.rank, "smallest": control.smallest, "std": control.std},
        **_matrices(linear),
    }


def _matrices(linear: Linearisation) -> dict[str, Any]:
    return {name: getattr(linear, name).tolist() for name in ("A", "B", "A_std", "B_std")}


def _pairs(values: np.ndarray) -> list[list[float]]:
    return [[value.real, value.imag] for value in values.tolist()]


def described_point(place: OperatingPoint, request: LinearRequest) -> dict[str, Any]:
    """A point as plain numbers.

    Args:
        place: The point.
        request: What is asked.
    """
    names = ("point", "state", "action", "next_point", "drift", "drift_std")
    found = {name: getattr(place, name).tolist() for name in names} | linear_part(place.linearisation)
    return found | continuous_part(place.linearisation, request.dt)


def continuous_part(linear: Linearisation, dt: float | None) -> dict[str, Any]:
    """The system in continuous time as plain numbers, under the key `continuous`; nothing without a duration of a step.

    Args:
        linear: The linearisation.
        dt: Seconds per step, if known.
    """
    if dt is None:
        return {}
    try:
        found = linear.continuous(dt)
    except SondeError as error:
        return {"continuous": {"dt": dt, "none": str(error)}}
    values = {"eigenvalues": _pairs(found.eigenvalues), "eigenvalue_std": found.eigenvalue_std.tolist()}
    return {"continuous": {"dt": dt, **values, "samples": len(found.A_samples), **_matrices(found)}}


def described_regulator(regulator: Regulator) -> dict[str, Any]:
    """A regulator as plain numbers; `feedback` has an error in its place where nothing holds the system.

    Args:
        regulator: The regulator.
    """
    promise, closed = regulator.promise, regulator.closed_loop
    try:
        point, held = regulator.target[0].tolist(), regulator.feedback
        feedback: dict[str, Any] = {name: getattr(held, name).tolist() for name in ("gain", "state", "action")}
        feedback["point"] = point
    except SondeError as error:
        feedback = {"none": str(error)}
    return {
        "gain": regulator.gain.tolist(),
        "cost": regulator.cost.tolist(),
        "weights": {"states": regulator.weights.states.tolist(), "actions": regulator.weights.actions.tolist()},
        "closed_loop": {"eigenvalues": _pairs(closed.eigenvalues), "eigenvalue_std": closed.eigenvalue_std.tolist()},
        "feedback": feedback,
        "promise": {
            "stabilised": promise.stabilised,
            "systems": promise.systems,
            "share": promise.share,
            "bound": promise.bound,
            "confidence": promise.confidence,
            "wanted": promise.wanted,
            "kept": promise.kept,
            "says": str(promise),
        },
    }


def check_request(request: LinearRequest) -> None:
    """Reject what cannot be asked, before any work.

    Args:
        request: What is asked.
    """
    if request.share is not None and not 0 < request.share < 1:
        raise SondeError(f"robust: the share must lie between 0 and 1, got {request.share}")
    if request.dt is not None and not (0 < request.dt < math.inf):
        raise SondeError(f"dt: expected seconds per step above 0, got {request.dt}")
    if request.weights and not request.regulator and request.share is None:
        raise SondeError("weights are those of a regulator: add --lqr, or leave them out")
