"""Control problems whose answers are known."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sonde import Prediction, Posterior
from sonde.imagination import Mean
from sonde.objectives import TaskReward
from sonde.solvers import ControlProblem


class Linear(Posterior):
    """x' = A x + B u, known but for the stds."""

    a: Float[Array, "dx dx"]
    b: Float[Array, "dx du"]
    epistemic: float = 0.0
    aleatoric: float = 0.0

    def predict(self, x, u):
        mean = self.a @ x + self.b @ u
        return Prediction(mean, jnp.full_like(mean, self.epistemic), jnp.full_like(mean, self.aleatoric))


def clock(**stds) -> Linear:
    """The state counts the steps, whatever is done: x' = x + 1 in the first of two dimensions, the second is always 1."""
    return Linear(jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.zeros((2, 1)), **stds)


def midnight() -> Array:
    """The state of the clock at the start."""
    return jnp.array([0.0, 1.0])


def of_action(function):
    """The objective that only looks at the action."""
    return TaskReward(lambda x, u, x_next: function(u[0]))


def problem_of(posterior, objective, imagination=None, particles=1, kind=ControlProblem):
    return kind(posterior, imagination or Mean(), objective, 2, 1, particles)
