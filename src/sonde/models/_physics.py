"""Physics that is known beforehand: an object with `dynamics(x, u)`, such as a world, or a function of state and action."""

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import jax
from jaxtyping import Array, Float

from sonde._internal.errors import SondeError, did_you_mean, first_line
from sonde._internal.user_code import is_in_file, load_from_file

Ranges = tuple[tuple[str, float, float], ...]
"""Name, smallest and largest value of each unknown parameter."""
STATIC_BRANCH = (
    "its equations are compiled before states and unknown parameters have values: use jnp.where instead of if, and no checks "
    "of numbers"
)


@runtime_checkable
class Dynamics(Protocol):
    """Equations of a system: a world written in JAX, or a frozen dataclass of your own."""

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Compute the next state.

        Args:
            x: State.
            u: Action in [-1, 1].
        """
        ...


Physics = Dynamics | Callable[..., Array] | str
"""An object with `dynamics(x, u)`, a function f(x, u), or FILE.py:NAME of one of them."""


def resolved(physics: Physics) -> Dynamics | Callable[..., Array]:
    """The object or function that a prior names.

    Args:
        physics: The prior; FILE.py:NAME is loaded.
    """
    if not isinstance(physics, str):
        return physics
    found = load_from_file(physics)
    return found() if isinstance(found, type) else found


def equations(physics: Physics, values: Mapping[str, Any]) -> Callable[[Array, Array], Array]:
    """The function (x, u) -> x' of a prior.

    Args:
        physics: The prior.
        values: Values of some of its parameters, which may be traced.
    """
    found = resolved(physics)
    if not isinstance(found, Dynamics):
        return functools.partial(cast(Callable[..., Array], found), **values)
    changed = copy.copy(found)
    for name, value in values.items():  # a dataclass would check its fields, and traced numbers cannot be checked
        object.__setattr__(changed, name, value)
    return changed.dynamics


def check_physics(physics: Any) -> None:
    """Reject what cannot be a prior; nothing is loaded.

    Args:
        physics: What was given.
    """
    if isinstance(physics, str):
        if not is_in_file(physics):
            raise SondeError(f"prior: a text must be FILE.py:NAME, got {physics!r}")
    elif isinstance(physics, type) or not (isinstance(physics, Dynamics) or callable(physics)):
        raise SondeError(
            "prior: expected a function f(x, u), an object with dynamics(x, u) such as Pendulum(mass=1.3), or FILE.py:NAME; "
            f"got {physics!r}"
        )
    elif type(physics).__hash__ is None:
        raise SondeError(f"prior: it must be hashable; declare {type(physics).__name__} as @dataclass(frozen=True)")


def checked_ranges(given: Any) -> Ranges:
    """Ranges in the form that can be hashed and saved.

    Args:
        given: Ranges by name, or in this form already.
    """
    try:
        rows = [(name, *limits) for name, limits in given.items()] if isinstance(given, Mapping) else [tuple(r) for r in given]
        found = tuple((str(name), float(low), float(high)) for name, low, high in rows)
    except (TypeError, ValueError):
        raise SondeError(f"prior: ranges must be like {{'mass': (0.5, 2.0)}}, got {given!r}") from None
    for name, low, high in found:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SondeError(f"prior: the range of {name} must be a smaller and a larger number, got {low:g} and {high:g}")
    names = [name for name, _, _ in found]
    if len(set(names)) < len(names):
        raise SondeError(f"prior: each parameter has one range, got {', '.join(names)}")
    return found


def check_parameters(physics: Physics, names: tuple[str, ...]) -> None:
    """Reject names that are no parameters of a prior.

    Args:
        physics: The prior; FILE.py:NAME is loaded.
        names: Names of its unknown parameters.
    """
    found = resolved(physics)
    if isinstance(found, Dynamics):
        known = [name for name, value in vars(found).items() if isinstance(value, int | float) and not isinstance(value, bool)]
    else:
        parameters = inspect.signature(found).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return
        known = [parameter.name for parameter in parameters][2:]
    for name in names:
        if name not in known:
            have = f"it has {', '.join(known)}" if known else "it has none: write them as f(x, u, mass=1.0)"
            raise SondeError(f"prior: {_described(found)} has no parameter {name!r};{did_you_mean(name, known)} {have}")


def check_shapes(physics: Physics, names: tuple[str, ...], state_dim: int, action_dim: int) -> None:
    """Reject equations that fail, or that are those of a system with other states; nothing is computed.

    Args:
        physics: The prior.
        names: Names of its unknown parameters.
        state_dim: Number of state dimensions dx.
        action_dim: Number of action dimensions du.
    """
    x, u, *values = (jax.ShapeDtypeStruct(shape, float) for shape in ((state_dim,), (action_dim,), *((),) * len(names)))
    name = _described(resolved(physics))
    try:
        found = jax.eval_shape(
            lambda x, u, values: equations(physics, dict(zip(names, values, strict=True)))(x, u), x, u, values
        )
    except SondeError:
        raise
    except jax.errors.ConcretizationTypeError as error:
        raise SondeError(f"prior: {name} failed: {STATIC_BRANCH} ({first_line(error)})") from error
    except Exception as error:
        raise SondeError(
            f"prior: {name} failed for {state_dim} states and {action_dim} actions: {type(error).__name__}: {first_line(error)}"
        ) from error
    if getattr(found, "shape", None) != (state_dim,):
        raise SondeError(f"prior: {name} must return the next state, shape [{state_dim}], got {found}")


def _described(physics: Any) -> str:
    return getattr(physics, "__name__", type(physics).__name__)
