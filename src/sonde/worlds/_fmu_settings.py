"""What is asked of an FMU, and what can be said about it without FMPy."""

import functools
import math
from dataclasses import dataclass
from pathlib import Path

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum
from sonde._internal.reading import read_limited
from sonde._internal.user_code import FMU, MAX_FMU_BYTES


@dataclass(frozen=True)
class FmuSettings:
    """The fields of `FmuWorld`."""

    file: str = "plant.fmu"
    """The FMU, of FMI 2 or 3."""
    inputs: tuple[str, ...] = ()
    """Names of the variables that actions set; by default all of causality input."""
    outputs: tuple[str, ...] = ()
    """Names of the variables that are the state, any real ones; by default all of causality output."""
    dt: float | None = None
    """Seconds from one action to the next; by default the step size that the FMU suggests."""
    ranges: tuple[str, ...] = ()
    """Ranges of inputs as NAME=LOW:HIGH, from action -1 to 1; by default the min and max that the FMU declares."""
    start_values: tuple[str, ...] = ()
    """Parameters and start values as NAME=VALUE, or as NAME=LOW:HIGH to draw one at each start of an episode."""
    reachable_steps: int = 0
    """Steps with coloured random actions, on further copies, that give the transitions on which models are evaluated."""
    processes: bool = False
    """Step each copy in its own process; what allows only one instance in a process always is."""
    sha256: str = ""
    """Checksum of the file, which a run records when it starts; empty for any."""

    def __post_init__(self):
        """Reject invalid settings; the FMU itself is only read when it is needed."""
        if not self.file.endswith(FMU):
            raise SondeError(f"fmu: expected a FILE{FMU}, got {self.file!r}; name one, such as fmu:plant{FMU}")
        if self.dt is not None and not 0 < self.dt < math.inf:
            raise SondeError(f"fmu: dt must be a number of seconds above 0, got {self.dt}")
        if self.reachable_steps < 0:
            raise SondeError(f"fmu: reachable_steps must be 0 (none) or above, got {self.reachable_steps}")
        for text in self.ranges:
            _, low, high = interval(text, "ranges")
            if not low < high:
                raise SondeError(f"fmu: ranges: LOW must be below HIGH, got {text!r}")
        for text in self.start_values:
            assignment(text, "start_values")

    @property
    def path(self) -> Path:
        """Absolute path of the file."""
        return Path(self.file).expanduser().absolute()


def assignment(text: str, where: str) -> tuple[str, str]:
    """Name and value of NAME=VALUE.

    Args:
        text: The text; names may contain the sign =.
        where: The setting, for the error message.
    """
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise SondeError(f"fmu: {where}: expected NAME=VALUE, such as mass=1.5, got {text!r}")
    return name, value


def interval(text: str, where: str) -> tuple[str, float, float]:
    """Name and limits of NAME=LOW:HIGH.

    Args:
        text: The text.
        where: The setting, for the error message.
    """
    name, value = assignment(text, where)
    low, _, high = value.partition(":")
    try:
        limits = float(low), float(high)
    except ValueError:
        limits = math.nan, math.nan
    if not all(map(math.isfinite, limits)):
        raise SondeError(f"fmu: {where}: expected NAME=LOW:HIGH with two numbers, such as torque=-2:2, got {text!r}")
    return name, *limits


def file_checksum(world: FmuSettings) -> str:
    """SHA-256 of an FMU; a file that has changed since it was recorded is rejected.

    Args:
        world: The world.
    """
    path = world.path
    try:
        facts = path.stat()
    except OSError:
        raise SondeError(f"{path} cannot be read; expected an FMU, fmu:FILE{FMU} with the path of an existing file") from None
    found = _checksum(path, facts.st_mtime_ns, facts.st_size)
    if world.sha256 not in ("", found):
        raise SondeError(
            f"{path} has changed: the run began with the SHA-256 {world.sha256[:12]}..., and this file has {found[:12]}...; "
            "restore it, or start over in another folder"
        )
    return found


@functools.lru_cache(maxsize=64)
def _checksum(path: Path, *_: int) -> str:
    """SHA-256 of a file, computed once for each time of its last change."""
    return checksum(read_limited(path, MAX_FMU_BYTES))
