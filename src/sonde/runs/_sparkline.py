"""Sparklines: the course of a number over the rounds of a run, in one line of text."""

import math
from collections.abc import Mapping

LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "_.-~=+*#"
"""The same for terminals that have ASCII only."""


def sparkline(values: Mapping[int, float], rounds: int, width: int, log: bool = False, ascii_only: bool = False) -> str:
    """Draw the values of a number so far; rounds to come are dots.

    Args:
        values: Values by round, from 1; rounds without one are drawn like the round before them.
        rounds: Rounds of the whole run.
        width: Most characters; where there are more rounds, each character stands for several, with the mean of their values.
        log: Whether to draw logarithms, if all values are above 0.
        ascii_only: Whether the terminal has ASCII only.

    Returns:
        One character for each round or group of rounds.
    """
    known = {number: value for number, value in values.items() if math.isfinite(value)}
    width = min(rounds, width)
    if not known or width < 1:
        return ""
    groups = dict[int, list[float]]()
    for number, value in known.items():
        groups.setdefault((number - 1) * width // rounds, []).append(value)
    means = {place: sum(group) / len(group) for place, group in groups.items()}
    if log and min(means.values()) > 0:
        means = {place: math.log(value) for place, value in means.items()}
    low, high, levels = min(means.values()), max(means.values()), ASCII_LEVELS if ascii_only else LEVELS
    drawn, latest, last = "", " ", (max(values) - 1) * width // rounds
    for place in range(width):
        if place in means:
            share = (means[place] - low) / (high - low) if high > low else 0.5
            latest = levels[min(len(levels) - 1, int(share * len(levels)))]
        drawn += latest if place <= last else " " if ascii_only else "·"
    return drawn.rstrip() if ascii_only else drawn
