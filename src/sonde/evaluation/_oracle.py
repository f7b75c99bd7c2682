"""The true system as a posterior: planning on it shows what a perfect model would achieve."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde.models import JacobianPrediction, Posterior, Prediction
from sonde.worlds import JaxWorld, World


def check_oracle(world: World) -> None:
    """Reject a world that nothing can be planned on.

    Args:
        world: The true system.
    """
    if not isinstance(world, JaxWorld):
        name = type(world).__name__
        raise SondeError(
            f"{name} is not written in JAX, so it cannot serve as a model: there is no oracle; leave it out, and compare with "
            "runs of other methods instead"
        )


class TrueDynamics(Posterior):
    """The exact dynamics of a world written in JAX as a posterior; planning on it gives the oracle."""

    world: World = eqx.field(static=True)
    """The world, a `JaxWorld`."""

    def __check_init__(self):
        """Reject worlds that are not written in JAX."""
        check_oracle(self.world)

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """The true next state, without uncertainty."""
        assert isinstance(self.world, JaxWorld)
        mean = self.world.dynamics(x, u[-self.world.action_dim :])  # the action comes after the past, if there is one
        return Prediction(mean, 0 * mean, 0 * mean)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """The true Jacobian, without uncertainty."""
        del key, count
        mean = self.mean_jacobian(x, u)
        return JacobianPrediction(mean, jnp.zeros_like(mean), mean[None])
