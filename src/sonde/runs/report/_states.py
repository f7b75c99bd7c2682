"""Where a run has been, and how uncertain its model still is: points of the first seed, over a field if a plane has states."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from sonde._internal.precision import double_precision
from sonde.explorer import Explorer
from sonde.runs.figures._states import GRID, span, uncertainty_field
from sonde.runs.report._charts import Axis, nice_ticks
from sonde.runs.report._html import Markup, tag, tick_text
from sonde.worlds import Plane, World

WIDTH, HEIGHT = 440, 340
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 44
MAX_POINTS = 1200
"""Most points of a run on the page; of more, every n-th is shown."""
MAX_COLUMNS = 40
"""Most state dimensions that can be chosen from."""
DECADES = 4.0
"""Most decades of uncertainty that the field shows."""


@dataclass(frozen=True)
class Column:
    """A coordinate of states that an axis can show."""

    name: str
    limits: tuple[float, float]
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass
class States:
    """What one run has visited."""

    seed: int
    count: int
    """Number of measurements."""
    columns: list[str]
    points: np.ndarray
    """Coordinates of the points that are shown [n, columns]."""
    rounds: np.ndarray
    """The round of each [n]; 0 for initial data."""
    uncertainty: np.ndarray
    """Norm of the epistemic std of what was learned, at each [n] and zero action."""
    ranges: list[tuple[float, float] | None] = field(default_factory=list)
    """Limits of each column, where the world has them."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Ticks of the first column, if the world has them."""
    field: np.ndarray | None = None
    """Uncertainty over the first two columns [GRID, GRID], rows upwards; None where they do not determine a state."""


@double_precision
def visited(explorer: Explorer, world: World, steps: Sequence[int]) -> States:
    """Collect what the first seed has visited, and its model's uncertainty there.

    Args:
        explorer: What was measured and learned.
        world: The system.
        steps: Number of measurements of each round.
    """
    count, plane = explorer.transitions, world.plane()
    kept = np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int))
    states = np.asarray(explorer.data.states[0, :count])[kept]
    # as many points as the field has, so that both are computed by one compiled program
    padded = np.resize(states, (GRID, GRID, states.shape[1]))
    uncertainty = uncertainty_field(explorer.posterior, padded, explorer.spec.input_dim).reshape(-1)[: len(kept)]
    rounds = np.repeat(np.arange(len(steps) + 1), [explorer.initial, *steps])[kept]
    names = list(world.state_names)[:MAX_COLUMNS]
    columns, points, ranges = names, states[:, : len(names)], [None] * len(names)
    found = States(explorer.seeds[0], count, columns, points, rounds, uncertainty, list(ranges))
    return found if plane is None else _on_plane(found, explorer, plane, states)


def _on_plane(found: States, explorer: Explorer, plane: Plane, states: np.ndarray) -> States:
    """Put the coordinates of a plane first; where they are state dimensions, nothing is shown twice."""
    a, b = plane.from_state(states)
    labels, spans = [plane.x_label, plane.y_label], [plane.x_range, plane.y_range]
    # which ones these are must not depend on what was visited, since runs side by side share their columns
    probe = np.linspace(-10.0, 10.0, 3 * states.shape[1]).reshape(3, -1)
    shown = plane.from_state(probe)
    rest = [i for i, column in enumerate(probe.T[: len(found.columns)]) if not any(np.array_equal(column, x) for x in shown)]
    found.columns = labels + [found.columns[i] for i in rest]
    found.points = np.column_stack([a, b, found.points[:, rest]])
    found.ranges, found.ticks = [*spans, *(None for _ in rest)], plane.x_ticks
    if plane.to_state is not None:
        limits = [span(shown, values) for shown, values in zip(spans, (a, b), strict=True)]
        grid = np.meshgrid(*(np.linspace(*each, GRID) for each in limits))
        found.field = uncertainty_field(explorer.posterior, plane.to_state(*grid), explorer.spec.input_dim)
    return found


def shared_limits(every: Sequence[States]) -> list[tuple[float, float]]:
    """Limits of each column that all runs share, so that they can be compared.

    Args:
        every: What each run has visited; all of them have the same columns.
    """
    limits = []
    for i, shown in enumerate(every[0].ranges):
        limits.append(span(shown, np.concatenate([each.points[:, i] for each in every])))
    return [(float(low), float(high)) for low, high in limits]


def shared_scale(every: Sequence[States]) -> tuple[float, float] | None:
    """Limits of the uncertainty that all fields share; None without a field.

    Args:
        every: What each run has visited.
    """
    fields = [each.field for each in every if each.field is not None]
    if not fields:
        return None
    top = max(float(max(part.max() for part in fields)), 1e-12)
    bottom = max(float(min(part.min() for part in fields)), 10**-DECADES * top)
    return min(bottom, top / 2), top


def field_picture(values: np.ndarray, scale: tuple[float, float]) -> str:
    """A field as a picture of one grey with different opacity, which suits a dark page and a light one.

    Args:
        values: Uncertainty [rows upwards, columns].
        scale: Values that are clear and most opaque.

    Returns:
        The picture as the content of an attribute `href`.
    """
    share = np.log(np.clip(values, *scale) / scale[0]) / np.log(scale[1] / scale[0])
    pixels = np.zeros((*values.shape, 4), np.uint8)
    pixels[..., :3] = (116, 123, 140)
    pixels[..., 3] = np.round(232 * share[::-1]).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def draw(states: States, number_: int, limits: Sequence[tuple[float, float]], rounds: int, picture: str | None) -> Markup:
    """The points of a run in its first two columns.

    Args:
        states: What it has visited, with two columns at least.
        number_: Number of the subject.
        limits: Limits of the columns.
        rounds: Number of the last round on the page, which has the last colour.
        picture: The field, as from `field_picture`.
    """
    x, y = Axis(*limits[0], (LEFT, WIDTH - RIGHT)), Axis(*limits[1], (HEIGHT - BOTTOM, TOP))
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    image = {"x": LEFT, "y": TOP, "width": across, "height": up, "preserveAspectRatio": "none", "class_": "field"}
    described = f"{states.count:,} measurements of seed {states.seed} in {states.columns[0]} and {states.columns[1]}" + (
        ", over the model's remaining uncertainty" if picture else ""
    )
    radius = 3.2 if len(states.points) <= 500 else 2.4
    dots = [
        tag("circle", cx=x(float(p[0])), cy=y(float(p[1])), r=radius, class_=f"p r{shade(int(r), rounds)}")
        for p, r in zip(states.points, states.rounds, strict=True)
    ]
    return tag(
        "svg",
        tag("title", described),
        tag("rect", x=LEFT, y=TOP, width=across, height=up, class_="ground"),
        tag("image", href=picture, **image) if picture else None,
        tag("g", *_ticks(x, y, states), class_="frame"),
        tag("g", *dots, class_="points"),
        tag("text", states.columns[0], x=LEFT + across / 2, y=HEIGHT - 5, class_="tick middle xlabel"),
        tag(
            "text",
            states.columns[1],
            x=12,
            y=TOP + up / 2,
            class_="tick middle ylabel",
            transform=f"rotate(-90 12 {TOP + up / 2})",
        ),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=described,
        data_states=number_,
    )


SHADES = 12
"""Number of colours for rounds, from the first to the last."""


def shade(round_number: int, rounds: int) -> str:
    """The colour class of a round.

    Args:
        round_number: The round; 0 for initial data.
        rounds: The last round.
    """
    if round_number == 0:
        return "i"
    return str(round((round_number - 1) / max(rounds - 1, 1) * (SHADES - 1)))


def _ticks(x: Axis, y: Axis, states: States) -> list[Markup]:
    parts = []
    named = [(at, word.split("\n")[0]) for at, word in states.ticks] or [(at, tick_text(at)) for at in x.ticks(5)]
    for at, word in named:
        parts.append(tag("text", word, x=x(at), y=HEIGHT - BOTTOM + 16, class_="tick middle"))
    parts += [tag("text", tick_text(at), x=LEFT - 6, y=y(at) + 4, class_="tick end") for at in y.ticks(5)]
    return parts


def data_of(states: States) -> dict[str, Any]:
    """What the page's script needs to draw other columns.

    Args:
        states: What a run has visited.
    """
    rounded = [[float(f"{value:.4g}") for value in column] for column in states.points.T.tolist()]
    return {
        "columns": rounded,
        "rounds": states.rounds.tolist(),
        "uncertainty": [float(f"{value:.3g}") for value in states.uncertainty.tolist()],
    }


def axes_of(limits: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Ticks of each column.

    Args:
        limits: Limits of the columns.
    """
    return [nice_ticks(low, high) for low, high in limits]
