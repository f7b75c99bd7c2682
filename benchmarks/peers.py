"""The same work, in the same process, by other packages in use today; those that are not installed are left out."""

from collections.abc import Iterator

from benchmarks import peer_planning, peer_posterior
from benchmarks.measuring import Plan, note, on_cpu
from benchmarks.rows import Row


def compare(plan: Plan) -> Iterator[Row]:
    """The same work by other packages (extra 'benchmarks'): planning with an ensemble, posteriors of a Gaussian process."""
    if not on_cpu():
        note("peers: compared on CPUs only; hide the other devices with JAX_PLATFORMS=cpu")
        return
    yield from peer_planning.compare(plan)
    yield from peer_posterior.compare(plan)
