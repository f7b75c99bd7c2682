"""Images of the worlds that are written in JAX, drawn at twice their size and reduced so that edges are smooth."""

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
    """An image to draw on, in world coordinates with y upwards."""

    def __init__(self, centre: Point, width: float, base: Image.Image | None = None):
        """Create a canvas.

        Args:
            centre: World coordinates of the image's centre.
            width: Width of the image in world units.
            base: An image to draw on a copy of; by default a white one.
        """
        self.image = Image.new("RGB", (SCALE * SIZE, SCALE * SIZE), PAPER) if base is None else base.copy()
        self._draw, self._centre, self._unit = ImageDraw.Draw(self.image), centre, SCALE * SIZE / width

    def _pixels(self, point: Point) -> Point:
        middle = SCALE * SIZE / 2
        x, y = (self._unit * (value - at) for value, at in zip(point, self._centre, strict=True))
        return middle + x, middle - y

    def disc(self, at: Point, radius: float, colour: str) -> None:
        """Draw a filled circle.

        Args:
            at: Centre.
            radius: Radius.
            colour: Colour as #RRGGBB.
        """
        self._draw.circle(self._pixels(at), self._unit * radius, fill=colour)

    def line(self, points: list[Point], width: float, colour: str) -> None:
        """Draw a line through points, with round joints.

        Args:
            points: Points to connect.
            width: Width of the line.
            colour: Colour as #RRGGBB.
        """
        # drawn as polygons, since Pillow's own wide lines have jagged edges
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            half = width / 2 / math.hypot(x1 - x0, y1 - y0)
            dx, dy = half * (y0 - y1), half * (x1 - x0)
            self.area([(x0 + dx, y0 + dy), (x1 + dx, y1 + dy), (x1 - dx, y1 - dy), (x0 - dx, y0 - dy)], colour)
        for point in points:
            self.disc(point, width / 2, colour)

    def area(self, points: list[Point], colour: str) -> None:
        """Draw a filled polygon.

        Args:
            points: Its corners.
            colour: Colour as #RRGGBB.
        """
        self._draw.polygon([self._pixels(p) for p in points], fill=colour)

    def to_array(self) -> np.ndarray:
        """Return the image, uint8 [SIZE, SIZE, 3]."""
        return np.asarray(self.image.reduce(SCALE))


def draw_pendulum(theta: float) -> np.ndarray:
    """Draw a rod with a bob.

    Args:
        theta: Angle, 0 upright and positive counterclockwise.

    Returns:
        An image, uint8 [SIZE, SIZE, 3].
    """
    canvas = Canvas((0.0, 0.0), 2.7, _circle())
    bob = (-float(np.sin(theta)), float(np.cos(theta)))
    canvas.line([(0.0, 0.0), bob], 0.055, INK)
    canvas.disc(bob, 0.15, BLUE)
    canvas.disc((0.0, 0.0), 0.06, INK)
    canvas.disc((0.0, 0.0), 0.025, PAPER)
    return canvas.to_array()


@functools.cache
def _circle() -> Image.Image:
    """The fixed background: the circle of the bob, and a mark for upright."""
    canvas = Canvas((0.0, 0.0), 2.7)
    for turn in np.linspace(0, 2 * np.pi, 72, endpoint=False):
        canvas.disc((float(np.sin(turn)), float(np.cos(turn))), 0.009, GREY)
    canvas.line([(0.0, 1.19), (0.0, 1.27)], 0.02, GREEN)
    return canvas.image


_VIEW = (-0.33, 0.12), 2.16


def _height(position: float) -> float:
    return 0.45 * float(np.sin(3 * position))


def draw_mountain_car(position: float) -> np.ndarray:
    """Draw the car on its track, the wall, and a flag at the goal.

    Args:
        position: Position of the car.

    Returns:
        An image, uint8 [SIZE, SIZE, 3].
    """
    canvas = Canvas(*_VIEW, _mountain())
    # the car is tilted like the track
    slope = float(np.arctan(3 * 0.45 * np.cos(3 * position)))
    cos, sin, height = float(np.cos(slope)), float(np.sin(slope)), _height(position)

    def at(along: float, above: float) -> Point:
        return position + along * cos - above * sin, height + along * sin + above * cos

    canvas.area([at(-0.12, 0.05), at(-0.12, 0.1), at(0.12, 0.1), at(0.12, 0.05)], BLUE)
    canvas.area([at(-0.075, 0.1), at(-0.05, 0.15), at(0.04, 0.15), at(0.075, 0.1)], BLUE)
    for wheel in (-0.07, 0.07):
        canvas.disc(at(wheel, 0.045), 0.036, INK)
        canvas.disc(at(wheel, 0.045), 0.014, PAPER)
    return canvas.to_array()


@functools.cache
def _mountain() -> Image.Image:
    """The fixed background: track, wall and flag."""
    canvas = Canvas(*_VIEW)
    # the wall is where the car's nose is at its leftmost position
    track = [(float(p), _height(p)) for p in np.linspace(-1.29, 0.6, 200)] + [(1.0, _height(0.6))]
    wall = [track[0], (-1.29, 2.0)]
    canvas.area([*track[::-1], *wall, (-2.0, 2.0), (-2.0, -2.0), (1.0, -2.0)], GROUND)
    canvas.line(track, 0.018, INK)
    canvas.line(wall, 0.018, INK)
    foot = _height(0.45)
    canvas.line([(0.45, foot), (0.45, foot + 0.36)], 0.015, INK)
    canvas.area([(0.45, foot + 0.36), (0.45, foot + 0.24), (0.62, foot + 0.3)], ORANGE)
    return canvas.image
