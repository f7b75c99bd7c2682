"""mbrl-lib as a peer: its ensemble (`GaussianMLP`) under its own iCEM.

mbrl-lib's model environment asks one member about each particle, which cannot give an information gain. So its ensemble is
asked for the outputs of all members, as its training does, and the imagined step and its reward are those of the other peer.

Version 0.2.0 pins hydra-core 1.0.3, which Python 3.11 cannot import, and Gymnasium 0.26.3, so it cannot be part of the extra
`benchmarks`. It runs with a current hydra-core: `pip install hydra-core tqdm termcolor; pip install --no-deps mbrl`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.ensembles import Setting
from benchmarks.torch_ensemble import TorchEnsemble


class MbrlEnsemble(TorchEnsemble):
    """mbrl-lib's networks instead of the plain ones."""

    def __init__(self, torch: Any, setting: Setting):
        """Make an untrained `GaussianMLP`.

        Args:
            torch: The module.
            setting: The sizes.
        """
        super().__init__(torch, setting)
        model = setting.model
        self.networks = import_module("mbrl.models").GaussianMLP(
            setting.state_dim + setting.action_dim,
            setting.state_dim,
            "cpu",
            num_layers=model.layers,
            ensemble_size=model.members,
            hid_size=model.width,
            deterministic=model.noise == "fixed",
            activation_fn_cfg={"_target_": "torch.nn.SiLU"},
        )

    def predict(self, z: Any) -> tuple[Any, Any]:
        """Evaluate all members; see the base class."""
        mean, log_variance = self.networks.forward(z, use_propagation=False)
        if log_variance is None:
            return mean, self.torch.full_like(mean[0], self.setting.model.noise_std**2)
        return mean, log_variance.exp().mean(dim=0)


def planner(torch: Any, setting: Setting) -> tuple[MbrlEnsemble, Callable[[], Any]]:
    """One planning step of mbrl-lib.

    Args:
        torch: The module.
        setting: The sizes.

    Returns:
        The ensemble, which counts imagined transitions, and the step.
    """
    ensemble, solver = MbrlEnsemble(torch, setting), setting.solver
    controls = np.ones(setting.action_dim + setting.state_dim)
    config = {
        "_target_": "mbrl.planning.ICEMOptimizer",
        "num_iterations": solver.iterations,
        "elite_ratio": (solver.elites - 0.5) / solver.samples,  # both fractions are rounded up
        "population_size": solver.samples,
        "population_decay_factor": solver.decay,
        "colored_noise_exponent": solver.exponent,
        "keep_elite_frac": (solver.kept_elites - 0.5) / solver.elites,
        "alpha": solver.momentum,
        "device": "cpu",
        "lower_bound": None,
        "upper_bound": None,
    }
    config = import_module("omegaconf").OmegaConf.create(config)
    optimiser = import_module("mbrl.planning").TrajectoryOptimizer(config, -controls, controls, solver.horizon)

    def values(plans: Any) -> Any:
        x = torch.zeros(len(plans), setting.particles * setting.state_dim)
        for number in range(solver.horizon):
            x = ensemble.dynamics(x, plans[:, number])
        return -ensemble.cost(None, None)

    def step() -> Any:
        with torch.inference_mode():
            return optimiser.optimize(values)

    return ensemble, step
