"""Compare the equilibria that runs found for the pendulum with the closed form, for each seed.

    sonde explore pendulum-gp-lite --seeds 10 --first-seed 100 --evaluate-every 0 --out runs/fresh
    python -m experiments.scripts.equilibria runs/fresh --refit

A line is a seed: for upright and hanging, the error of the equilibrium's angle with its error bar, the largest relative error
of an eigenvalue there, and the largest error of angle, speed and eigenvalues in units of their error bars. Then the shares of
seeds and of quantities within one and two error bars: for normal errors, 68 % and 95 % of the quantities.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError
from sonde.analysis import Equilibrium
from sonde.analysis._linear import match_eigenvalues
from sonde.runs import learned_system
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.worlds import Pendulum

EQUILIBRIA = {"upright": 0.0, "hanging": np.pi}
MAX_DISTANCE = 0.5
"""Largest distance in rad at which a found equilibrium is compared with a true one."""
ANGLE_TOLERANCE, EIGENVALUE_TOLERANCE = 0.02, 0.05
"""Accepted error in rad, and accepted relative error."""


def angle_between(a: float, b: float) -> float:
    """Compute the absolute difference of two angles in rad.

    Args:
        a: An angle.
        b: Another angle.
    """
    return float(abs(np.angle(np.exp(1j * (a - b)))))


def true_eigenvalues(theta: float, world: Pendulum) -> np.ndarray:
    """Compute the eigenvalues of a semi-implicit Euler step at an equilibrium.

    Their product p is 1 less what friction takes away in a step, and their sum is 1 + p + dt^2 times the stiffness.

    Args:
        theta: Angle of the equilibrium.
        world: The pendulum.

    Returns:
        Both eigenvalues [2].
    """
    product = 1 - world.time_step * 3 * world.friction / (world.mass * world.length**2)
    half = (1 + product + world.time_step**2 * 3 * world.gravity / (2 * world.length) * np.cos(theta)) / 2
    root = np.sqrt(half**2 - product + 0j)
    return np.array([half + root, half - root])


@dataclass(frozen=True)
class Errors:
    """Errors of one equilibrium."""

    angle: float
    """Error of the angle in rad."""
    std: float
    """Error bar of the angle."""
    eigenvalue: float
    """Largest relative error of an eigenvalue."""
    in_stds: tuple[float, ...]
    """Errors of angle, speed and eigenvalues in units of their error bars; a complex pair counts once."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.angle:.4f} ± {self.std:.4f} rad, eigenvalues {self.eigenvalue:.2%}, {max(self.in_stds):.1f} error bars"


def errors_of(found: Sequence[Equilibrium], theta: float, world: Pendulum) -> Errors | None:
    """Compute the errors of the equilibrium nearest to a true one.

    Args:
        found: Equilibria of a learned system.
        theta: Angle of the true equilibrium.
        world: The pendulum.

    Returns:
        Its errors; None if no equilibrium is near.
    """
    nearest = min(found, key=lambda one: angle_between(one.point[0], theta), default=None)
    if nearest is None or angle_between(nearest.point[0], theta) > MAX_DISTANCE:
        return None
    linear = nearest.linearisation
    truth = match_eigenvalues(linear.eigenvalues, true_eigenvalues(theta, world))
    point_errors = np.array([angle_between(nearest.point[0], theta), abs(nearest.point[1])])
    eigenvalue_errors = np.abs(linear.eigenvalues - truth)
    in_stds = np.append(
        point_errors / nearest.point_std, (eigenvalue_errors / linear.eigenvalue_std)[linear.eigenvalues.imag >= 0]
    )
    return Errors(point_errors[0], nearest.point_std[0], max(eigenvalue_errors / np.abs(truth)), tuple(in_stds))


def analyse(folder: Path, refit: bool) -> list[dict[str, Errors | None]]:
    """Compute and print the errors of each seed of a run.

    Args:
        folder: Folder of the run.
        refit: Whether to fit the model again before it is analysed.

    Returns:
        For each seed, the errors by equilibrium.
    """
    store = RunStore.open(folder)
    world, explorer = store.config.world, restore_explorer(store)
    if not isinstance(world, Pendulum):
        raise SondeError(f"{folder}: expected a run of the pendulum, got {type(world).__name__}")
    results = []
    for index, seed in enumerate(explorer.seeds):
        found = learned_system(explorer, world, index, refit).equilibria()
        results.append({name: errors_of(found, theta, world) for name, theta in EQUILIBRIA.items()})
        wrong = sum(all(angle_between(one.point[0], theta) > MAX_DISTANCE for theta in EQUILIBRIA.values()) for one in found)
        line = " | ".join(f"{name} {errors or 'not found'}" for name, errors in results[-1].items())
        print(f"seed {seed:3d}: {line}" + (f" | {wrong} that do not exist" if wrong else ""), flush=True)
    return results


def print_shares(name: str, results: list[dict[str, Errors | None]]) -> None:
    """Print how many seeds found an equilibrium, and how far the truth was away.

    Args:
        name: Name of the equilibrium.
        results: For each seed, the errors by equilibrium.
    """
    found = [errors for result in results if (errors := result[name]) is not None]
    good = [one for one in found if one.angle <= ANGLE_TOLERANCE and one.eigenvalue <= EIGENVALUE_TOLERANCE]
    in_stds = np.array([error for one in found for error in one.in_stds])
    seeds = {most: sum(max(one.in_stds) <= most for one in found) for most in (1, 2)}
    print(
        f"{name}: found by {len(found)} of {len(results)} seeds, by {len(good)} within {ANGLE_TOLERANCE} rad and "
        f"{EIGENVALUE_TOLERANCE:.0%}; the truth is within one error bar in {seeds[1]}, within two in {seeds[2]} "
        f"({np.mean(in_stds <= 1):.0%} and {np.mean(in_stds <= 2):.0%} of {len(in_stds)} quantities)"
    )


def main() -> None:
    """Analyse every folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs of the pendulum")
    parser.add_argument("--refit", action="store_true", help="fit the model again first, as 'sonde analyse --refit' does")
    options = parser.parse_args()
    for folder in options.folders:
        print(folder)
        results = analyse(folder, options.refit)
        for name in EQUILIBRIA:
            print_shares(name, results)


if __name__ == "__main__":
    main()
