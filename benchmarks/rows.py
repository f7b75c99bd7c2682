"""One measurement and what it is compared with."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sonde._internal.errors import SondeError

COPY = "copy"
"""Name of the memory's limit; all other limits are rates of matrix products."""


@dataclass(frozen=True)
class Row:
    """Time of one piece of work, the least work that it needs, and the machine's limits."""

    path: str
    """The hot path: a name of `runner.PATHS`."""
    setting: str
    """The size of the work."""
    num_seeds: int
    """Number of seeds S in lockstep."""
    seconds: float | None
    """CPU-seconds of all cores on a CPU (None if they were not counted), wall time elsewhere."""
    wall_seconds: float
    """Wall time."""
    flop: int | float | None = None
    """Floating-point operations that the algorithm needs at least (`work`); None if they are not counted."""
    bytes: int | float | None = None
    """Bytes to and from main memory; None if the caches can hold them."""
    products: str | None = None
    """The kind of matrix products that bounds the operations: f64, f32, tf32 or bf16."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The machine's limits just before and after: operations per second by kind, and bytes per second as `copy`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other results of the path."""

    @property
    def bound(self) -> str | None:
        """The limit that alone would take longest; None if nothing was counted or no limit is known."""
        least = self._least_seconds()
        return max(least, key=lambda name: least[name]) if least else None

    @property
    def rate(self) -> float | None:
        """Operations per second, or bytes per second where memory is the bound."""
        work = self.bytes if self.bound == COPY else self.flop
        return None if self.bound is None or work is None or self.seconds is None else work / self.seconds

    @property
    def limit(self) -> float | None:
        """The machine's rate of the same."""
        return None if self.bound is None else self.limits[self.bound]

    @property
    def ratio(self) -> float | None:
        """Share of the machine's limit; no program could exceed 1."""
        return None if self.rate is None or self.limit is None else self.rate / self.limit

    def against(self, limits: Mapping[str, float]) -> "Row":
        """The same row with the limits that it is compared with.

        Args:
            limits: The machine's limits by name.
        """
        return replace(self, limits={name: limits[name] for name in self.needs})

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the limits that it is compared with."""
        if self.flop is not None and self.products is None:
            raise SondeError(f"{self.path}: operations were counted, but it does not say which products bound them")
        return tuple(name for name, work in ((self.products, self.flop), (COPY, self.bytes)) if name and work)

    def as_dict(self) -> dict[str, Any]:
        """The row for JSON, derived values included."""
        return {**asdict(self), "bound": self.bound, "rate": self.rate, "limit": self.limit, "ratio": self.ratio}

    def _least_seconds(self) -> dict[str, float]:
        least: dict[str, float] = {}
        if self.products is not None and self.products in self.limits and self.flop:
            least[self.products] = self.flop / self.limits[self.products]
        if COPY in self.limits and self.bytes:
            least[COPY] = self.bytes / self.limits[COPY]
        return least
