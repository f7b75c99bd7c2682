"""Current returns, averaged over the last rounds: each method's mean, and what the first one has more than each other.

    python -m experiments.scripts.late_returns [--setting cheetah] [--rounds 20] [--method opax]

Reads the recorded curves. Differences are paired by seed and have Student's 95 % interval; two methods are compared in the last
rounds that both have.
"""

import argparse
from pathlib import Path

import numpy as np

from experiments.paper import FIGURES
from sonde.evaluation._statistics import Curve, Sample, on_common_rounds, paired
from sonde.runs.sweep import Results

TABLE = Path(__file__).parents[1] / "results" / "downstream" / "curves.csv"


def late(curve: Curve, rounds: int) -> Sample:
    """The mean of each seed over the last rounds.

    Args:
        curve: The returns.
        rounds: Number of rounds before and with the last one that count.
    """
    counted = curve.rounds > curve.rounds[-1] - rounds
    return Sample(curve.seeds, curve.values[:, counted].mean(axis=1))


def lines(results: Results, setting: str, method: str, rounds: int) -> list[str]:
    """The table.

    Args:
        results: The recorded numbers.
        setting: The world.
        method: The method that others are compared with.
        rounds: As for `late`.
    """
    figure, found = FIGURES["downstream"], []
    for panel in (panel for panel in figure.panels if panel.setting == setting and panel.is_return):
        found.append(f"{panel.title}, mean of the last {rounds} rounds")
        curves = {name: results.curve(setting, name, panel.metric) for name in (method, *figure.methods)}
        known = {name: curve for name, curve in curves.items() if curve is not None}
        for name, curve in known.items():
            sample = late(curve, rounds)
            seeds = ", ".join(f"{value:.0f}" for value in sample.values)
            text = f"  {name:8} {np.mean(sample.values):6.0f}  (seeds {seeds}; to round {curve.rounds[-1]})"
            if name != method and method in known:
                mine, theirs = on_common_rounds([known[method], curve])
                more = paired(late(mine, rounds), late(theirs, rounds))
                low, high = more.interval()
                text += f"  {method} has {more.mean:+.0f} [{low:+.0f}, {high:+.0f}]"
            found.append(text)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="cheetah")
    parser.add_argument("--method", default="opax", help="the method that others are compared with")
    parser.add_argument("--rounds", type=int, default=20, help="rounds that are averaged")
    parser.add_argument("--table", type=Path, default=TABLE, help="the recorded curves")
    given = parser.parse_args()
    print("\n".join(lines(Results.load(given.table), given.setting, given.method, given.rounds)))


if __name__ == "__main__":
    main()
