"""How a state is made of an agent and of equal objects, and what its entries are: positions, angles, or anything else.

Models that know it learn one object's behaviour from all of them. `features` are what a network should see of a state: an
angle as its cosine and sine, a rotation as its matrix, so that nothing jumps where an angle does. `changes` and `moved` go from
two states to what a network should learn, and back; both take angles the short way round, and rotations as the vector by which
a body turns, because the changes of its three angles have no limit where the second one is a quarter turn.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.errors import SondeError

TURN = 2 * math.pi
MATRIX = 9
"""Entries of a rotation matrix."""
SMALLEST_COSINE = 0.05
"""Of the second angle of a rotation, below which the noise of the two other angles is not enlarged further."""


def _entries(name: str, values: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Numbers of entries, checked."""
    numbers = tuple(values)
    if any(isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < width for number in numbers):
        raise SondeError(f"layout: {name} must be numbers of entries from 0 to {width - 1}, got {list(numbers)}")
    return numbers


@dataclass(frozen=True)
class Body:
    """What the entries of the agent, or of one object, are; entries that are not named are plain numbers."""

    width: int
    """Number of its entries in the state."""
    position: tuple[int, ...] = ()
    """Entries that are its position, along the same axes for all bodies; models see where bodies are relative to others."""
    angles: tuple[int, ...] = ()
    """Entries that are angles in rad, each by itself."""
    rotation: tuple[int, ...] = ()
    """Three entries that are the angles e of one rotation Rx(e0) Ry(e1) Rz(e2), in rad; none by default."""
    bounded: bool = True
    """Whether the world keeps its angles in [-pi, pi], and the second of a rotation in [-pi/2, pi/2]. False: they go on beyond,
    and a rotation has those of its angles that are nearest to the ones before."""

    def __post_init__(self):
        """Reject entries that do not exist or are named twice."""
        if isinstance(self.width, bool) or not isinstance(self.width, int) or self.width < 0:
            raise SondeError(f"layout: width must be a whole number of entries, 0 or more, got {self.width!r}")
        named = []
        for name in ("position", "angles", "rotation"):
            numbers = _entries(name, getattr(self, name), self.width)
            object.__setattr__(self, name, numbers)
            named += numbers
        if len(set(named)) != len(named):
            raise SondeError(f"layout: each entry can be one of position, angles and rotation, and once; got {named}")
        if len(self.rotation) not in (0, 3):
            raise SondeError(f"layout: a rotation has three angles, got {len(self.rotation)} entries")

    @property
    def plain(self) -> tuple[int, ...]:
        """Entries that are neither position nor angle."""
        return tuple(i for i in range(self.width) if i not in (*self.position, *self.angles, *self.rotation))

    @property
    def scaled(self) -> int:
        """Number of features that have units; they come first, positions at the very beginning."""
        return len(self.position) + len(self.plain)

    @property
    def feature_dim(self) -> int:
        """Number of features."""
        return self.scaled + 2 * len(self.angles) + (MATRIX if self.rotation else 0)

    def features(self, x: Float[Array, "*n width"]) -> Float[Array, "*n features"]:
        """Describe states by numbers that do not jump: positions, plain entries, cosines and sines, the matrix of the rotation.

        Args:
            x: States of the body.
        """
        angles = _taken(x, self.angles)
        parts = [_taken(x, self.position), _taken(x, self.plain), jnp.cos(angles), jnp.sin(angles)]
        if self.rotation:
            parts.append(_matrix(_taken(x, self.rotation)).reshape(*x.shape[:-1], MATRIX))
        return jnp.concatenate(parts, axis=-1)

    def changes(self, x: Float[Array, "*n width"], x_next: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
        """Compute what changes from one state to the next, in the order of the entries.

        Args:
            x: States of the body.
            x_next: Next states.

        Returns:
            Differences, of angles the short way round; in place of a rotation's angles the vector by which the body turns,
            which is less than half a turn long.
        """
        change = x_next - x
        if self.angles:
            short = _taken(change, self.angles)
            change = _replaced(change, self.angles, short - TURN * jnp.round(short / TURN))
        if self.rotation:
            before, after = (_matrix(_taken(each, self.rotation)) for each in (x, x_next))
            change = _replaced(change, self.rotation, _vector(_times(after, jnp.swapaxes(before, -1, -2))))
        return change

    def moved(self, x: Float[Array, "*m width"], changes: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
        """Compute the next states from their changes; the inverse of `changes`, but that angles may leave their range.

        Args:
            x: States of the body; their axes broadcast against those of the changes.
            changes: As `changes` returns them.
        """
        after = x + changes
        if self.rotation:
            angles = _taken(x, self.rotation)
            turned = _angles(_times(_turn(_taken(changes, self.rotation)), _matrix(angles)))
            after = _replaced(after, self.rotation, _nearest(turned, angles))
        return after

    def stds(self, x: Float[Array, "*m width"], stds: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
        """Turn small stds of changes into stds of states.

        Args:
            x: States at which the changes end; their axes broadcast against those of the stds.
            stds: Stds of what `changes` returns.
        """
        if not self.rotation:
            return stds
        angles, variance = _taken(x, self.rotation), _taken(stds, self.rotation) ** 2
        sine0, cosine0, sine1 = jnp.sin(angles[..., 0]), jnp.cos(angles[..., 0]), jnp.sin(angles[..., 1])
        cosine1 = jnp.maximum(jnp.abs(jnp.cos(angles[..., 1])), SMALLEST_COSINE)
        across = (sine0**2 * variance[..., 1] + cosine0**2 * variance[..., 2]) / cosine1**2
        second = cosine0**2 * variance[..., 1] + sine0**2 * variance[..., 2]
        each = jnp.stack([variance[..., 0] + sine1**2 * across, second, across], axis=-1)
        return _replaced(stds, self.rotation, jnp.sqrt(each))

    def in_range(self, x: Float[Array, "*n width"], centre: Float[Array, "*m width"]) -> Float[Array, "*n width"]:
        """Bring states into the range of the angles, all by the shift that `centre` needs, so that their distances stay.

        Args:
            x: States of the body.
            centre: The state that decides; its axes broadcast against those of `x`.
        """
        if not self.bounded:
            return x
        if self.angles:
            x = _replaced(x, self.angles, _taken(x, self.angles) - TURN * jnp.round(_taken(centre, self.angles) / TURN))
        if self.rotation:
            angles, middle = _taken(x, self.rotation), _taken(centre, self.rotation)
            beyond = jnp.cos(middle[..., 1:2]) < 0
            angles, middle = (jnp.where(beyond, _twin(each), each) for each in (angles, middle))
            x = _replaced(x, self.rotation, angles - TURN * jnp.round(middle / TURN))
        return x


class Bodies(NamedTuple):
    """Numbers of the agent, and of each object."""

    agent: Any
    """Array [..., a]."""
    objects: Any
    """Array [..., count, o]."""


@dataclass(frozen=True)
class StateLayout:
    """A state that is made of an agent, whose entries come first, and of equal objects, one after the other."""

    agent: Body
    """What acts; its width may be 0."""
    object: Body
    """What each object is; all are alike."""
    count: int
    """Number of objects."""

    def __post_init__(self):
        """Reject bodies that do not go together."""
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise SondeError(f"layout: count must be a whole number of objects, 1 or more, got {self.count!r}")
        if not self.object.width:
            raise SondeError("layout: an object needs at least one entry")
        axes = {len(body.position) for body in (self.agent, self.object) if body.position}
        if len(axes) > 1:
            raise SondeError(f"layout: positions must have the same axes for agent and objects, got {sorted(axes)} of them")

    @property
    def state_dim(self) -> int:
        """Number of entries of the state."""
        return self.agent.width + self.count * self.object.width

    def with_count(self, count: int) -> "StateLayout":
        """The same with another number of objects.

        Args:
            count: Number of objects.
        """
        return replace(self, count=count)

    def unbounded(self) -> "StateLayout":
        """The same with angles that go on beyond pi."""
        agent, body = (replace(each, bounded=False) for each in (self.agent, self.object))
        return StateLayout(agent, body, self.count)

    def split(self, x: Float[Array | np.ndarray, "*n dx"]) -> Bodies:
        """Divide states among the bodies.

        Args:
            x: States, or anything with one number for each entry; also in numpy.

        Returns:
            Numbers of the agent [..., a] and of the objects [..., count, o].
        """
        width = self.agent.width
        return Bodies(x[..., :width], x[..., width:].reshape(*x.shape[:-1], self.count, self.object.width))

    def join(self, bodies: Bodies) -> Float[Array, "*n dx"]:
        """Put states together; the inverse of `split`.

        Args:
            bodies: Numbers of the bodies.
        """
        return joined(bodies)

    def features(self, x: Float[Array, "*n dx"]) -> Bodies:
        """Describe states by numbers that do not jump (`Body.features`).

        Args:
            x: States.

        Returns:
            Features of the agent [..., f_agent] and of the objects [..., count, f_object].
        """
        agent, objects = self.split(x)
        return Bodies(self.agent.features(agent), self.object.features(objects))

    def changes(self, x: Float[Array, "*n dx"], x_next: Float[Array, "*n dx"]) -> Float[Array, "*n dx"]:
        """Compute what changes from one state to the next (`Body.changes`).

        Args:
            x: States.
            x_next: Next states.
        """
        (agent, objects), (agent_next, objects_next) = self.split(x), self.split(x_next)
        return joined(Bodies(self.agent.changes(agent, agent_next), self.object.changes(objects, objects_next)))

    def moved(self, x: Float[Array, "*m dx"], changes: Float[Array, "*n dx"]) -> Float[Array, "*n dx"]:
        """Compute the next states from their changes (`Body.moved`).

        Args:
            x: States; their axes broadcast against those of the changes.
            changes: As `changes` returns them.
        """
        (agent, objects), (of_agent, of_objects) = self.split(x), self.split(changes)
        return joined(Bodies(self.agent.moved(agent, of_agent), self.object.moved(objects, of_objects)))

    def stds(self, x: Float[Array, "*m dx"], stds: Float[Array, "*n dx"]) -> Float[Array, "*n dx"]:
        """Turn small stds of changes into stds of states (`Body.stds`).

        Args:
            x: States at which the changes end; their axes broadcast against those of the stds.
            stds: Stds of the changes.
        """
        (agent, objects), (of_agent, of_objects) = self.split(x), self.split(stds)
        return joined(Bodies(self.agent.stds(agent, of_agent), self.object.stds(objects, of_objects)))

    def in_range(self, x: Float[Array, "*n dx"], centre: Float[Array, "*m dx"]) -> Float[Array, "*n dx"]:
        """Bring states into the range of the world's angles, all by the shift that `centre` needs (`Body.in_range`).

        Args:
            x: States.
            centre: The state that decides; its axes broadcast against those of `x`.
        """
        (agent, objects), (agent_centre, objects_centre) = self.split(x), self.split(centre)
        return joined(Bodies(self.agent.in_range(agent, agent_centre), self.object.in_range(objects, objects_centre)))


def joined(bodies: Bodies) -> Float[Array, "*n d"]:
    """Numbers of the agent, then those of each object, in one row.

    Args:
        bodies: Numbers of the bodies.
    """
    agent, objects = bodies
    return jnp.concatenate([agent, objects.reshape(*agent.shape[:-1], -1)], axis=-1)


def _taken(x: Array, entries: tuple[int, ...]) -> Array:
    """Some entries [..., n]; slices where they can be, which cost least."""
    if entries == tuple(range(entries[0], entries[-1] + 1) if entries else ()):
        return x[..., entries[0] : entries[-1] + 1] if entries else x[..., :0]
    return jnp.stack([x[..., entry] for entry in entries], axis=-1)


def _replaced(x: Array, entries: tuple[int, ...], values: Array) -> Array:
    """The same with other values of some entries."""
    columns = {entry: values[..., place] for place, entry in enumerate(entries)}
    return jnp.stack([columns[i] if i in columns else x[..., i] for i in range(x.shape[-1])], axis=-1)


# ---- rotations: written out, because a device may multiply matrices in lower precision ---------------------------------------


def _matrix(e: Float[Array, "*n 3"]) -> Float[Array, "*n 3 3"]:
    """Rx(e0) Ry(e1) Rz(e2)."""
    c0, c1, c2 = jnp.moveaxis(jnp.cos(e), -1, 0)
    s0, s1, s2 = jnp.moveaxis(jnp.sin(e), -1, 0)
    rows = (
        (c1 * c2, -c1 * s2, s1),
        (c0 * s2 + s0 * s1 * c2, c0 * c2 - s0 * s1 * s2, -s0 * c1),
        (s0 * s2 - c0 * s1 * c2, s0 * c2 + c0 * s1 * s2, c0 * c1),
    )
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def _angles(r: Float[Array, "*n 3 3"]) -> Float[Array, "*n 3"]:
    """Angles e of rotations, the second in [-pi/2, pi/2]."""
    cosine = jnp.sqrt(r[..., 2, 2] ** 2 + r[..., 1, 2] ** 2)
    first = jnp.arctan2(-r[..., 1, 2], r[..., 2, 2])
    return jnp.stack([first, jnp.arctan2(r[..., 0, 2], cosine), jnp.arctan2(-r[..., 0, 1], r[..., 0, 0])], axis=-1)


def _twin(e: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """The other angles of the same rotation."""
    return math.pi + jnp.stack([e[..., 0], -e[..., 1], e[..., 2]], axis=-1)


def _nearest(e: Float[Array, "*n 3"], before: Float[Array, "*m 3"]) -> Float[Array, "*n 3"]:
    """Of all angles of the same rotation, those nearest to others."""
    one, other = (each + TURN * jnp.round((before - each) / TURN) for each in (e, _twin(e)))
    distance = lambda each: jnp.sum((each - before) ** 2, axis=-1, keepdims=True)
    return jnp.where(distance(other) < distance(one), other, one)


def _times(a: Float[Array, "*n 3 3"], b: Float[Array, "*m 3 3"]) -> Float[Array, "*n 3 3"]:
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)


def _vector(r: Float[Array, "*n 3 3"]) -> Float[Array, "*n 3"]:
    """The vector of a rotation by less than half a turn: its axis, as long as its angle."""
    pairs = (r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1])
    axis = 0.5 * jnp.stack(pairs, axis=-1)  # as long as the sine of the angle
    squared = jnp.sum(axis**2, axis=-1)
    some = squared > 1e-24
    sine = jnp.sqrt(jnp.where(some, squared, 1.0))
    cosine = 0.5 * (r[..., 0, 0] + r[..., 1, 1] + r[..., 2, 2] - 1.0)
    return axis * jnp.where(some, jnp.arctan2(sine, cosine) / sine, 1.0)[..., None]


def _turn(w: Float[Array, "*n 3"]) -> Float[Array, "*n 3 3"]:
    """The rotation by a vector (Rodrigues)."""
    squared = jnp.sum(w**2, axis=-1)[..., None, None]
    some = squared > 1e-8
    angle = jnp.sqrt(jnp.where(some, squared, 1.0))
    first = jnp.where(some, jnp.sin(angle) / angle, 1.0 - squared / 6.0)
    second = jnp.where(some, (1.0 - jnp.cos(angle)) / angle**2, 0.5 - squared / 24.0)
    x, y, z = jnp.moveaxis(w, -1, 0)
    zero = jnp.zeros_like(x)
    rows = ((zero, -z, y), (z, zero, -x), (-y, x, zero))
    cross = jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
    return jnp.eye(3, dtype=w.dtype) + first * cross + second * _times(cross, cross)
