"""One instance of an FMU for co-simulation, of FMI 2 or 3, through FMPy."""

import collections
import contextlib
import ctypes
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sonde._internal.errors import SondeError, first_line

DISCARD, FATAL = 2, 4
"""Codes of the standard: what was asked for was not done; the instance must not be touched any more."""
KEPT_MESSAGES = 3
"""How many of the last messages of an FMU belong to an error."""
TIME_TOLERANCE = 1e-9
"""Part of a step by which the end of the step may be missed."""


class FmuFailure(Exception):
    """What an FMU could not do, in words."""


def load_fmpy() -> Any:
    """Import FMPy, which is an extra."""
    try:
        return importlib.import_module("fmpy")
    except ImportError:
        raise SondeError("FMUs need the package fmpy: pip install '.[fmu]' in Sonde's folder") from None


def call_error() -> Any:
    """What FMPy raises where an FMU returns a status that is worse than a warning; it has the `status`."""
    return importlib.import_module("fmpy.fmi1").FMICallException


class FmuInstance:
    """One instance: it is started, stepped, started again where the FMU can be reset, and made again where it cannot."""

    def __init__(self, description: Any, folder: Path):
        """Nothing is loaded yet.

        Args:
            description: FMPy's description of the model.
            folder: Where the FMU is unpacked.
        """
        self.description, self.folder = description, folder
        self.messages: collections.deque[str] = collections.deque(maxlen=KEPT_MESSAGES)
        self._fmu: Any = None
        self._status = 0

    @property
    def _is_fmi2(self) -> bool:
        return self.description.fmiMajorVersion == 2

    def start(self, values: Sequence[tuple[Any, str | float]]) -> None:
        """Start at time 0, with the start values of the FMU and those given.

        Args:
            values: Variables and their values.
        """
        if self._fmu is None or not self._was_reset():
            self.close()
            self._instantiate()
        with self._failures():
            if self._is_fmi2:
                self._fmu.setupExperiment(startTime=0.0)
            for variable, value in values:
                self._set(variable, value)
            self._fmu.enterInitializationMode(**({} if self._is_fmi2 else {"startTime": 0.0}))
            self._fmu.exitInitializationMode()

    def step(self, inputs: Sequence[Any], values: Sequence[float], time: float, dt: float) -> bool:
        """Advance by one step.

        Args:
            inputs: The input variables.
            values: Their values.
            time: Time before the step.
            dt: Length of the step.

        Returns:
            Whether the FMU ends its episode after the whole step; a step that it ends earlier is a failure.
        """
        with self._failures():
            for variable, value in zip(inputs, values, strict=True):
                self._set(variable, value)
            ended, reached = (self._step2 if self._is_fmi2 else self._step3)(time, dt)
        if reached < time + dt * (1 - TIME_TOLERANCE):
            raise FmuFailure(f"the model stopped at {reached:g} s, within the step{self._said()}")
        return ended

    def values(self, variables: Sequence[Any]) -> list[float]:
        """Read variables.

        Args:
            variables: Real variables.
        """
        with self._failures():
            return [float(getattr(self._fmu, f"get{v.type}")([v.valueReference])[0]) for v in variables]

    def close(self) -> None:
        """End the simulation and free the instance, as far as the last status allows."""
        fmu, self._fmu, status, self._status = self._fmu, None, self._status, 0
        if fmu is None or status >= FATAL:
            return
        if status <= DISCARD:
            with contextlib.suppress(call_error()):
                fmu.terminate()
        fmu.freeInstance()

    def _was_reset(self) -> bool:
        """Try to reset the instance, which not every FMU can do."""
        if self._status >= FATAL:
            return False
        try:
            self._fmu.reset()
        except call_error():
            return False
        self._status = 0
        return True

    def _instantiate(self) -> None:
        fmi = importlib.import_module(f"fmpy.fmi{self.description.fmiMajorVersion}")
        kind = fmi.FMU2Slave if self._is_fmi2 else fmi.FMU3Slave
        name = self.description.coSimulation.modelIdentifier
        facts = {"guid": self.description.guid, "modelIdentifier": name, "unzipDirectory": str(self.folder)}
        try:
            with contextlib.chdir(Path.cwd()):  # FMPy goes to the folder of the program and does not always come back
                fmu = kind(instanceName=name, **facts)
                fmu.instantiate(
                    **({"callbacks": _callbacks2(fmi, self._note)} if self._is_fmi2 else {"logMessage": self._note3})
                )
        except Exception as error:  # FMPy has no class of its own for this
            raise FmuFailure(f"no instance can be made ({first_line(error)}){self._said()}") from None
        self._fmu = fmu

    def _step2(self, time: float, dt: float) -> tuple[bool, float]:
        """A step of FMI 2: whether the simulation ended, and the time that was reached."""
        fmi = importlib.import_module("fmpy.fmi2")
        try:
            self._fmu.doStep(time, dt)
        except call_error() as error:
            if error.status != DISCARD or not self._fmu.getBooleanStatus(fmi.fmi2Terminated):
                raise
            return True, self._fmu.getRealStatus(fmi.fmi2LastSuccessfulTime)
        return False, time + dt

    def _step3(self, time: float, dt: float) -> tuple[bool, float]:
        """A step of FMI 3, which takes events within the step itself."""
        _, ended, early, reached = self._fmu.doStep(time, dt)
        return bool(ended), reached if early or ended else time + dt

    def _set(self, variable: Any, value: str | float) -> None:
        kind = variable.type
        if kind == "Enumeration":
            kind = "Integer" if self._is_fmi2 else "Int64"
        try:
            if kind == "Boolean":
                typed = {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]
            else:
                typed = value if kind == "String" else float(value) if kind in ("Real", "Float32", "Float64") else int(value)
        except (ValueError, KeyError):
            raise FmuFailure(f"{variable.name} is of type {variable.type}, and {value!r} is not") from None
        getattr(self._fmu, f"set{kind}")([variable.valueReference], [typed])

    @contextlib.contextmanager
    def _failures(self):
        """Turn what FMPy raises into words, and remember how bad it is."""
        try:
            yield
        except call_error() as error:
            self._status = error.status
            raise FmuFailure(f"{first_line(error).rstrip('.')}{self._said()}") from None

    def _said(self) -> str:
        """The last messages of the FMU."""
        said = "; ".join(self.messages)
        self.messages.clear()
        return f"; it said: {said}" if said else ""

    def _note(self, _environment: Any, _instance: bytes, status: int, _category: bytes, message: bytes) -> None:
        if status > 0 and message:
            self.messages.append(message.decode("utf-8", "replace").strip())

    def _note3(self, environment: Any, status: int, category: bytes, message: bytes) -> None:
        self._note(environment, b"", status, category, message)


def _callbacks2(fmi: Any, note: Callable[..., None]) -> Any:
    """The functions that an FMU of FMI 2 may call; the instance of FMPy keeps them."""
    fmpy = load_fmpy()
    callbacks = fmi.fmi2CallbackFunctions()
    callbacks.logger = fmi.fmi2CallbackLoggerTYPE(note)
    callbacks.allocateMemory = fmi.fmi2CallbackAllocateMemoryTYPE(fmpy.calloc)
    callbacks.freeMemory = fmi.fmi2CallbackFreeMemoryTYPE(fmpy.free)
    with contextlib.suppress(ImportError, OSError):  # not on all platforms: messages then lack their numbers
        importlib.import_module("fmpy.logging").addLoggerProxy(ctypes.byref(callbacks))
    return callbacks
