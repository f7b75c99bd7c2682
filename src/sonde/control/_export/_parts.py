"""What of a posterior is exported: the model of one seed that predicts, and the factors on its stds."""

from typing import NamedTuple

import numpy as np

from sonde._internal.errors import SondeError
from sonde.models import RBF, Linear, Matern32, Matern52, Posterior
from sonde.models._auto import AutoPosterior
from sonde.models._calibration import PosteriorWithBeta, RecalibratedPosterior
from sonde.models._ensemble_posterior import EnsemblePosterior
from sonde.models._gp_posterior import GPPosterior
from sonde.models._kernels import PlusAffine
from sonde.models._network import Network
from sonde.models._physics_posterior import KnownPhysicsPosterior


class ModelParts(NamedTuple):
    """A posterior without what is wrapped around it."""

    core: GPPosterior | EnsemblePosterior
    """What predicts."""
    epistemic: np.ndarray | float
    """Factor on the epistemic std [dx]."""
    aleatoric: np.ndarray | float
    """Factor on the aleatoric std [dx]."""

    @property
    def state_dim(self) -> int:
        """Number of state dimensions dx."""
        return self.core_targets.shape[0]

    @property
    def input_dim(self) -> int:
        """Numbers beside the state in an input: the past, if it belongs to the state, and the action."""
        return self.core_inputs.shape[0] - self.state_dim

    @property
    def core_inputs(self) -> np.ndarray:
        """Shift of the normalised inputs [dz]."""
        return np.asarray(_normalised(self.core).inputs.shift)

    @property
    def core_targets(self) -> np.ndarray:
        """Shift of the normalised targets [dx]."""
        return np.asarray(_normalised(self.core).targets.shift)


def parts_of(posterior: Posterior) -> ModelParts:
    """Unwrap a posterior; one that cannot be exported is rejected.

    Args:
        posterior: The posterior of one seed.
    """
    epistemic: np.ndarray | float = 1.0
    aleatoric: np.ndarray | float = 1.0
    while True:
        if isinstance(posterior, RecalibratedPosterior):
            epistemic = epistemic * np.asarray(posterior.factors.epistemic)
            aleatoric = aleatoric * np.asarray(posterior.factors.aleatoric)
            posterior = posterior.posterior
        elif isinstance(posterior, PosteriorWithBeta):
            posterior = posterior.posterior
        elif isinstance(posterior, AutoPosterior) and np.ndim(posterior.choice) == 0:
            posterior = posterior.candidates[int(posterior.choice)]
        else:
            break
    if isinstance(posterior, KnownPhysicsPosterior):
        raise SondeError(
            "export: known physics is Python code, which has no form outside of it; `posterior.posterior` is what was "
            "learned of its errors: export that one (its mean is x plus the error), and write the equations in your own program"
        )
    if not isinstance(posterior, GPPosterior | EnsemblePosterior):
        name = type(posterior).__name__
        raise SondeError(f"export: expected the posterior of a Gaussian process or a probabilistic ensemble, got {name}")
    if isinstance(posterior, GPPosterior):
        _check_kernel(posterior)
    else:
        plain_networks(posterior)
    parts = ModelParts(posterior, epistemic, aleatoric)
    if parts.core_targets.ndim != 1:
        raise SondeError("export: expected the posterior of one seed, got one with a leading axis of seeds; take a slice of it")
    return parts


def plain_networks(core: EnsemblePosterior) -> Network:
    """The networks of an ensemble; those of the relational one are rejected.

    Args:
        core: The posterior of the ensemble.
    """
    networks = core.params.networks
    if not isinstance(networks, Network):
        raise SondeError(
            f"export: networks of {type(core.model).__name__} cannot be exported; expected a Gaussian process or a "
            "probabilistic ensemble (model pe)"
        )
    return networks


def _check_kernel(core: GPPosterior) -> None:
    """Reject kernels of users: subclasses too, which may compute something else."""
    kernel = core.kernel.base if isinstance(core.kernel, PlusAffine) else core.kernel
    if type(kernel) not in (RBF, Matern32, Matern52, Linear):
        raise SondeError(
            f"export: {kernel!r} is not one of the kernels rbf, matern32, matern52 and linear, which can be exported"
        )


def _normalised(core: GPPosterior | EnsemblePosterior):
    return core if isinstance(core, GPPosterior) else core.params
