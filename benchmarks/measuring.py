"""Clocks, the machine's own limits, and how much is to be measured."""

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
from sonde.models._fused import kernel_runs_here

Named = TypeVar("Named")
Effort = Literal["tiny", "quick", "full"]
LONG = 3.0  # work of so many seconds is measured once, and needs no warming up
PRODUCTS = {
    "f64": (jnp.float64, jax.lax.Precision.HIGHEST),
    "f32": (jnp.float32, jax.lax.Precision.HIGHEST),
    "tf32": (jnp.float32, jax.lax.Precision.DEFAULT),
    "bf16": (jnp.bfloat16, jax.lax.Precision.DEFAULT),
}


def note(text: str) -> None:
    """Progress, beside the results on standard output."""
    print(text, file=sys.stderr, flush=True)


def on_cpu() -> bool:
    """Whether JAX computes on a CPU."""
    return jax.default_backend() == "cpu"


def network_products() -> str:
    """The kind of products that networks are multiplied with in training."""
    return "f32" if on_cpu() else "tf32"


def prediction_products() -> str:
    """And in the predictions of an ensemble: the fused kernel takes half-precision numbers, at the rate of bf16."""
    return "bf16" if kernel_runs_here() else network_products()


def by_the_clock(cpu: float | None, wall: float) -> float | None:
    """What `Row.seconds` holds: CPU-seconds on a CPU (None if nobody counted them), wall time elsewhere."""
    return cpu if on_cpu() else wall


def cpu_seconds() -> float:
    """Time that this process has spent so far, on all cores."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    effort: Effort = "full"
    """full: the paper's settings; quick: fewer of them, shorter; tiny: sizes that mean nothing, to try the machinery."""
    num_seeds: tuple[int, ...] | None = None
    """S, the runs in lockstep; None: those of `runs_for`."""
    only: str | None = None
    """Of all settings the one of this name."""

    def __post_init__(self):
        """Refuse what cannot be measured."""
        one_of("effort", self.effort, ("tiny", "quick", "full"))
        if self.num_seeds is not None and (not self.num_seeds or min(self.num_seeds) < 1):
            raise SondeError(f"bench: --runs must be whole numbers above 0, got {list(self.num_seeds)}")

    @property
    def quick(self) -> bool:
        """Whether to be brief."""
        return self.effort != "full"

    @property
    def repeats(self) -> int:
        """How often short work is measured; the median counts."""
        return {"tiny": 1, "quick": 2, "full": 5}[self.effort]

    def runs_for(self, on_a_cpu: tuple[int, ...] = (1,)) -> tuple[int, ...]:
        """S by default: on a CPU `on_a_cpu`, since its cores are busy with one run; elsewhere 1, 10 and 50."""
        if self.num_seeds is not None:
            return self.num_seeds
        return on_a_cpu if on_cpu() else (1, 10) if self.quick else (1, 10, 50)

    def chosen(self, settings: Iterable[Named]) -> Iterator[Named]:
        """Those of the settings that are wanted."""
        return (setting for setting in settings if self.only in (None, getattr(setting, "name", str(setting))))


@dataclass(frozen=True)
class Timing:
    """What a piece of work took."""

    seconds: float
    """CPU-seconds on a CPU, wall time elsewhere."""
    wall_seconds: float
    """Wall time."""


def measure(work: Callable[[], Any], repeats: int) -> Timing:
    """The median over `repeats` calls of a compiled program; one call is enough of work that takes long."""
    return in_turns({"": work}, repeats)[""]


def in_turns(work: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """The same for several programs, one after the other: whatever else the machine does meets all of them alike."""
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
    """One call."""
    began_cpu, began = cpu_seconds(), time.perf_counter()
    jax.block_until_ready(work())
    cpu, wall = cpu_seconds() - began_cpu, time.perf_counter() - began
    return Timing(cpu if on_cpu() else wall, wall)


def installed(*modules: str) -> bool:
    """Whether all of a peer's modules are there; says so if not."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        note(f"peers: {', '.join(missing)} not installed, left out (extra 'bench')")
    return not missing


class Limits:
    """The machine's limits, measured when asked for; a row is compared with the mean of the last two measurements."""

    def __init__(self, effort: Effort):
        """The effort decides how large the matrices are."""
        self.effort = effort
        self.measured: dict[str, list[float]] = {}

    def measure(self, names: Iterable[str]) -> None:
        """Measure each of `names` anew."""
        for name in names:
            self.measured.setdefault(name, []).append(self._copy() if name == COPY else self._products(name))

    def around(self, names: Iterable[str]) -> dict[str, float]:
        """The mean of the last two measurements of each, the later of which is taken now."""
        names = tuple(names)
        self.measure(names)
        return {name: float(np.mean(self.measured[name][-2:])) for name in names}

    def _products(self, name: str) -> float:
        """Operations per second of large matrix products, one after the other."""
        size, number = (64, 2) if self.effort == "tiny" else (1536, 4) if on_cpu() else (8192, 20)
        dtype, precision = PRODUCTS[name]
        matrix = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)) / size**0.5, dtype)
        timing = self._compiled(lambda: _chain(matrix, number, precision))
        return number * 2 * size**3 / timing.seconds

    def _copy(self) -> float:
        """Bytes per second, read and written, of changes to an array that no cache holds."""
        size, number = 2**12 if self.effort == "tiny" else 2**26 if on_cpu() else 2**30, 8
        array = jnp.ones(size, jnp.float32)
        timing = self._compiled(lambda: _negate(array, number))
        return number * 2 * array.nbytes / timing.seconds

    def _compiled(self, work: Callable[[], Any]) -> Timing:
        """Of work that compiles when it is called first: `measure` keeps a first call that takes long."""
        jax.block_until_ready(work())
        return measure(work, 1 if self.effort == "tiny" else 3)


def _chain_of_products(matrix, number: int, precision):
    return jax.lax.fori_loop(0, number, lambda _, x: jax.lax.dot(x, matrix, precision=precision), matrix)


_chain = jax.jit(_chain_of_products, static_argnames=("number", "precision"))
# many in one program: each call takes new memory from the system, which on a CPU is slower than writing to it
_negate = jax.jit(lambda array, number: jax.lax.fori_loop(0, number, lambda _, x: -x, array), static_argnums=1)


def in_lockstep(tree: Any, num_seeds: int) -> Any:
    """The same for each of `runs` runs."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_seeds, *leaf.shape)), tree)
