"""FMUs on Gymnasium's vector environments, so that copies in processes, restarts and named errors are those of `gym:ENV`.

An archive is unpacked once per process, into a temporary folder that is removed when the process ends.
"""

import atexit
import functools
import io
import math
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from sonde._internal.errors import SondeError, did_you_mean, first_line
from sonde._internal.files import checksum
from sonde._internal.reading import read_limited
from sonde._internal.user_code import MAX_FMU_BYTES
from sonde.worlds._fmu_instance import FmuFailure, FmuInstance, load_fmpy
from sonde.worlds._fmu_settings import FmuSettings, assignment, file_checksum, interval
from sonde.worlds._gym_simulators import FlatEnv, GymSimulators

SETTABLE = ("exact", "approx")
"""What `initial` of a variable must say so that it takes a start value."""


class FmuInterface(NamedTuple):
    """The variables of an FMU that a world asks for; the rest may be given by options later."""

    inputs: tuple[Any, ...]
    """The variables that actions set."""
    outputs: tuple[Any, ...]
    """The variables that are the state."""
    description: Any
    """FMPy's description of the model."""
    folder: Path
    """Where the FMU is unpacked."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(variable.name for variable in self.outputs)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(variable.name for variable in self.inputs)


class Settings(NamedTuple):
    """What else an instance needs to be stepped."""

    low: np.ndarray
    """Values of the inputs at action -1."""
    high: np.ndarray
    """Values of the inputs at action 1."""
    dt: float
    """Seconds per step."""
    start_values: tuple[tuple[Any, str | tuple[float, float]], ...]
    """Variables with their start value, or with the limits between which it is drawn."""


def open_fmus(world: FmuSettings, digest: str, num_copies: int) -> GymSimulators:
    """Open copies of an FMU.

    Args:
        world: The world.
        digest: Checksum of its file.
        num_copies: Number of copies S.
    """
    interface = read_interface(world, digest)
    resolve(world, interface)  # mistakes are found here, not in a process
    once = interface.description.coSimulation.canBeInstantiatedOnlyOncePerProcess
    return GymSimulators(world.file, [functools.partial(_make_flat, world)] * num_copies, world.processes or bool(once))


def _make_flat(world: FmuSettings) -> FlatEnv:
    return FlatEnv(FmuEnv(world), world.file)


class FmuEnv(gymnasium.Env):
    """One instance of an FMU, stepped with the inputs held between two steps."""

    def __init__(self, world: FmuSettings):
        """Nothing is loaded yet.

        Args:
            world: The world.
        """
        self.file, self.interface = world.file, read_interface(world, file_checksum(world))
        self.settings = resolve(world, self.interface)
        self.action_space = Box(self.settings.low, self.settings.high, dtype=np.float64)
        self.observation_space = Box(-np.inf, np.inf, (len(self.interface.outputs),), np.float64)
        self.steps, self.instance = 0, FmuInstance(self.interface.description, self.interface.folder)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start the instance, or start it again, with start values of this episode."""
        super().reset(seed=seed)
        self.steps = 0
        values = [
            (variable, value if isinstance(value, str) else self.np_random.uniform(*value))
            for variable, value in self.settings.start_values
        ]
        try:
            self.instance.start(values)
        except FmuFailure as failure:
            raise SondeError(f"{self.file}: it cannot be started: {failure}") from None
        return self._measured(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Hold the inputs for one step."""
        dt, began = self.settings.dt, self.steps * self.settings.dt
        try:
            ended = self.instance.step(self.interface.inputs, action.tolist(), began, dt)
        except FmuFailure as failure:
            inputs = _listed(self.interface.action_names, action)
            hint = "keep it away from there (ranges, constraints), or let the model end its episode at the end of a step"
            raise SondeError(f"{self.file}: its step from {began:g} s with {inputs} failed: {failure}; {hint}") from None
        self.steps += 1
        return self._measured(), 0.0, ended, False, {}

    def close(self) -> None:
        """Free the instance."""
        self.instance.close()

    def _measured(self) -> np.ndarray:
        try:
            values = np.array(self.instance.values(self.interface.outputs))
        except FmuFailure as failure:
            raise SondeError(f"{self.file}: its outputs cannot be read: {failure}") from None
        if not np.isfinite(values).all():
            time, outputs = self.steps * self.settings.dt, _listed(self.interface.state_names, values)
            raise SondeError(f"{self.file}: at {time:g} s its outputs are not finite: {outputs}; the model has left its range")
        return values


def _listed(names: Sequence[str], values: np.ndarray) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in zip(names, values, strict=True))


# ---- reading -----------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def read_interface(world: FmuSettings, digest: str) -> FmuInterface:
    """Find what a world asks for in an FMU; nothing of it is run.

    Args:
        world: The world.
        digest: Checksum of its file.
    """
    folder = Path(_unpacked(str(world.path), digest).name)
    description = _description(world.file, folder)
    variables = {variable.name: variable for variable in description.modelVariables}
    inputs = _chosen(world, variables, "input", world.inputs)
    outputs = _chosen(world, variables, "output", world.outputs)
    return FmuInterface(inputs, outputs, description, folder)


def resolve(world: FmuSettings, interface: FmuInterface) -> Settings:
    """What an instance needs to be stepped, from the world's settings and the defaults of the FMU.

    Args:
        world: The world.
        interface: The variables that it asks for.
    """
    dt = world.dt or getattr(interface.description.defaultExperiment, "stepSize", None)
    if dt is None:
        raise SondeError(f"{world.file} suggests no step size: give the seconds per action with --world.dt")
    low, high = np.array(list(_limits(world, interface.inputs))).T
    variables = {variable.name: variable for variable in interface.description.modelVariables}
    return Settings(low, high, float(dt), tuple(_start_values(world, variables)))


@functools.cache
def _unpacked(file: str, digest: str) -> tempfile.TemporaryDirectory:
    """A folder with the content of an FMU, which is removed when the process ends."""
    content = read_limited(Path(file), MAX_FMU_BYTES)
    if checksum(content) != digest:
        raise SondeError(f"{file} is being changed; try again when it is complete")
    folder = tempfile.TemporaryDirectory(prefix="sonde-fmu-")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(folder.name)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        folder.cleanup()
        raise SondeError(f"{file} is no FMU, or is damaged: it cannot be unpacked ({first_line(error)})") from None
    atexit.register(folder.cleanup)
    return folder


def _description(file: str, folder: Path) -> Any:
    fmpy = load_fmpy()
    try:
        version = re.search(rb'fmiVersion="([^"]*)"', (folder / "modelDescription.xml").read_bytes())
        if version and version[1][:2] not in (b"2.", b"3."):
            raise SondeError(f"{file} is an FMU of FMI {version[1].decode()}; expected FMI 2 or 3: export it again")
        described = fmpy.read_model_description(str(folder), validate=False)
    except SondeError:
        raise
    except Exception as error:  # of several parsers
        raise SondeError(f"{file} is no FMU: its modelDescription.xml cannot be read ({first_line(error)})") from None
    if described.coSimulation is None:
        raise SondeError(f"{file} is not for co-simulation (it has no solver of its own): export it for co-simulation")
    binaries = [path.name for path in sorted((folder / "binaries").glob("*"))]
    here = fmpy.platform if described.fmiMajorVersion == 2 else fmpy.platform_tuple
    if here not in binaries:
        have = ", ".join(binaries) or "none"
        raise SondeError(f"{file} has no program for {here}, this kind of computer; it has {have}: export it for {here}")
    return described


def _chosen(world: FmuSettings, variables: dict[str, Any], causality: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The inputs or outputs of a world, by their names or else by causality."""
    option = f"--world.{causality}s"
    chosen = [_named(world, variables, name, option) for name in names]
    chosen = chosen or [variable for variable in variables.values() if variable.causality == causality]
    if not chosen:
        known = ", ".join(list(variables)[:20]) or "no variables"
        raise SondeError(f"{world.file} has no variable of causality {causality}: name some with {option}; it has {known}")
    for variable in chosen:
        if variable.type not in ("Real", "Float64", "Float32") or variable.shape or variable.dimensions:
            what = f"an array of {variable.type}" if variable.shape or variable.dimensions else variable.type
            raise SondeError(
                f"{world.file}: {variable.name} is {what}; expected real numbers: name the {causality}s to use with {option} "
                "(all others keep their start values)"
            )
    return tuple(chosen)


def _named(world: FmuSettings, variables: dict[str, Any], name: str, option: str) -> Any:
    if name not in variables:
        known = ", ".join(list(variables)[:20])
        raise SondeError(f"{world.file} has no variable {name!r} ({option});{did_you_mean(name, variables)} it has {known}")
    return variables[name]


def _limits(world: FmuSettings, inputs: tuple[Any, ...]) -> Iterator[tuple[float, float]]:
    """The range of each input."""
    given = {name: (low, high) for name, low, high in (interval(text, "ranges") for text in world.ranges)}
    names = [variable.name for variable in inputs]
    if unknown := [name for name in given if name not in names]:
        meant = did_you_mean(unknown[0], names)
        raise SondeError(f"{world.file} has no input {unknown[0]!r} (--world.ranges);{meant} it has {', '.join(names)}")
    for variable in inputs:
        limits = given.get(variable.name) or (_declared(variable, "min", -math.inf), _declared(variable, "max", math.inf))
        if not -math.inf < limits[0] < limits[1] < math.inf:
            raise SondeError(
                f"{world.file}: the input {variable.name} has no finite range (min {limits[0]:g}, max {limits[1]:g}): give "
                f"one with --world.ranges {variable.name}=LOW:HIGH"
            )
        yield limits


def _declared(variable: Any, limit: str, otherwise: float) -> float:
    """A limit of a variable, or of its type."""
    for place in (variable, variable.declaredType):
        if getattr(place, limit, None) is not None:
            return float(getattr(place, limit))
    return otherwise


def _start_values(world: FmuSettings, variables: dict[str, Any]) -> Iterator[tuple[Any, str | tuple[float, float]]]:
    for text in world.start_values:
        name, value = assignment(text, "start_values")
        variable = _named(world, variables, name, "--world.start-values")
        if variable.causality != "input" and (variable.variability == "constant" or variable.initial not in SETTABLE):
            settable = [other.name for other in variables.values() if other.initial in SETTABLE]
            have = ", ".join(settable[:20]) or "none"
            raise SondeError(f"{world.file}: {name} takes no start value; variables that do: {have}")
        if ":" in value and variable.type != "String":
            yield variable, interval(text, "start_values")[1:]
        else:
            yield variable, value
