"""The same work, in the same process, by packages that people use for it today; those that are not installed are left out."""

from collections.abc import Iterator

from benchmarks.measuring import Plan, note, on_cpu
from benchmarks.rows import Row
from sonde.bench import peer_planning, peer_posterior


def compare(plan: Plan) -> Iterator[Row]:
    """The same work by other packages (extra 'bench'): planning with an ensemble, Gaussian posteriors."""
    if not on_cpu():
        note("peers: compared on CPUs only; hide the other devices with JAX_PLATFORMS=cpu")
        return
    yield from peer_planning.compare(plan)
    yield from peer_posterior.compare(plan)
