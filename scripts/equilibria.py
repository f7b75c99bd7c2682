"""How well do runs know where the pendulum rests? Each of their seeds against the closed form.

    sonde explore pendulum-gp-lite --seeds 10 --first-seed 100 --evaluate-every 0 --out runs/fresh
    python scripts/equilibria.py runs/fresh --refit

A line is a seed: for upright and hanging, how far the equilibrium that was found is from the true one, its error bar, the
largest relative error of an eigenvalue there, and how many error bars the truth is away at most, of angle, speed and
eigenvalues. Then the shares of all seeds, and of all those quantities: of normal errors, 68 % and 95 % are within one and two
error bars.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonde.analysis._linear import matched
from sonde.runs._analysis import learned_system
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.analysis import Equilibrium
from sonde.worlds._pendulum import GRAVITY, LENGTH, TIME_STEP

RESTS = {"upright": 0.0, "hanging": np.pi}
NEAR = 0.5
"""An equilibrium further away than this, in rad, is not taken for that rest."""
ANGLE, EIGENVALUE = 0.02, 0.05
"""What is asked for: errors in rad, and relative ones."""


def turned(a: float, b: float) -> float:
    """The angle between two angles."""
    return float(abs(np.angle(np.exp(1j * (a - b)))))


def true_eigenvalues(theta: float) -> np.ndarray:
    """Of semi-implicit Euler steps at rest: their product is 1, and their sum 2 + dt^2 times the pull."""
    half = 1 + 0.5 * TIME_STEP**2 * 3 * GRAVITY / (2 * LENGTH) * np.cos(theta)
    root = np.sqrt(half**2 - 1 + 0j)
    return np.array([half + root, half - root])


@dataclass(frozen=True)
class Judgement:
    """Errors of an equilibrium: of its angle, with its error bar, and the largest relative one of an eigenvalue."""

    angle: float
    std: float
    eigenvalue: float
    bars: tuple[float, ...]
    """How many error bars the truth is away, of angle, speed and eigenvalues; of a complex pair, once."""

    def __str__(self) -> str:
        """In a line."""
        return f"{self.angle:.4f} ± {self.std:.4f} rad, eigenvalues {self.eigenvalue:.2%}, {max(self.bars):.1f} error bars"


def judged(found: Sequence[Equilibrium], theta: float) -> Judgement | None:
    """Errors of the equilibrium that is nearest to a rest, if there is one near it."""
    rest = min(found, key=lambda rest: turned(rest.point[0], theta), default=None)
    if rest is None or turned(rest.point[0], theta) > NEAR:
        return None
    linear = rest.linearisation
    truth = matched(linear.eigenvalues, true_eigenvalues(theta))
    misses = np.array([turned(rest.point[0], theta), abs(rest.point[1])]), np.abs(linear.eigenvalues - truth)
    bars = np.append(misses[0] / rest.point_std, (misses[1] / linear.eigenvalue_std)[linear.eigenvalues.imag >= 0])
    return Judgement(misses[0][0], rest.point_std[0], max(misses[1] / np.abs(truth)), tuple(bars))


def studied(folder: Path, refit: bool) -> list[dict[str, Judgement | None]]:
    """Of each seed of a run, each rest; printed as it is found."""
    store = RunStore.open(folder)
    explorer = restore_explorer(store, store.checkpoints()[-1])
    results = []
    for run, seed in enumerate(explorer.seeds):
        found = learned_system(explorer, store.config.world, run, refit).equilibria()
        results.append({name: judged(found, theta) for name, theta in RESTS.items()})
        others = sum(all(turned(rest.point[0], theta) > NEAR for theta in RESTS.values()) for rest in found)
        told = " | ".join(f"{name} {one or 'not found'}" for name, one in results[-1].items())
        print(f"seed {seed:3d}: {told}" + (f" | {others} that are none" if others else ""), flush=True)
    return results


def main() -> None:
    """Every folder's seeds, and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--refit", action="store_true", help="study a model that is fitted anew, as 'sonde analyse --refit'")
    chosen = parser.parse_args()
    for folder in chosen.folders:
        print(folder)
        results = studied(folder, chosen.refit)
        for name in RESTS:
            found = [one for rests in results if (one := rests[name]) is not None]
            good = [one for one in found if one.angle <= ANGLE and one.eigenvalue <= EIGENVALUE]
            bars = np.array([bar for one in found for bar in one.bars])
            seeds = {most: sum(max(one.bars) <= most for one in found) for most in (1, 2)}
            print(
                f"{name}: {len(found)} of {len(results)} find it, {len(good)} within {ANGLE} rad and {EIGENVALUE:.0%}; "
                f"the truth is within one error bar in {seeds[1]}, within two in {seeds[2]} "
                f"({np.mean(bars <= 1):.0%} and {np.mean(bars <= 2):.0%} of {len(bars)} quantities)"
            )


if __name__ == "__main__":
    main()
