"""Pictures of the worlds that are written in JAX: drawn at twice their size and reduced, so that edges are smooth."""

import functools
import itertools
import math

import numpy as np
from PIL import Image, ImageDraw

SIZE, SCALE = 400, 2
PAPER, INK, GREY = "#FFFFFF", "#262626", "#8C8C8C"
BLUE, ORANGE, GREEN, GROUND = "#0072B2", "#E69F00", "#009E73", "#E8E4DA"

Point = tuple[float, float]


class Canvas:
    """A picture in the making; coordinates are in world units, y upwards, `centre` in the middle, `width` units wide."""

    def __init__(self, centre: Point, width: float, base: Image.Image | None = None):
        """`base` is drawn on, if given; otherwise white paper."""
        self.image = Image.new("RGB", (SCALE * SIZE, SCALE * SIZE), PAPER) if base is None else base.copy()
        self._draw, self._centre, self._unit = ImageDraw.Draw(self.image), centre, SCALE * SIZE / width

    def _pixels(self, point: Point) -> Point:
        middle = SCALE * SIZE / 2
        x, y = (self._unit * (value - at) for value, at in zip(point, self._centre, strict=True))
        return middle + x, middle - y

    def disc(self, at: Point, radius: float, colour: str) -> None:
        """A filled circle."""
        self._draw.circle(self._pixels(at), self._unit * radius, fill=colour)

    def line(self, points: list[Point], width: float, colour: str) -> None:
        """A line through all points, round at each."""
        # as areas, whose edges lie where they should: Pillow's own broad lines have steps
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            half = width / 2 / math.hypot(x1 - x0, y1 - y0)
            dx, dy = half * (y0 - y1), half * (x1 - x0)
            self.area([(x0 + dx, y0 + dy), (x1 + dx, y1 + dy), (x1 - dx, y1 - dy), (x0 - dx, y0 - dy)], colour)
        for point in points:
            self.disc(point, width / 2, colour)

    def area(self, points: list[Point], colour: str) -> None:
        """A filled polygon."""
        self._draw.polygon([self._pixels(p) for p in points], fill=colour)

    def finished(self) -> np.ndarray:
        """The picture, uint8 [SIZE, SIZE, 3]."""
        return np.asarray(self.image.reduce(SCALE))


def pendulum(theta: float) -> np.ndarray:
    """A rod with a bob; theta = 0 is upright, and it grows counterclockwise."""
    canvas = Canvas((0.0, 0.0), 2.7, _circle())
    bob = (-float(np.sin(theta)), float(np.cos(theta)))
    canvas.line([(0.0, 0.0), bob], 0.055, INK)
    canvas.disc(bob, 0.15, BLUE)
    canvas.disc((0.0, 0.0), 0.06, INK)
    canvas.disc((0.0, 0.0), 0.025, PAPER)
    return canvas.finished()


@functools.cache
def _circle() -> Image.Image:
    """What stays the same: where the bob can be, and a mark for upright."""
    canvas = Canvas((0.0, 0.0), 2.7)
    for turn in np.linspace(0, 2 * np.pi, 72, endpoint=False):
        canvas.disc((float(np.sin(turn)), float(np.cos(turn))), 0.009, GREY)
    canvas.line([(0.0, 1.19), (0.0, 1.27)], 0.02, GREEN)
    return canvas.image


_VIEW = (-0.33, 0.12), 2.16


def _height(position: float) -> float:
    return 0.45 * float(np.sin(3 * position))


def mountain_car(position: float) -> np.ndarray:
    """The car on its mountain, the wall, and a flag at the goal."""
    canvas = Canvas(*_VIEW, _mountain())
    # the car stands on the track, tilted as the track is
    slope = float(np.arctan(3 * 0.45 * np.cos(3 * position)))
    cos, sin, height = float(np.cos(slope)), float(np.sin(slope)), _height(position)

    def at(along: float, above: float) -> Point:
        return position + along * cos - above * sin, height + along * sin + above * cos

    canvas.area([at(-0.12, 0.05), at(-0.12, 0.1), at(0.12, 0.1), at(0.12, 0.05)], BLUE)
    canvas.area([at(-0.075, 0.1), at(-0.05, 0.15), at(0.04, 0.15), at(0.075, 0.1)], BLUE)
    for wheel in (-0.07, 0.07):
        canvas.disc(at(wheel, 0.045), 0.036, INK)
        canvas.disc(at(wheel, 0.045), 0.014, PAPER)
    return canvas.finished()


@functools.cache
def _mountain() -> Image.Image:
    """What stays the same: track, wall and flag."""
    canvas = Canvas(*_VIEW)
    # the wall stands where the nose of the car is when its middle can go no further
    track = [(float(p), _height(p)) for p in np.linspace(-1.29, 0.6, 200)] + [(1.0, _height(0.6))]
    wall = [track[0], (-1.29, 2.0)]
    canvas.area([*track[::-1], *wall, (-2.0, 2.0), (-2.0, -2.0), (1.0, -2.0)], GROUND)
    canvas.line(track, 0.018, INK)
    canvas.line(wall, 0.018, INK)
    foot = _height(0.45)
    canvas.line([(0.45, foot), (0.45, foot + 0.36)], 0.015, INK)
    canvas.area([(0.45, foot + 0.36), (0.45, foot + 0.24), (0.62, foot + 0.3)], ORANGE)
    return canvas.image
