"""The ensemble of fully connected networks, which knows nothing of a system but the number of its dimensions."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sonde._internal.errors import one_of
from sonde.data import Data
from sonde.models._base import MemberPredictions, Prediction
from sonde.models._ensemble import Average, Ensemble, EnsembleParams, MemberOutputs
from sonde.models._ensemble_posterior import EnsemblePosterior
from sonde.models._fused import FusedNetworks, fits, kernel_runs_on, processors_of
from sonde.models._network import MemberNetwork, Network
from sonde.models._normaliser import Normaliser


@dataclass(frozen=True)
class ProbabilisticEnsemble(Ensemble):
    """Ensemble of networks with mean and noise heads, whose disagreement is the epistemic std."""

    affine: bool = True
    """Fit an affine function in closed form, and train the networks on what it leaves. Each member draws its own from the
    distribution of plausible ones."""
    matmul_precision: Literal["half", "single"] = "half"
    """Matrix products of predictions on NVIDIA GPUs. half: half precision with single-precision sums, several times faster.
    single: as the device multiplies single-precision numbers. No difference on CPUs."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        super().__post_init__()
        one_of("setting of the model's matmul_precision", self.matmul_precision, ("half", "single"))

    @property
    def has_affine_part(self) -> bool:
        """Whether `affine` is on."""
        return self.affine

    @property
    def live_units(self) -> int:
        """Those of one layer."""
        return self.width

    def network_sizes(self, state_dim: int, input_dim: int) -> tuple[tuple[int, ...], ...]:
        """One network, of states and inputs to changes and noise."""
        outputs = state_dim if self.noise == "fixed" else 2 * state_dim
        return ((state_dim + input_dim, *[self.width] * self.layers, outputs),)

    def new_networks(self, state_dim: int, input_dim: int, key: Key[Array, ""]) -> Network:
        """Random networks."""
        (sizes,) = self.network_sizes(state_dim, input_dim)
        return jax.vmap(lambda k: Network.init(sizes, k, self.initial_scale))(jax.random.split(key, self.members))

    def no_normalisation(self, state_dim: int, input_dim: int) -> tuple[Normaliser, Normaliser]:
        """A number for each dimension."""
        return Normaliser.identity(state_dim + input_dim), Normaliser.identity(state_dim)

    def normalisers(self, data: Data) -> tuple[Normaliser, Normaliser]:
        """Each dimension by itself."""
        return Normaliser.of_inputs(data, self.smallest_spread), Normaliser.of_targets(data, self.smallest_spread)

    def inputs(self, normaliser: Normaliser, x: Float[Array, "*n dx"], u: Float[Array, "*n du"]) -> Float[Array, "*n dz"]:
        """State and inputs."""
        return normaliser(jnp.concatenate([x, u], axis=-1))

    def changes(self, x: Float[Array, "*n dx"], x_next: Float[Array, "*n dx"]) -> Float[Array, "*n dx"]:
        """Differences."""
        return x_next - x

    def condition(self, params: EnsembleParams, data: Data) -> EnsemblePosterior:
        """The trained networks."""
        del data
        return EnsemblePosterior.of(self, params)

    def prediction(
        self, params: EnsembleParams, x: Float[Array, " dx"], z: Float[Array, " dz"], outputs: MemberOutputs, average: Average
    ) -> Prediction:
        """Add the affine part, and the state."""
        scale, (mean, std) = params.targets.scale, outputs
        if params.affine is not None:
            mean = mean + params.affine @ z / scale
        centre, unchanged = average(mean), x + params.targets.shift
        return Prediction(
            mean=unchanged + scale * centre,
            epistemic_std=scale * jnp.sqrt(average((mean - centre) ** 2)),
            aleatoric_std=scale * jnp.sqrt(average(std**2)),
            members=MemberPredictions(unchanged + scale * mean, scale * std),
        )

    def fused(self, networks: MemberNetwork) -> FusedNetworks | None:
        """The networks in half precision, where the device and their size allow it."""
        assert isinstance(networks, Network)
        fast = self.matmul_precision == "half" and fits(networks) and kernel_runs_on(networks.weights[0])
        return FusedNetworks.of(networks, processors_of(networks.weights[0])) if fast else None
