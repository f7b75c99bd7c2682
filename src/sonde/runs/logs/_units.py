"""Units that logs are written in, as factors and offsets to units of the SI; angles are radians, shares are of 1."""

import math
import re
from dataclasses import dataclass

UNITS_HELP = "mm, deg, deg/s, rpm, ms, %, kPa, degC, l/min"

_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "c": 1e-2, "d": 1e-1, "k": 1e3, "M": 1e6, "G": 1e9}
_PREFIXED = {"m": "m", "s": "s", "g": "kg", "N": "N", "V": "V", "A": "A", "W": "W", "Pa": "Pa", "J": "J", "Hz": "Hz"}
_PREFIXED |= {"F": "F", "H": "H", "Ohm": "Ohm", "T": "T", "Nm": "Nm", "rad": "rad", "l": "m^3", "L": "m^3", "bar": "Pa"}
_SCALES = {"g": 1e-3, "l": 1e-3, "L": 1e-3, "bar": 1e5}
_OTHERS = {
    **dict.fromkeys(("deg", "°", "degree", "degrees"), ("rad", math.pi / 180)),
    **dict.fromkeys(("rev", "turn", "turns"), ("rad", 2 * math.pi)),
    "rpm": ("rad/s", 2 * math.pi / 60),
    **dict.fromkeys(("sec", "seconds", "second"), ("s", 1.0)),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "in": ("m", 0.0254),
    "ft": ("m", 0.3048),
    "t": ("kg", 1000.0),
    "%": ("1", 0.01),
    "‰": ("1", 0.001),
    **dict.fromkeys(("-", "none"), ("1", 1.0)),
    **dict.fromkeys(("degC", "°C", "C"), ("degC", 1.0)),
    "K": ("K", 1.0),
    "Ω": ("Ohm", 1.0),
}
_POWER = re.compile(r"(.*?)(?:\^|\*\*)?([23²³])")


@dataclass(frozen=True)
class Unit:
    """A unit of a log, and what it is in units of the system."""

    name: str
    """As the log or the column map has it."""
    base: str
    """Unit of the system that it is converted to."""
    factor: float
    """Size in that unit."""

    @property
    def is_angle(self) -> bool:
        """Whether values are angles, which may jump by a turn."""
        return self.base == "rad"


def unit_named(text: str) -> Unit | None:
    """Find a unit.

    Args:
        text: Its name, such as mm, deg/s or m/s^2.

    Returns:
        The unit; None if it is not known.
    """
    name = text.strip()
    top, slash, bottom = name.partition("/")
    found = _simple(top.strip())
    if found is None or not slash:
        return None if found is None else Unit(name, *found)
    below = _power(bottom.strip())
    if below is None:
        return None
    base, factor = below
    return Unit(name, f"{found[0]}/{base}", found[1] / factor)


def _power(text: str) -> tuple[str, float] | None:
    found = _simple(text)
    if found is None and (power := _POWER.fullmatch(text)):
        exponent = {"²": 2, "³": 3}.get(power[2]) or int(power[2])
        inner = _simple(power[1])
        return None if inner is None else (f"{inner[0]}^{exponent}", inner[1] ** exponent)
    return found


def _simple(text: str) -> tuple[str, float] | None:
    """Base and factor of a unit without a slash."""
    if text in _OTHERS:
        return _OTHERS[text]
    if text in _PREFIXED:
        return _PREFIXED[text], _SCALES.get(text, 1.0)
    prefix, rest = text[:1], text[1:]
    if prefix in _PREFIXES and rest in _PREFIXED:
        return _PREFIXED[rest], _PREFIXES[prefix] * _SCALES.get(rest, 1.0)
    return None
