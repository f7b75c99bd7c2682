"""How a log is to be read, as plain values that go to a run's config."""

from dataclasses import dataclass
from typing import Literal

from sonde._internal.errors import SondeError, positive, whole
from sonde.runs.logs._columns import columns_of

NO_TIME = "none"
"""What stands in place of a time column for rows that are one step apart, whatever a clock says."""
POLYNOMIAL = 3
"""Degree of the polynomials whose slopes are velocities."""


@dataclass(frozen=True)
class LogFormat:
    """How to read a log: its columns, its clock, and what to do where samples are lost."""

    columns: tuple[str, ...] = ()
    """What states and actions are in the log: "x1=position [mm]", "u=voltage -24..24", "v=d/dt(position [mm])"; those that
    are not named here have columns of their own name."""
    time_column: str | None = None
    """The clock, with its unit: "t [ms]", or a column of ISO time stamps. By default a column called time, timestamp or t;
    none for rows that are one step apart."""
    dt: float | None = None
    """Step of the system in seconds; by default that of the simulator, or the average time between samples."""
    irregular: Literal["cut", "resample"] = "cut"
    """What happens where samples are not one step apart: a new episode begins (cut), or samples are put on a grid of dt, states
    interpolated linearly and actions held (resample)."""
    jitter: float = 0.1
    """Largest difference of a sample's step from dt that counts as none, as a share of dt."""
    max_gap: int = 2
    """Longest gap in steps that resampling bridges; at a longer one a new episode begins."""
    velocity_window: int = 7
    """Samples that a velocity d/dt(...) is computed from: the slope of a cubic polynomial (Savitzky-Golay)."""
    delimiter: Literal["auto", "comma", "semicolon", "tab"] = "auto"
    """What separates the cells of a text file; by default what its header says."""
    decimal_comma: bool = False
    """Numbers are written with a comma: 0,25."""
    skip_lines: int = 0
    """Lines of a text file before its header; lines that begin with # are never data."""

    def __post_init__(self):
        """Reject what cannot be."""
        columns_of(self.columns)
        whole("log", max_gap=self.max_gap, velocity_window=self.velocity_window)
        if self.dt is not None:
            positive("log", dt=self.dt)
        if not 0 < self.jitter < 0.5:
            raise SondeError(f"log: jitter must lie between 0 and 0.5 of a step, got {self.jitter}")
        if self.velocity_window % 2 == 0 or self.velocity_window <= POLYNOMIAL:
            raise SondeError(f"log: velocity_window must be odd and at least {POLYNOMIAL + 2}, got {self.velocity_window}")
        if self.skip_lines < 0:
            raise SondeError(f"log: skip_lines must be 0 or above, got {self.skip_lines}")
        if self.decimal_comma and self.delimiter == "comma":
            raise SondeError("log: decimal commas and commas between cells cannot be told apart; say --delimiter semicolon")
