"""The share of true systems that regulators stabilise, against the share that they promise.

    sonde explore pendulum-gp-lite --seeds 20 --rounds 4 --evaluate-every 0 --world.process-noise 0.05 --out runs/noisy-pendulum
    python -m experiments.scripts.robust_lqr --pendulum runs/noisy-pendulum

Pendulums are explored, and judged after the last round. The cart-pole and the planar quadrotor of
`benchmarks.systems` are learned from few and noisy measurements with random actions, other ones for each seed. Each is
linearised where it is to be held (upright, hovering). A regulator of the mean, and one that is to stabilise 95 % of all
plausible systems, are designed with the default weights. Then the true equations judge: whether the spectral radius of the true
A - B K is below 1, and whether the true nonlinear system, from five starts nearby, stays near the point.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.systems.learning import learned
from benchmarks.systems.plant import Plant, collect
from benchmarks.systems.plants import CartPole, PlanarQuadrotor
from sonde import SondeError, TrueDynamics
from sonde._internal.lockstep import one_seed
from sonde._internal.precision import double_precision
from sonde.analysis import LearnedSystem, OperatingPoint, Regulator, lqr, robust_lqr
from sonde.runs import learned_system
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.worlds import JaxWorld

SHARE = 0.95
STEPS, STARTS = 300, 5
"""Steps of a simulation, and simulations of a regulator."""
NEAR = 0.5
"""How near the point all of the last third of a simulation must be, in units of the visited range."""
PENDULUM_DEVIATION = 0.01


@dataclass(frozen=True)
class Case:
    """A plant with a number of measurements."""

    name: str
    world: Plant
    measurements: int
    deviation: float
    """Std of the starts around the point, in units of the visited range."""


CASES = (
    Case("cart-pole", CartPole(process_noise=0.02), 120, 0.05),
    Case("quadrotor", PlanarQuadrotor(process_noise=0.05), 180, 0.05),
)


@dataclass(frozen=True)
class Outcome:
    """What a regulator promised and did."""

    bound: float
    """Lower bound of the share of plausible systems that it stabilises."""
    promised: bool
    """Whether that is at least `SHARE`."""
    radius: float
    """Spectral radius of the true system with it."""
    stayed: bool
    """Whether the true system stayed near the point in all simulations."""


@eqx.filter_jit
def _simulated(world: JaxWorld, starts: jax.Array, gain: jax.Array, state: jax.Array, action: jax.Array) -> jax.Array:
    def step(x, _):
        x = world.dynamics(x, jnp.clip(action - gain @ (x - state), -1.0, 1.0))
        return x, x

    return jax.vmap(lambda x: jax.lax.scan(step, x, length=STEPS)[1])(starts)


@double_precision
def stays(system: LearnedSystem, world: JaxWorld, regulator: Regulator, starts: np.ndarray) -> bool:
    """Whether the true system stays near the point, without noise.

    Args:
        system: The learned system.
        world: The true one.
        regulator: The regulator.
        starts: Where simulations start, as deviations from the point [n, d].
    """
    try:
        feedback = regulator.feedback
    except SondeError:
        return False  # nothing to run
    q = regulator.place.point
    lifted = jax.vmap(system.coordinates.to_state)(jnp.asarray(q + starts))
    at = (jnp.asarray(array) for array in (feedback.gain, feedback.state, feedback.action))
    last = _simulated(world, lifted, *at)[:, -STEPS // 3 :]
    away = np.asarray(jax.vmap(jax.vmap(system.coordinates.from_state))(last)) - q
    return bool((np.abs(away) <= NEAR * system.spread).all())


def outcomes(system: LearnedSystem, world: JaxWorld, place: OperatingPoint, seed: int, deviation: float) -> list[Outcome]:
    """Design both regulators, and judge them by the truth.

    Args:
        system: The learned system.
        world: The true one.
        place: Where it is to be held.
        seed: Randomness of the starts.
        deviation: Their std, in units of the visited range.

    Returns:
        Outcomes of the regulator of the mean and of the robust one.
    """
    truth = LearnedSystem(TrueDynamics(world), world, place.state[None]).at(place.state).linearisation
    starts = deviation * system.spread * np.random.default_rng(seed).normal(size=(STARTS, len(place.point)))
    found = []
    for regulator in (lqr(system, place), robust_lqr(system, place, share=SHARE)):
        radius = float(np.abs(np.linalg.eigvals(truth.A - truth.B @ regulator.gain)).max())
        bound = regulator.promise.bound
        found.append(Outcome(bound, bound >= SHARE, radius, stays(system, world, regulator, starts)))
    return found


def of_pendulums(folder: Path, rounds: Sequence[int], samples: int) -> Iterator[tuple[str, list[list[Outcome]]]]:
    """Outcomes of all seeds of a run of the pendulum, after some of its rounds.

    Args:
        folder: Folder of the run.
        rounds: The rounds.
        samples: Plausible systems per learned system.
    """
    store = RunStore.open(folder)
    world, upright = store.config.world, np.array([1.0, 0.0, 0.0])
    assert isinstance(world, JaxWorld)
    for number in rounds:
        explorer = restore_explorer(store, number)
        systems = (learned_system(explorer, world, i) for i in range(explorer.num_seeds))
        placed = ((system, system.at(upright, samples=samples)) for system in systems)
        judged = [outcomes(system, world, place, i, PENDULUM_DEVIATION) for i, (system, place) in enumerate(placed)]
        yield f"pendulum, {explorer.transitions}", judged


def of_plant(case: Case, seeds: int, samples: int) -> list[list[Outcome]]:
    """Outcomes of a plant for several seeds.

    Args:
        case: The plant.
        seeds: Number of seeds.
        samples: Plausible systems per learned system.
    """
    found = []
    for seed in range(seeds):
        data = collect(case.world, "random", case.measurements, seed)
        system = LearnedSystem(one_seed(learned("gp", case.world, data, seed)), case.world, data.states)
        place = system.at(np.zeros(case.world.state_dim), samples=samples)
        found.append(outcomes(system, case.world, place, seed, case.deviation))
    return found


def line(name: str, found: list[list[Outcome]]) -> Iterator[str]:
    """Rows of the table.

    Args:
        name: Name of the case.
        found: Outcomes of both regulators for each seed.
    """
    for kind, each in zip(("mean", "robust"), zip(*found, strict=True), strict=True):
        stable, stayed = [one.radius < 1 for one in each], [one.stayed for one in each]
        promised = [one for one in each if one.promised]
        kept = f"{sum(one.radius < 1 for one in promised)}, {sum(one.stayed for one in promised)}" if promised else "-"
        share = np.mean([one.bound for one in each])
        yield f"| {name} | {kind} | {share:.2f} | {np.mean(stable):.2f} | {np.mean(stayed):.2f} | {len(promised)} | {kept} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Run all cases and print the table.

    Args:
        argv: Options of the command line.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pendulum", type=Path, help="folder of a run of the pendulum")
    parser.add_argument("--rounds", type=int, nargs="*", default=[4], help="its rounds that are judged")
    parser.add_argument("--cases", nargs="*", default=sorted({case.name for case in CASES}), help="other plants")
    parser.add_argument("--samples", type=int, default=1000, help="plausible systems per learned system")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of the other plants")
    args = parser.parse_args(argv)
    print("| system, measurements | regulator | promised share | stabilised | stayed | promises of 95 % | of these kept |")
    print("|---|---|---|---|---|---|---|")
    if args.pendulum is not None:
        for name, found in of_pendulums(args.pendulum, args.rounds, args.samples):
            print(*line(name, found), sep="\n", flush=True)
    for case in CASES:
        if case.name in args.cases:
            print(*line(f"{case.name}, {case.measurements}", of_plant(case, args.seeds, args.samples)), sep="\n", flush=True)


if __name__ == "__main__":
    main()
