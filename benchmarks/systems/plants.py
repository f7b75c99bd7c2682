"""The eight plants that models are judged on; settings must not be chosen on them (see `development` for that)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from benchmarks.systems.plant import Plant

GRAVITY = 9.81


def drawn(key: Key[Array, ""], *widths: float) -> Float[Array, " dx"]:
    """Draw a state uniformly around zero.

    Args:
        key: Randomness.
        widths: Largest magnitude of each state dimension.
    """
    return jax.random.uniform(key, (len(widths),), minval=-1.0) * jnp.asarray(widths)


@dataclass(frozen=True)
class DampedPendulum(Plant):
    """A damped pendulum with a motor at its joint; the angle is 0 hanging down."""

    mass: float = 0.5
    length: float = 0.4
    damping: float = 0.12
    torque: float = 0.9

    names: ClassVar = ("th", "thdot")
    inputs: ClassVar = ("torque",)
    sample_time: ClassVar = 0.05
    spreads: ClassVar = (0.5, 2.0)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Released near rest."""
        return drawn(key, 0.5, 0.5)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Torque balance at the joint."""
        torque = self.torque * u[0] - self.damping * x[1] - self.mass * GRAVITY * self.length * jnp.sin(x[0])
        return jnp.stack([x[1], torque / (self.mass * self.length**2)])


@dataclass(frozen=True)
class CartPole(Plant):
    """A pole on a cart that is pushed; the angle is 0 upright, and experiments end soon after the pole has fallen."""

    cart_mass: float = 1.0
    pole_mass: float = 0.2
    half_length: float = 0.5
    cart_friction: float = 0.5
    pole_friction: float = 0.01
    force: float = 6.0

    names: ClassVar = ("position", "th", "velocity", "thdot")
    inputs: ClassVar = ("force",)
    sample_time: ClassVar = 0.03
    episode: ClassVar = 30
    spreads: ClassVar = (0.43, 1.1, 0.98, 3.6)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Held near upright, anywhere in the middle of the rail."""
        return drawn(key, 0.5, 0.3, 0.2, 0.5)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """The equations of Barto, Sutton and Anderson (1983) with viscous friction."""
        _, th, velocity, speed = x
        total, moment = self.cart_mass + self.pole_mass, self.pole_mass * self.half_length
        push = self.force * u[0] - self.cart_friction * velocity + moment * speed**2 * jnp.sin(th)
        turn = GRAVITY * jnp.sin(th) - jnp.cos(th) * push / total - self.pole_friction * speed / moment
        angular = turn / (self.half_length * (4 / 3 - self.pole_mass * jnp.cos(th) ** 2 / total))
        return jnp.stack([velocity, speed, (push - moment * angular * jnp.cos(th)) / total, angular])


@dataclass(frozen=True)
class TwoMasses(Plant):
    """A mass on a linear spring, and a second one on a spring that hardens with the cube of its extension."""

    mass_1: float = 1.0
    mass_2: float = 0.5
    stiffness_1: float = 4.0
    stiffness_2: float = 2.0
    cubic: float = 6.0
    damping_1: float = 0.4
    damping_2: float = 0.2
    force: float = 4.0

    names: ClassVar = ("p1", "p2", "v1", "v2")
    inputs: ClassVar = ("force",)
    sample_time: ClassVar = 0.1
    spreads: ClassVar = (0.92, 1.2, 1.4, 1.9)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Released near rest."""
        return drawn(key, 0.5, 0.5, 0.5, 0.5)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Force balance of both masses; the actuator moves the first."""
        p1, p2, v1, v2 = x
        extension = p2 - p1
        coupling = self.stiffness_2 * extension + self.cubic * extension**3 + self.damping_2 * (v2 - v1)
        first = self.force * u[0] - self.stiffness_1 * p1 - self.damping_1 * v1 + coupling
        return jnp.stack([v1, v2, first / self.mass_1, -coupling / self.mass_2])


@dataclass(frozen=True)
class Duffing(Plant):
    """A forced oscillator with two wells."""

    damping: float = 0.3
    stiffness: float = -1.0
    cubic: float = 1.0
    force: float = 0.8

    names: ClassVar = ("position", "velocity")
    inputs: ClassVar = ("force",)
    sample_time: ClassVar = 0.2
    spreads: ClassVar = (1.0, 0.67)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """In either well."""
        return drawn(key, 1.2, 0.5)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """The Duffing equation."""
        acceleration = self.force * u[0] - self.damping * x[1] - self.stiffness * x[0] - self.cubic * x[0] ** 3
        return jnp.stack([x[1], acceleration])


@dataclass(frozen=True)
class VanDerPol(Plant):
    """A forced Van der Pol oscillator."""

    nonlinearity: float = 1.5
    stiffness: float = 1.0
    force: float = 1.5

    names: ClassVar = ("position", "velocity")
    inputs: ClassVar = ("force",)
    sample_time: ClassVar = 0.1
    spreads: ClassVar = (1.5, 1.5)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Inside and around the limit cycle."""
        return drawn(key, 2.0, 2.0)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """The Van der Pol equation."""
        acceleration = self.nonlinearity * (1 - x[0] ** 2) * x[1] - self.stiffness * x[0] + self.force * u[0]
        return jnp.stack([x[1], acceleration])


@dataclass(frozen=True)
class TankCascade(Plant):
    """Three tanks, each draining into the next; a pump that never stops fills the first. Lengths are in cm."""

    area: float = 30.0
    outlet_1: float = 0.45
    outlet_2: float = 0.4
    outlet_3: float = 0.38
    mean_flow: float = 55.0
    flow_range: float = 40.0

    names: ClassVar = ("h1", "h2", "h3")
    inputs: ClassVar = ("pump",)
    sample_time: ClassVar = 3.0
    spreads: ClassVar = (6.2, 6.4, 6.2)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Partly filled."""
        return jax.random.uniform(key, (3,), minval=3.0, maxval=15.0)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Flow balance with outflows by Torricelli's law; an empty tank has none."""
        outlets = jnp.stack([jnp.asarray(outlet) for outlet in (self.outlet_1, self.outlet_2, self.outlet_3)])
        out = outlets * jnp.sqrt(2 * 100 * GRAVITY * jnp.maximum(x, 1e-9))
        into = jnp.stack([self.mean_flow + self.flow_range * u[0], out[0], out[1]])
        return (into - out) / self.area


@dataclass(frozen=True)
class Motor(Plant):
    """A DC motor with viscous and (smoothed) Coulomb friction."""

    resistance: float = 2.0
    inductance: float = 0.01
    torque_constant: float = 0.05
    inertia: float = 5e-5
    viscous: float = 1e-4
    coulomb: float = 0.04
    voltage: float = 12.0

    names: ClassVar = ("speed", "current")
    inputs: ClassVar = ("voltage",)
    sample_time: ClassVar = 0.01
    substeps: ClassVar = 10
    spreads: ClassVar = (100.0, 3.5)
    smoothing: ClassVar = 3.0
    """Speed in rad/s at which three quarters of the Coulomb friction act."""

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Turning slowly in either direction."""
        return drawn(key, 40.0, 0.5)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Balances of torques and of voltages."""
        speed, current = x
        friction = self.viscous * speed + self.coulomb * jnp.tanh(speed / self.smoothing)
        voltage = self.voltage * u[0] - self.resistance * current - self.torque_constant * speed
        return jnp.stack([(self.torque_constant * current - friction) / self.inertia, voltage / self.inductance])


@dataclass(frozen=True)
class PlanarQuadrotor(Plant):
    """Two rotors in a vertical plane, around hovering; experiments end before it has fallen far."""

    mass: float = 0.5
    inertia: float = 0.004
    drag: float = 0.1
    hover_thrust: float = 4.905
    thrust_range: float = 2.0
    torque: float = 0.04

    names: ClassVar = ("x", "z", "tilt", "vx", "vz", "tiltdot")
    inputs: ClassVar = ("thrust", "torque")
    sample_time: ClassVar = 0.03
    episode: ClassVar = 30
    spreads: ClassVar = (0.54, 0.43, 0.73, 1.6, 1.0, 2.1)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Near hovering."""
        return drawn(key, 0.5, 0.5, 0.4, 0.5, 0.5, 0.5)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Sum and difference of the rotors' thrusts, and drag with the square of the speed."""
        _, _, tilt, vx, vz, turn = x
        thrust = self.hover_thrust + self.thrust_range * u[0]
        speed = jnp.sqrt(vx**2 + vz**2 + 1e-6)
        along_x = -thrust * jnp.sin(tilt) - self.drag * speed * vx
        along_z = thrust * jnp.cos(tilt) - self.drag * speed * vz - self.mass * GRAVITY
        return jnp.stack([vx, vz, turn, along_x / self.mass, along_z / self.mass, self.torque * u[1] / self.inertia])


SYSTEMS: dict[str, Plant] = {
    "pendulum": DampedPendulum(),
    "cart-pole": CartPole(),
    "two-masses": TwoMasses(),
    "duffing": Duffing(),
    "van-der-pol": VanDerPol(),
    "tanks": TankCascade(),
    "motor": Motor(),
    "quadrotor": PlanarQuadrotor(),
}
"""Noise-free plants by name."""
