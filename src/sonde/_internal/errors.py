"""The one exception that Sonde raises on purpose."""


class SondeError(ValueError):
    """Something a person gave us (a setting, a file, a measurement) cannot be used.

    The message says what was expected, what came, and what to do. The command line prints it and exits with 2.
    """


def first_line(error: Exception) -> str:
    """What another library's error says, in short; its kind if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def one_of(what: str, name: str, names) -> None:
    """Refuse a `name` that is not among `names`."""
    if name not in names:
        raise SondeError(f"unknown {what} {name!r}; expected one of: {', '.join(sorted(names))}")


def whole(owner: str, **values: int) -> None:
    """Refuse values that are not whole numbers above zero."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SondeError(f"{owner}: {name} must be a whole number above 0, got {value!r}")


def positive(owner: str, **values: float | int) -> None:
    """Refuse values that are not above zero and finite (NaN is neither)."""
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise SondeError(f"{owner}: {name} must be above 0, got {value}")
