"""Known physics on the command line: `--prior NAME` and `--prior-range NAME=LOW:HIGH ...`."""

import inspect
from typing import Any

from sonde._internal.errors import SondeError, did_you_mean, one_of
from sonde._internal.user_code import is_in_file, load_from_file, with_absolute_path
from sonde.models import KnownPhysics, Model
from sonde.models._known_physics import learner_of
from sonde.models._physics import Dynamics, Ranges, check_parameters, checked_ranges
from sonde.worlds import WORLDS, JaxWorld

PRIOR, RANGES = "--prior", "--prior-range"
PRIORS = {name: kind for name, kind in WORLDS.items() if issubclass(kind, JaxWorld)}
"""Known physics by name: the worlds that are written in JAX."""
FIELDS_HELP = f"{PRIOR} also takes fields of a world: {PRIOR} pendulum:mass=1.3,friction=0"
RANGES_HELP = "unknown parameters of the prior with their ranges, such as mass=0.5:2 friction=0:0.5"


def without_ranges(args: list[str]) -> tuple[list[str], Ranges]:
    """Take the ranges of unknown parameters out of a command line.

    Args:
        args: Its words.

    Returns:
        The other words, and the ranges.
    """
    rest, ranges, reading = list[str](), list[tuple[str, float, float]](), False
    for word in args:
        option, equals, value = word.partition("=")
        if option.replace("_", "-") == RANGES:
            reading = True
            ranges += [_range(value)] if equals else []
        elif reading and not word.startswith("--"):
            ranges.append(_range(word))
        else:
            reading = False
            rest.append(word)
    return rest, checked_ranges(tuple(ranges))


def _range(text: str) -> tuple[str, float, float]:
    name, _, limits = text.partition("=")
    low, _, high = limits.partition(":")
    try:
        return name, float(low), float(high)
    except ValueError:
        raise SondeError(f"{RANGES}: expected NAME=LOW:HIGH, such as mass=0.5:2, got {text!r}") from None


def with_prior(model: Model, name: str | None, ranges: Ranges) -> Model:
    """Put known physics around a model.

    Args:
        model: The model; known physics that it has already is replaced.
        name: WORLD, WORLD:FIELD=VALUE,... or FILE.py:NAME; none for no known physics, and None to leave it as it is.
        ranges: Unknown parameters.
    """
    if name is None and not ranges:
        return model
    if name == "none" or (name is None and not isinstance(model, KnownPhysics)):
        if ranges:
            raise SondeError(f"{RANGES} is for parameters of known physics: name it with {PRIOR}, such as {PRIOR} pendulum")
        return learner_of(model)
    prior = model.prior if isinstance(model, KnownPhysics) and name is None else _named(name or "")
    known = KnownPhysics(learner_of(model), prior, ranges)
    check_parameters(prior, known.names)
    return known


def _named(name: str) -> Any:
    """The physics that a name stands for."""
    if is_in_file(name):
        name = with_absolute_path(name)
        found = load_from_file(name)
        found = found() if isinstance(found, type) else found
        return found if isinstance(found, Dynamics) else name  # functions are saved by name
    world, _, fields = name.partition(":")
    one_of("prior", world, PRIORS)
    kind = PRIORS[world]
    known = list(inspect.signature(kind).parameters)
    values = dict[str, float]()
    for text in filter(None, fields.split(",")):
        field, _, value = text.partition("=")
        if field not in known:
            raise SondeError(f"{PRIOR}: {world} has no {field!r};{did_you_mean(field, known)} it has {', '.join(known)}")
        try:
            values[field] = float(value)
        except ValueError:
            raise SondeError(f"{PRIOR}: expected {world}:FIELD=NUMBER,..., got {text!r}") from None
    return kind(**values)
