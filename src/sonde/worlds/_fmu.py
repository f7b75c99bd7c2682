"""Plants of other tools, as FMUs for co-simulation (Functional Mock-up Interface 2 and 3).

This module holds the world; `_fmu_simulators` has everything that needs FMPy and is imported on first use.
"""

from dataclasses import dataclass, replace

from sonde.worlds._base import HostWorld, Simulators, Transitions
from sonde.worlds._fmu_settings import FmuSettings, file_checksum
from sonde.worlds._sampling import reached_by_noise
from sonde.worlds._views import Plane, plane_of_first_two


@dataclass(frozen=True)
class FmuWorld(FmuSettings, HostWorld):
    """A plant of another tool, such as Modelica or Simulink, as an FMU for co-simulation: fmu:FILE.fmu."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self._interface.state_names

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return self._interface.action_names

    @property
    def seconds_per_step(self) -> float:
        """The seconds from one action to the next."""
        from sonde.worlds._fmu_simulators import resolve

        return resolve(self, self._interface).dt

    @property
    def _interface(self):
        from sonde.worlds._fmu_simulators import read_interface

        return read_interface(self, file_checksum(self))

    def located(self) -> "FmuWorld":
        """The same world, valid in any working directory and for this content of the file only."""
        return replace(self, file=str(self.path), sha256=file_checksum(self))

    def open(self, num_copies: int) -> Simulators:
        """Open copies; where the FMU allows only one instance in a process, each has its own process."""
        from sonde.worlds._fmu_simulators import open_fmus

        return open_fmus(self, file_checksum(self), num_copies)

    def reachable(self) -> Transitions | None:
        """Sample what coloured random actions reach within `reachable_steps` steps."""
        return reached_by_noise(self, self.reachable_steps)

    def plane(self) -> Plane | None:
        """The first two outputs."""
        return plane_of_first_two(self.state_names)
