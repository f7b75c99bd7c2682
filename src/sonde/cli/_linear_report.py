"""Matrices with error bars as text that is never wider than the console: what `sonde analyse --at` and `--lqr` print."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Names = Sequence[str]


def number(value: float, std: float | None = None) -> str:
    """A number, and its error bar if it has one.

    Args:
        value: The number.
        std: Its std; None for what is known exactly.
    """
    if std is None or not std > 0:
        return f"{value:.5g}"
    decimals = int(np.clip(1 - np.floor(np.log10(std)), 0, 9))  # two digits of the error bar
    return f"{value:z.{decimals}f} ± {std:.{decimals}f}"


def matrix(title: str, rows: Names, columns: Names, cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """A table in lines that fit: its columns are printed in several blocks where there are too many.

    Args:
        title: What it is; it stands above the names of the rows.
        rows: Names of the rows.
        columns: Names of the columns.
        cells: Texts by row and column.
        width: Width of the console.
    """
    label = max(map(len, (title, *rows)))
    sizes = [max(len(name), *(len(row[j]) for row in cells)) for j, name in enumerate(columns)]
    blocks: list[list[int]] = [[]]
    for j, size in enumerate(sizes):
        used = label + sum(sizes[k] + 2 for k in blocks[-1])
        if blocks[-1] and used + size + 2 > width:
            blocks.append([])
        blocks[-1].append(j)
    for block in blocks:
        yield _line(title, label, [(columns[j], sizes[j]) for j in block])
        yield from (_line(name, label, [(row[j], sizes[j]) for j in block]) for name, row in zip(rows, cells, strict=True))


def _line(name: str, label: int, cells: list[tuple[str, int]]) -> str:
    return f"{name:<{label}}" + "".join(f"  {text:>{size}}" for text, size in cells).rstrip()


def numbers(values: Any, stds: Any = None) -> list[list[str]]:
    """Cells of a matrix.

    Args:
        values: Numbers by row and column.
        stds: Their stds, if they have any.
    """
    stds = [[None] * len(row) for row in values] if stds is None else stds
    return [[number(*pair) for pair in zip(row, bars, strict=True)] for row, bars in zip(values, stds, strict=True)]


def complex_number(pair: Sequence[float], std: float | None) -> str:
    """An eigenvalue.

    Args:
        pair: Real and imaginary part.
        std: Its error bar, if it has one.
    """
    bar = f" ± {std:.2g}" if std else ""
    return f"{pair[0]:z.4f}{f' {pair[1]:+.4f}i' if pair[1] else ''}{bar}"


def wrapped(sentence: str, width: int) -> list[str]:
    """A sentence in lines.

    Args:
        sentence: The sentence.
        width: Width of the console.
    """
    return textwrap.wrap(sentence, width, break_on_hyphens=False)


def point_report(found: dict[str, Any], place: dict[str, Any], width: int) -> Iterator[str]:
    """A point, where it goes in a step, and the linearisation there.

    Args:
        found: The analysis, with the names of coordinates and actions.
        place: The point.
        width: Width of the console.
    """
    names, inputs = found["coordinates"], found["actions"]
    action = ", ".join(f"{name} {u:.5g}" for name, u in zip(inputs, place["action"], strict=True))
    if "drift" in place:
        cells = [
            [number(q), number(after, std), number(move, std)]
            for q, after, move, std in zip(*(place[key] for key in ("point", "next_point", "drift", "drift_std")), strict=True)
        ]
        yield from matrix("state", names, ["here", "after a step", "drift"], cells, width)
    else:
        cells = numbers([[q] for q in place["point"]], [[std] for std in place["point_std"]])
        yield from matrix("equilibrium", names, ["here"], cells, width)
    yield from wrapped(f"under the action {action}", width)
    if not place.get("visited", True):
        yield from wrapped(
            "No measurement is near this point: what follows is a guess, and its error bars may be too small.", width
        )
    yield ""
    yield from linear_report("", names, inputs, place, width)
    low, high = place["spectral_radius_95"]
    radius = f"largest modulus {place['spectral_radius']:.4f} (95 %: {low:.4f} to {high:.4f})"
    control = place["controllability"]
    reach = f"controllability: rank {control['rank']}, smallest singular value {number(control['smallest'], control['std'])}"
    yield from wrapped(f"{place['stability']}: {radius}; {reach}", width)
    if "continuous" in place:
        yield from continuous_report(names, inputs, place["continuous"], width)


def linear_report(of: str, names: Names, inputs: Names, linear: dict[str, Any], width: int) -> Iterator[str]:
    """A, B and the eigenvalues.

    Args:
        of: What is added to the names A and B.
        names: Names of the coordinates.
        inputs: Names of the actions.
        linear: The linearisation.
        width: Width of the console.
    """
    yield from matrix(f"A{of}", names, names, numbers(linear["A"], linear["A_std"]), width)
    yield ""
    yield from matrix(f"B{of}", names, inputs, numbers(linear["B"], linear["B_std"]), width)
    yield ""
    yield from eigenvalue_report("eigenvalues of A", linear, width)


def eigenvalue_report(title: str, linear: dict[str, Any], width: int) -> Iterator[str]:
    """Eigenvalues with their error bars.

    Args:
        title: What they are of.
        linear: The linearisation.
        width: Width of the console.
    """
    values = zip(linear["eigenvalues"], linear["eigenvalue_std"], strict=True)
    yield from wrapped(f"{title}: " + ", ".join(complex_number(pair, std) for pair, std in values), width)


def continuous_report(names: Names, inputs: Names, found: dict[str, Any], width: int) -> Iterator[str]:
    """The system in continuous time.

    Args:
        names: Names of the coordinates.
        inputs: Names of the actions.
        found: Its numbers, or why there is none.
        width: Width of the console.
    """
    yield ""
    if "none" in found:
        yield from wrapped(f"In continuous time: {found['none']}", width)
        return
    yield from wrapped(f"In continuous time, per second (a step is {found['dt']:.5g} s):", width)
    yield from linear_report("", names, inputs, found, width)


def regulator_report(found: dict[str, Any], regulator: dict[str, Any], width: int) -> Iterator[str]:
    """A regulator and what it promises.

    Args:
        found: The analysis, with the names of coordinates and actions.
        regulator: The regulator.
        width: Width of the console.
    """
    if "none" in regulator:
        yield ""
        yield from wrapped(f"No regulator: {regulator['none']}", width)
        return
    names, inputs = found["coordinates"], found["actions"]
    kind = "Regulator (LQR)" if regulator["promise"]["wanted"] is None else "Robust regulator (LQR)"
    diagonals = [np.diagonal(regulator["weights"][side]) for side in ("states", "actions")]
    named = lambda of, values: ", ".join(f"{name} {value:.5g}" for name, value in zip(of, values, strict=True))
    weights = [named(names, diagonals[0]), named(inputs, diagonals[1])]
    yield ""
    yield from wrapped(f"{kind} for the weights {weights[0]}; {weights[1]}", width)
    yield from matrix("gain K", inputs, names, numbers(regulator["gain"]), width)
    feedback = regulator["feedback"]
    if "none" in feedback:
        yield from wrapped(f"Nothing to run: {feedback['none']}", width)
    else:
        held, action = named(names, feedback["point"]), named(inputs, feedback["action"])
        yield from wrapped(f"The action is {action} less K (state - held), which holds it at {held}", width)
    yield from eigenvalue_report("closed loop, eigenvalues", regulator["closed_loop"], width)
    yield from wrapped(regulator["promise"]["says"], width)
