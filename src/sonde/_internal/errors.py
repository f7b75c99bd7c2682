"""The exception that Sonde raises on purpose, checks that raise it, and the name that was meant where another was given."""

import re
from collections.abc import Iterable

SIMILAR = 0.6
"""Smallest similarity of a name to the one that was given, from 0 to 1, at which it may have been meant."""


class SondeError(ValueError):
    """A setting, file or measurement that cannot be used.

    The message says what was expected, what came and what to do. The command line prints it and exits with status 2.
    """


def first_line(error: BaseException) -> str:
    """First line of another library's error message.

    Args:
        error: The error.

    Returns:
        The line, or the name of the error's class if the message is empty.
    """
    return (str(error).splitlines() or [type(error).__name__])[0]


def one_of(what: str, name: str, names: Iterable[str]) -> None:
    """Reject a name that is not among the expected ones.

    Args:
        what: What the name is of, for the message.
        name: The name that was given.
        names: The expected names.
    """
    known = list(names)
    if name not in known:
        raise SondeError(f"unknown {what} {name!r};{did_you_mean(name, known)} expected one of: {', '.join(sorted(known))}")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant.

    Args:
        name: The name that was given.
        names: The expected names; case, and whether words are joined by - or _, make no difference.

    Returns:
        The most similar of the expected names, or one that begins or ends like the name; None if there is none.
    """
    import difflib  # only where something is wrong already

    given, spelt = _plain(name), {_plain(known): known for known in names}
    close = difflib.get_close_matches(given, spelt, 1, SIMILAR)
    parts = [known for known in spelt if len(given) >= 3 and (known.startswith(given) or given in known.split("-"))]
    return spelt[(close or parts)[0]] if close or parts else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question for an error message, which ends with it or goes on.

    Args:
        name: The name that was given.
        names: The expected names.

    Returns:
        " did you mean 'NAME'?" with the nearest name; empty if none is near.
    """
    meant = nearest(name, names)
    return "" if meant is None else f" did you mean {meant!r}?"


def _plain(name: str) -> str:
    return re.sub(r"[_\s]", "-", name.lower())


LARGEST = 2**31 - 1
"""Largest whole number of a setting: sizes and indices of arrays have 32 bits."""


MAGNITUDE = 1e100
"""Largest real number of a setting, and the inverse of the smallest above 0: their squares can be computed with."""


def whole(owner: str, **values: int) -> None:
    """Reject values that are not integers above 0.

    Args:
        owner: What the values belong to, for the message.
        **values: The values by name.
    """
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SondeError(f"{owner}: {name} must be a whole number above 0, got {value!r}")
        _at_most(owner, name, value)


def positive(owner: str, **values: float | int) -> None:
    """Reject values that are not positive and finite.

    Args:
        owner: What the values belong to, for the message.
        **values: The values by name.
    """
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise SondeError(f"{owner}: {name} must be above 0, got {value}")
        if not 1 / MAGNITUDE <= value <= MAGNITUDE:
            raise SondeError(f"{owner}: {name} must lie between {1 / MAGNITUDE:g} and {MAGNITUDE:g}, got {value:g}")
        _at_most(owner, name, value)


def not_negative(owner: str, **values: float) -> None:
    """Reject values that are negative or not finite.

    Args:
        owner: What the values belong to, for the message.
        **values: The values by name.
    """
    for name, value in values.items():
        if not 0 <= value < float("inf"):
            raise SondeError(f"{owner}: {name} must be 0 or above and finite, got {value}")
        if value > MAGNITUDE:
            raise SondeError(f"{owner}: {name} must be at most {MAGNITUDE:g}, got {value:g}")


def _at_most(owner: str, name: str, value: float | int) -> None:
    if isinstance(value, int) and value > LARGEST:
        raise SondeError(f"{owner}: {name} must be at most {LARGEST:,}, got {value:,}")
