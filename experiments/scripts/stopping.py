"""Measure whether runs that stop by `--until "uncertainty<X"` have a true error in reach below X.

    python -m experiments.scripts.stopping                     # seeds 0 to 2, about 15 minutes on two cores
    python -m experiments.scripts.stopping --first-seed 100    # development seeds, on which the rule was chosen

Four systems are explored with OpAx and with random actions, at light settings and without a rule. A line is a run and a
tolerance: the round after which the rule stops the run, and the true error (`model_rmse`) then. The last lines count the stops
at which the error was below the tolerance, also for the rule without overconfidence and common kernel, which took the model's
word where it had never been.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde import ICEM, METHODS, GaussianProcess, Method, RunConfig, preset
from sonde._internal.precision import double_precision
from sonde.imagination import Optimistic
from sonde.objectives import InformationGain
from sonde.runs import explore
from sonde.runs._store import RunStore
from sonde.worlds import JaxWorld, MountainCar, Pendulum, World

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class VanDerPol(JaxWorld):
    """A forced Van der Pol oscillator, which visits most of what it can reach by itself."""

    nonlinearity: float = 1.5
    force: float = 1.5
    time_step: float = 0.1

    state_names = ("position", "velocity")
    action_names = ("force",)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw a state inside or around the limit cycle."""
        return jax.random.uniform(key, (2,), minval=-2.0, maxval=2.0)

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Five semi-implicit Euler steps."""

        def step(_, x):
            push = self.nonlinearity * (1 - x[0] ** 2) * x[1] - x[0] + self.force * jnp.clip(u[0], -1.0, 1.0)
            velocity = x[1] + self.time_step / 5 * push
            return jnp.stack([x[0] + self.time_step / 5 * velocity, velocity])

        return jax.lax.fori_loop(0, 5, step, x)

    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """The same: there is no noise."""
        return self.dynamics(x, u)

    @double_precision
    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """States of random rollouts, with actions drawn uniformly."""
        rng = np.random.default_rng(20231)
        starts, actions = rng.uniform(-2, 2, (40, 2)), rng.uniform(-1, 1, (40, 50, 1))
        rollout = lambda x, actions: jax.lax.scan(lambda x, u: (self.dynamics(x, u), x), x, actions)[1]
        states = jax.jit(jax.vmap(rollout))(jnp.asarray(starts), jnp.asarray(actions))
        return np.asarray(states).reshape(-1, 2), rng.uniform(-1, 1, (2000, 1))


SYSTEMS: dict[str, tuple[World, tuple[float, ...]]] = {
    "pendulum": (Pendulum(), (0.3, 0.4)),
    "damped-pendulum": (Pendulum(mass=1.3, length=0.8, friction=0.15, gravity=9.81, max_torque=3.0), (0.3, 0.4)),
    "strong-mountain-car": (MountainCar(power=0.003, friction=0.02), (0.015, 0.02)),
    "van-der-pol": (VanDerPol(), (0.03, 0.1)),
}
"""Systems, and the tolerances at which their runs are judged: from a loose one that OpAx reaches soon to a strict one."""


def light(world: World, method: str) -> RunConfig:
    """The settings of a run: `pendulum-gp-lite` with shorter rollouts and less planning.

    Args:
        world: The system.
        method: Name of the method.
    """
    opax = Method(Optimistic(beta=2.0, particles=1), InformationGain())
    return replace(
        preset("pendulum-gp-lite"),
        world=world,
        method=opax if method == "opax" else METHODS[method],
        model=GaussianProcess(rank=128, fit_points=256),
        solver=ICEM(samples=64, elites=8, iterations=3, horizon=15),
        horizon=50,
        evaluation_tasks=(),
        evaluate_every=0,
    )


def stops_now(rows: Rows, config: RunConfig, tolerance: float) -> int | None:
    """The index of the first round after which the rule stops a run.

    Args:
        rows: Metrics of one seed, one row per round.
        config: The config of the run.
        tolerance: Tolerance of the rule.
    """
    rule = replace(config, until=f"uncertainty<{tolerance!r}").stopping_rule
    assert rule is not None
    return next((i for i, row in enumerate(rows) if rule.why_stop([row], row["round"], len(rows))), None)


def stopped_before(rows: Rows, config: RunConfig, tolerance: float) -> int | None:
    """The same for the model's own uncertainty and the error of its predictions alone.

    Args:
        rows: Metrics of one seed, one row per round.
        config: The config of the run.
        tolerance: Tolerance of the rule.
    """
    del config
    known = lambda row: row["prediction_error"] is not None and max(row["max_epistemic"], row["prediction_error"]) < tolerance
    return next((i for i, row in enumerate(rows) if known(row)), None)


RULES: dict[str, Callable[[Rows, RunConfig, float], int | None]] = {"the rule": stops_now, "without guards": stopped_before}


def judge(name: str, method: str, store: RunStore, tolerances: Sequence[float]) -> dict[str, list[bool]]:
    """Print a line for each seed and tolerance.

    Args:
        name: Name of the system.
        method: Name of the method.
        store: The run.
        tolerances: Tolerances of the rule.

    Returns:
        For each rule, and each seed and tolerance at which it stopped, whether the true error was below the tolerance.
    """
    met: dict[str, list[bool]] = {rule: [] for rule in RULES}
    rows = sorted(store.load_metrics(), key=lambda row: (row["seed"], row["round"]))
    for seed, group in groupby(rows, key=lambda row: row["seed"]):
        own = list(group)
        for tolerance in tolerances:
            cells = []
            for rule, stops in RULES.items():
                at = stops(own, store.config, tolerance)
                if at is None:
                    cells.append(f"{rule}: goes on, error {own[-1]['model_rmse']:.3g}")
                else:
                    met[rule].append(own[at]["model_rmse"] < tolerance)
                    verdict = "met" if met[rule][-1] else "NOT met"
                    cells.append(f"{rule}: round {own[at]['round']}, error {own[at]['model_rmse']:.3g}, {verdict}")
            print(f"{name:20s} {method:7s} seed {seed:3d}  uncertainty<{tolerance:<6g} " + " | ".join(cells), flush=True)
    return met


def main() -> None:
    """Run everything that is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each system and method")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--out", type=Path, default=Path("runs/stopping"), help="folder of the runs, which are continued")
    chosen = parser.parse_args()
    met: dict[str, list[bool]] = {rule: [] for rule in RULES}
    judged = 0
    for name in chosen.systems:
        world, tolerances = SYSTEMS[name]
        for method in ("opax", "random"):
            config = replace(light(world, method), seeds=chosen.seeds, first_seed=chosen.first_seed, rounds=chosen.rounds)
            folder = chosen.out / f"{name}-{method}-{chosen.first_seed}"
            explore(config, folder)
            judged += chosen.seeds * len(tolerances)
            for rule, found in judge(name, method, RunStore.open(folder, allow_code=True), tolerances).items():
                met[rule] += found
    for rule, found in met.items():
        print(f"{rule}: {len(found)} of {judged} runs stopped, {sum(found)} of them with a true error below the tolerance")


if __name__ == "__main__":
    main()
