"""The posterior of an ensemble: what all members predict at one point."""

from dataclasses import replace
from functools import partial, reduce

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sonde.models._base import UNROLL, JacobianPrediction, Posterior, Prediction
from sonde.models._ensemble import Ensemble, EnsembleParams, MemberOutputs
from sonde.models._fused import FusedNetworks
from sonde.models._network import over_members
from sonde.models._rows import in_rows


def _written_out_mean(values: Float[Array, "E dx"]) -> Float[Array, " dx"]:
    return reduce(jnp.add, list(values)) / values.shape[0]


class EnsemblePosterior(Posterior):
    """Predictions of the members, and their mean and disagreement."""

    params: EnsembleParams
    fused: FusedNetworks | None
    """The same networks for the fused GPU kernel, if it is used."""
    model: Ensemble = eqx.field(static=True)
    together: bool = eqx.field(static=True, default=False)
    """Whether all queries of a CPU's program are evaluated together (`models/_rows.py`)."""

    @classmethod
    def of(cls, model: Ensemble, params: EnsembleParams) -> "EnsemblePosterior":
        """The posterior of trained networks; it depends on the data only through their weights.

        Args:
            model: The ensemble.
            params: Its params after a fit.
        """
        # predictions do not need what only the next fit does
        return cls(replace(params, moments=None, told=None), None, model)

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Predict with the mean and std of the members' means, and the root mean square of their noise stds."""
        params, model = self.params, self.model
        z = model.inputs(params.inputs, x, u)
        one_by_one = lambda z: over_members(lambda network: network(z[None])[0], params.networks)
        portable = partial(in_rows, params.networks) if self.together else one_by_one
        mean, log_std = model.heads((self.fused or portable)(z))
        # written out on a GPU, where a reduction would be a kernel of its own
        average = partial(jnp.mean, axis=0) if self.fused is None else _written_out_mean
        return model.prediction(params, x, z, MemberOutputs(mean.astype(x.dtype), jnp.exp(log_std)), average)

    @property
    def ensemble_size(self) -> int:
        """Number of members."""
        return self.model.members

    @property
    def unroll(self) -> int:
        """Steps of a plan that are compiled in a row."""
        return 1 if self.fused is None else UNROLL

    def specialise(self) -> "EnsemblePosterior":
        """Use the fused kernel if the device that holds the weights can run it; on a CPU, evaluate all queries together."""
        networks = self.params.networks
        devices = jax.tree.leaves(networks)[0].devices()
        on_cpu = all(device.platform == "cpu" for device in devices)
        return EnsemblePosterior(self.params, self.model.fused(networks), self.model, on_cpu)

    def differentiable(self) -> "EnsemblePosterior":
        """The networks themselves: the fused kernel has no gradients, and those of collected rows cost more."""
        return EnsemblePosterior(self.params, None, self.model)

    def member(self, index: Int[Array, ""]) -> "EnsemblePosterior":
        """One member as an ensemble of its own."""
        one = lambda tree: jax.tree.map(lambda leaf: leaf[index % self.model.members][None], tree)
        params = replace(self.params, networks=one(self.params.networks), affine=one(self.params.affine))
        return EnsemblePosterior(params, one(self.fused), self.model, self.together)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Predict with the mean and std of the members' Jacobians, which are the samples."""
        del key, count
        plain = self.differentiable()

        def means(x: Array, u: Array) -> Array:
            members = plain.predict(x, u).members
            assert members is not None
            return members.means

        samples = jnp.concatenate(jax.jacrev(means, argnums=(0, 1))(x, u), axis=-1)
        return JacobianPrediction(jnp.mean(samples, axis=0), jnp.std(samples, axis=0), samples)
