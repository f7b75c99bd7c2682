"""Other plants, on which settings of models may be chosen."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from benchmarks.systems.plant import Plant
from benchmarks.systems.plants import GRAVITY, drawn


@dataclass(frozen=True)
class TwoLinkArm(Plant):
    """A double pendulum with a motor at each joint; both angles are 0 hanging down, the second is relative to the first."""

    mass_1: float = 1.0
    mass_2: float = 0.6
    length_1: float = 0.4
    length_2: float = 0.3
    damping_1: float = 0.5
    damping_2: float = 0.2
    torque_1: float = 3.0
    torque_2: float = 1.0

    names: ClassVar = ("th1", "th2", "thdot1", "thdot2")
    inputs: ClassVar = ("shoulder", "elbow")
    sample_time: ClassVar = 0.05
    spreads: ClassVar = (0.42, 0.54, 1.6, 2.7)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Released near rest."""
        return drawn(key, 0.5, 0.5, 0.5, 0.5)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Lagrange's equations of two point masses on massless links."""
        th1, th2, w1, w2 = x
        outer = self.mass_2 * self.length_2**2
        cross = self.mass_2 * self.length_1 * self.length_2
        base = (self.mass_1 + self.mass_2) * self.length_1**2
        m11 = base + outer + 2 * cross * jnp.cos(th2)
        m12 = outer + cross * jnp.cos(th2)
        lower = self.mass_2 * GRAVITY * self.length_2 * jnp.sin(th1 + th2)
        upper = (self.mass_1 + self.mass_2) * GRAVITY * self.length_1 * jnp.sin(th1) + lower
        coriolis = cross * jnp.sin(th2)
        first = self.torque_1 * u[0] - self.damping_1 * w1 + coriolis * (2 * w1 * w2 + w2**2) - upper
        second = self.torque_2 * u[1] - self.damping_2 * w2 - coriolis * w1**2 - lower
        determinant = m11 * outer - m12**2
        return jnp.stack([w1, w2, (outer * first - m12 * second) / determinant, (m11 * second - m12 * first) / determinant])


@dataclass(frozen=True)
class PredatorPrey(Plant):
    """Prey that is harvested and saturates its predators (Rosenzweig and MacArthur); numbers in thousands, time in months."""

    growth: float = 0.5
    capacity: float = 10.0
    predation: float = 0.6
    half_saturation: float = 3.0
    conversion: float = 0.5
    mortality: float = 0.15
    harvest: float = 0.15
    immigration: float = 0.05

    names: ClassVar = ("prey", "predators")
    inputs: ClassVar = ("harvest",)
    sample_time: ClassVar = 1.0
    spreads: ClassVar = (1.6, 0.8)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Around the numbers at which both persist."""
        return jax.random.uniform(key, (2,), minval=2.0, maxval=6.0)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Births and deaths; the harvest is around a mean of half its range."""
        prey, predators = x
        eaten = self.predation * prey * predators / (self.half_saturation + prey)
        harvested = self.harvest * 0.5 * (1 + u[0]) * prey
        born = self.growth * prey * (1 - prey / self.capacity)
        return jnp.stack([born + self.immigration - eaten - harvested, self.conversion * eaten - self.mortality * predators])


@dataclass(frozen=True)
class StirredTank(Plant):
    """A stirred tank reactor with an exothermic reaction and a cooling jacket, in mol/l and K (after Seborg et al.)."""

    feed_rate: float = 1.0
    log_rate: float = 24.98
    activation: float = 8750.0
    heat: float = 209.2
    transfer: float = 2.09
    coolant: float = 290.0
    coolant_range: float = 10.0

    names: ClassVar = ("concentration", "temperature")
    inputs: ClassVar = ("coolant",)
    sample_time: ClassVar = 0.1
    substeps: ClassVar = 20
    spreads: ClassVar = (0.023, 4.9)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Below ignition."""
        return jnp.asarray([0.85, 325.0]) + drawn(key, 0.1, 8.0)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Balances of mass and of heat, with a rate by Arrhenius' law."""
        concentration, temperature = x
        rate = jnp.exp(self.log_rate - self.activation / temperature) * concentration
        cooled = self.transfer * (self.coolant + self.coolant_range * u[0] - temperature)
        return jnp.stack(
            [self.feed_rate * (1 - concentration) - rate, self.feed_rate * (350 - temperature) + self.heat * rate + cooled]
        )


@dataclass(frozen=True)
class MagneticLevitation(Plant):
    """A steel ball below a magnet whose voltage a controller and the action set, in mm and A."""

    mass: float = 0.1
    magnet: float = 98.1
    resistance: float = 10.0
    inductance: float = 0.2
    proportional: float = 2.0
    derivative_gain: float = 0.08
    voltage: float = 2.5

    names: ClassVar = ("gap", "velocity", "current")
    inputs: ClassVar = ("voltage",)
    sample_time: ClassVar = 0.01
    substeps: ClassVar = 10
    spreads: ClassVar = (1.3, 34.0, 0.2)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Around the gap of 10 mm that a current of 1 A holds."""
        return jnp.asarray([10.0, 0.0, 1.0]) + drawn(key, 1.0, 20.0, 0.1)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Gravity against the magnet's pull, and the coil; without the controller the ball would fall."""
        gap, velocity, current = x
        pull = self.magnet * current**2 / gap**2  # N, with the gap in mm
        control = self.proportional * (gap - 10.0) + self.derivative_gain * velocity
        volts = 10.0 + control + self.voltage * u[0] - self.resistance * current
        return jnp.stack([velocity, 1000 * (GRAVITY - pull / self.mass), volts / self.inductance])


@dataclass(frozen=True)
class Mathieu(Plant):
    """A damped oscillator whose stiffness the action changes, pushed by a constant force."""

    damping: float = 0.5
    stiffness: float = 4.0
    modulation: float = 3.0
    cubic: float = 0.5
    load: float = 1.5

    names: ClassVar = ("position", "velocity")
    inputs: ClassVar = ("stiffness",)
    sample_time: ClassVar = 0.1
    spreads: ClassVar = (0.43, 0.83)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Released near rest."""
        return drawn(key, 1.0, 1.0)

    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Force balance; the action multiplies the state."""
        stiffness = self.stiffness + self.modulation * u[0]
        return jnp.stack([x[1], self.load - self.damping * x[1] - stiffness * x[0] - self.cubic * x[0] ** 3])


DEVELOPMENT: dict[str, Plant] = {
    "arm": TwoLinkArm(),
    "predator-prey": PredatorPrey(),
    "reactor": StirredTank(),
    "levitation": MagneticLevitation(),
    "mathieu": Mathieu(),
}
"""Noise-free plants by name."""
