"""Control problems with known solutions."""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float

from sonde.imagination import Mean
from sonde.models import Posterior, Prediction
from sonde.objectives import TaskReward
from sonde.solvers import ControlProblem


class Linear(Posterior):
    """x' = A x + B u, with constant stds."""

    a: Float[Array, "dx dx"]
    b: Float[Array, "dx du"]
    epistemic: float = 0.0
    aleatoric: float = 0.0

    def predict(self, x, u):
        mean = self.a @ x + self.b @ u
        return Prediction(mean, jnp.full_like(mean, self.epistemic), jnp.full_like(mean, self.aleatoric))


def clock(**stds) -> Linear:
    """The state counts the steps, whatever the action: x' = x + 1 in the first of two dimensions, the second is always 1."""
    return Linear(jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.zeros((2, 1)), **stds)


def midnight() -> Array:
    """The first state of the clock."""
    return jnp.array([0.0, 1.0])


def of_action(function):
    """An objective that depends on the action only."""
    return TaskReward(lambda x, u, x_next: function(u[0]))


def problem_of(posterior, objective, imagination=None, particles=1, kind=ControlProblem):
    """A control problem with two states and one action."""
    return kind(posterior, replace(imagination or Mean(), particles=particles), objective, 2, 1)
