"""The true system as a posterior: what a planner could do with a perfect model."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde.models import JacobianPrediction, Posterior, Prediction
from sonde.worlds import JaxWorld, World


class TrueDynamics(Posterior):
    """A posterior that knows a world written in JAX; planning on it gives the oracle."""

    world: World = eqx.field(static=True)

    def __check_init__(self):
        """Only a world written in JAX can be planned on."""
        if not isinstance(self.world, JaxWorld):
            name = type(self.world).__name__
            raise SondeError(f"{name} is not written in JAX, so no planner can use it as a model: there is no oracle")

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """The true next state, without uncertainty."""
        assert isinstance(self.world, JaxWorld)
        mean = self.world.dynamics(x, u)
        return Prediction(mean, 0 * mean, 0 * mean)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """The true Jacobian, without uncertainty."""
        del key, count
        mean = self.mean_jacobian(x, u)
        return JacobianPrediction(mean, jnp.zeros_like(mean), mean[None])
