"""Clocks, the machine's limits, and how much to measure."""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rows import COPY
from sonde._internal.errors import SondeError, one_of
from sonde.models._fused import kernel_runs_on

Named = TypeVar("Named")
Effort = Literal["tiny", "quick", "full"]
LONG = 3.0  # seconds: longer work is measured once and needs no warm-up
PRODUCTS = {
    "f64": (jnp.float64, jax.lax.Precision.HIGHEST),
    "f32": (jnp.float32, jax.lax.Precision.HIGHEST),
    "tf32": (jnp.float32, jax.lax.Precision.DEFAULT),
    "bf16": (jnp.bfloat16, jax.lax.Precision.DEFAULT),
}


def note(text: str) -> None:
    """Print progress to standard error; results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def on_cpu() -> bool:
    """Whether the default device of JAX is a CPU."""
    return jax.default_backend() == "cpu"


def network_products() -> str:
    """The kind of matrix products in the training of networks."""
    return "f32" if on_cpu() else "tf32"


def prediction_products() -> str:
    """The kind in predictions of an ensemble: the fused kernel takes half-precision numbers, which run at the rate of bf16."""
    return "bf16" if kernel_runs_on(jnp.zeros(())) else network_products()


def by_the_clock(cpu: float | None, wall: float) -> float | None:
    """The value of `Row.seconds`: CPU-seconds on a CPU (None if they were not counted), wall time elsewhere."""
    return cpu if on_cpu() else wall


def cpu_seconds() -> float:
    """CPU time of this process so far, on all cores."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    effort: Effort = "full"
    """full: the paper's settings; quick: fewer and shorter; tiny: sizes that mean nothing, to test the code."""
    seeds: tuple[int, ...] | None = None
    """Numbers of seeds S in lockstep to measure with; None: those of `seed_counts`."""
    only: str | None = None
    """Measure only the setting of this name."""

    def __post_init__(self):
        """Reject what cannot be measured."""
        one_of("effort", self.effort, ("tiny", "quick", "full"))
        if self.seeds is not None and (not self.seeds or min(self.seeds) < 1):
            raise SondeError(f"benchmarks: --seeds must be whole numbers above 0, got {list(self.seeds)}")

    @property
    def quick(self) -> bool:
        """Whether to measure less than everything."""
        return self.effort != "full"

    @property
    def repeats(self) -> int:
        """Number of measurements of short work, of which the median is reported."""
        return {"tiny": 1, "quick": 2, "full": 5}[self.effort]

    def seed_counts(self, on_a_cpu: tuple[int, ...] = (1,)) -> tuple[int, ...]:
        """Numbers of seeds S to measure with.

        Args:
            on_a_cpu: The default on a CPU, whose cores one seed keeps busy; elsewhere it is 1, 10 and 50.
        """
        if self.seeds is not None:
            return self.seeds
        return on_a_cpu if on_cpu() else (1, 10) if self.quick else (1, 10, 50)

    def chosen(self, settings: Iterable[Named]) -> Iterator[Named]:
        """The settings that `only` leaves.

        Args:
            settings: Names, or objects with a name.
        """
        return (setting for setting in settings if self.only in (None, getattr(setting, "name", str(setting))))


@dataclass(frozen=True)
class Timing:
    """Time that a piece of work took."""

    seconds: float
    """CPU-seconds on a CPU, wall time elsewhere."""
    wall_seconds: float
    """Wall time."""


def measure(work: Callable[[], Any], repeats: int) -> Timing:
    """Time a compiled program.

    Args:
        work: The call.
        repeats: Number of calls whose median is taken; work that takes long is called once.
    """
    return in_turns({"": work}, repeats)[""]


def in_turns(work: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Time several programs in turns, so that other load on the machine affects all of them alike.

    Args:
        work: The calls by name.
        repeats: Number of calls of each whose median is taken.
    """
    timings = {name: [timed(call)] for name, call in work.items()}
    if min(times[0].wall_seconds for times in timings.values()) <= LONG:
        # the first call of short work also warms up
        timings = {name: [] for name in work}
        for _ in range(repeats):
            for name, call in work.items():
                timings[name].append(timed(call))
    middle = lambda values: float(np.median(list(values)))
    return {name: Timing(middle(t.seconds for t in ts), middle(t.wall_seconds for t in ts)) for name, ts in timings.items()}


def timed(work: Callable[[], Any]) -> Timing:
    """Time one call."""
    began_cpu, began = cpu_seconds(), time.perf_counter()
    jax.block_until_ready(work())
    cpu, wall = cpu_seconds() - began_cpu, time.perf_counter() - began
    return Timing(cpu if on_cpu() else wall, wall)


def installed(*modules: str) -> bool:
    """Whether all modules of a peer are installed; prints a note if not."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        note(f"peers: {', '.join(missing)} not installed, left out (extra 'benchmarks')")
    return not missing


class Limits:
    """The machine's limits; a row is compared with the mean of the last two measurements."""

    def __init__(self, effort: Effort):
        """Start without measurements.

        Args:
            effort: Decides how large the matrices are.
        """
        self.effort = effort
        self.measured: dict[str, list[float]] = {}

    def measure(self, names: Iterable[str]) -> None:
        """Measure some limits once more.

        Args:
            names: Keys of `PRODUCTS`, or `COPY`.
        """
        for name in names:
            self.measured.setdefault(name, []).append(self._copy() if name == COPY else self._products(name))

    def around(self, names: Iterable[str]) -> dict[str, float]:
        """Measure some limits once more and return the mean of each with its previous measurement.

        Args:
            names: Keys of `PRODUCTS`, or `COPY`.
        """
        names = tuple(names)
        self.measure(names)
        return {name: float(np.mean(self.measured[name][-2:])) for name in names}

    def _products(self, name: str) -> float:
        """Operations per second of a chain of large matrix products."""
        size, number = (64, 2) if self.effort == "tiny" else (1536, 4) if on_cpu() else (8192, 20)
        dtype, precision = PRODUCTS[name]
        matrix = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)) / size**0.5, dtype)
        timing = self._compiled(lambda: _chain(matrix, number, precision))
        return number * 2 * size**3 / timing.seconds

    def _copy(self) -> float:
        """Bytes per second, read and written, of changes to an array that fits no cache."""
        size, number = 2**12 if self.effort == "tiny" else 2**26 if on_cpu() else 2**30, 8
        array = jnp.ones(size, jnp.float32)
        timing = self._compiled(lambda: _negate(array, number))
        return number * 2 * array.nbytes / timing.seconds

    def _compiled(self, work: Callable[[], Any]) -> Timing:
        """Time work that compiles in its first call, which must not count."""
        jax.block_until_ready(work())
        return measure(work, 1 if self.effort == "tiny" else 3)


def _chain_of_products(matrix, number: int, precision):
    return jax.lax.fori_loop(0, number, lambda _, x: jax.lax.dot(x, matrix, precision=precision), matrix)


_chain = jax.jit(_chain_of_products, static_argnames=("number", "precision"))
# many in one program: each call allocates memory, which on a CPU is slower than writing to it
_negate = jax.jit(lambda array, number: jax.lax.fori_loop(0, number, lambda _, x: -x, array), static_argnums=1)


def in_lockstep(tree: Any, num_seeds: int) -> Any:
    """Repeat every leaf for each seed.

    Args:
        tree: Arrays of one seed.
        num_seeds: Number of seeds S.

    Returns:
        The same tree with a leading axis S.
    """
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_seeds, *leaf.shape)), tree)
