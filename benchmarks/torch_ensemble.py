"""The ensemble, its imagined steps and the information gain in PyTorch, for the planners of other packages."""

import itertools
from collections.abc import Callable
from typing import Any

from benchmarks.ensembles import BETA, Setting


class TorchEnsemble:
    """An ensemble whose members are one batch of matrices, which PyTorch multiplies fastest."""

    def __init__(self, torch: Any, setting: Setting):
        """Draw random weights that keep the spread of a unit input.

        Args:
            torch: The module.
            setting: The sizes.
        """
        self.torch, self.setting = torch, setting
        model = setting.model
        outputs = setting.state_dim * (2 if model.noise == "learned" else 1)
        sizes = [setting.state_dim + setting.action_dim, *[model.width] * model.layers, outputs]
        self.weights = [torch.randn(model.members, n, m) / n**0.5 for n, m in itertools.pairwise(sizes)]
        self.biases = [torch.zeros(model.members, 1, m) for m in sizes[1:]]
        self.rewards: list[Any] = []
        self.transitions = 0
        self.step: Callable[[Any, Any], tuple[Any, Any]] = self._step

    def dynamics(self, x: Any, controls: Any) -> Any:
        """Imagine one step of all particles of all plans.

        The reward of the step is kept for `cost`, which the package calls with states only.

        Args:
            x: States [plans, particles * dx].
            controls: Actions and etas [plans, du + dx].

        Returns:
            Next states [plans, particles * dx].
        """
        x_next, reward = self.step(x, controls)
        self.rewards.append(reward)
        self.transitions += x.shape[0] * self.setting.particles
        return x_next

    def cost(self, _states: Any, _controls: Any) -> Any:
        """The cost of each plan: minus the information of all its steps."""
        total = -self.torch.stack(self.rewards).sum(dim=0)
        self.rewards.clear()
        return total

    def _step(self, x: Any, controls: Any) -> tuple[Any, Any]:
        torch, setting, plans = self.torch, self.setting, x.shape[0]
        dx, du, particles = setting.state_dim, setting.action_dim, setting.particles
        x = x.reshape(plans * particles, dx)
        each = controls.repeat_interleave(particles, dim=0) if particles > 1 else controls
        u, eta = each[:, :du], each[:, du:].clamp(-1, 1)
        mean, noise_variance = self.predict(torch.cat([x, u], dim=1))
        epistemic = mean.std(dim=0, correction=0)
        x_next = x + mean.mean(dim=0) + BETA * epistemic * eta
        if particles > 1:
            x_next = x_next + noise_variance.sqrt() * torch.randn_like(x)
        information = 0.5 * torch.log1p(epistemic**2 / noise_variance).sum(dim=1)
        return x_next.reshape(plans, particles * dx), information.reshape(plans, particles).mean(dim=1)

    def predict(self, z: Any) -> tuple[Any, Any]:
        """Evaluate all members.

        Args:
            z: Inputs [rows, dx + du].

        Returns:
            Means of the members [E, rows, dx], and the mean of their noise variances [rows, dx].
        """
        h = z.expand(self.setting.model.members, -1, -1)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = self.torch.baddbmm(bias, h, weight)
            if i + 1 < len(self.weights):
                h = self.torch.nn.functional.silu(h)
        return self._heads(h)

    def _heads(self, h: Any) -> tuple[Any, Any]:
        torch, model = self.torch, self.setting.model
        if model.noise == "fixed":
            return h, torch.full_like(h[0], model.noise_std**2)
        mean, raw = h.chunk(2, dim=-1)
        low, high = (torch.tensor(bound).log() for bound in (model.noise_floor, model.noise_ceiling))
        softplus = torch.nn.functional.softplus
        log_std = low + softplus(high - softplus(high - raw) - low)
        return mean, torch.exp(2 * log_std).mean(dim=0)
