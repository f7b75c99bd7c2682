"""Planning with an ensemble: `pytorch-icem` with an ensemble in plain PyTorch against ours, at the same work.

Equal in both: samples, kept plans, iterations, horizon, particles, members, layers, widths, both heads, the imagined noise,
the optimistic choice among plausible states, and the information gain of every step. Weights are random in both, since the
work does not depend on them. Differences: PyTorch uses single precision throughout, where our states are double; `pytorch-icem`
counts kept plans among its samples, so it is given `samples + kept`, and it does not clip plans; ours also imagines the best
plan once more.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from benchmarks import engine, work
from benchmarks.ensembles import BETA, CHEETAH_WITH_NOISE, FETCH, PENDULUM_WITH_NOISE, TINY, Setting, problem_of
from benchmarks.measuring import Plan, in_turns, installed, network_products, note
from benchmarks.rows import Row
from sonde._internal.errors import first_line


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
        h = torch.cat([x, u], dim=1).expand(setting.model.members, -1, -1)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if i + 1 < len(self.weights):
                h = torch.nn.functional.silu(h)
        mean, noise_variance = self._heads(h)
        epistemic = mean.std(dim=0, correction=0)
        x_next = x + mean.mean(dim=0) + BETA * epistemic * eta
        if particles > 1:
            x_next = x_next + noise_variance.sqrt() * torch.randn_like(x)
        information = 0.5 * torch.log1p(epistemic**2 / noise_variance).sum(dim=1)
        return x_next.reshape(plans, particles * dx), information.reshape(plans, particles).mean(dim=1)

    def _heads(self, h: Any) -> tuple[Any, Any]:
        """Means of the members, and the mean of their noise variances."""
        torch, model = self.torch, self.setting.model
        if model.noise == "fixed":
            return h, torch.full_like(h[0], model.noise_std**2)
        mean, raw = h.chunk(2, dim=-1)
        low, high = (torch.tensor(bound).log() for bound in (model.noise_floor, model.noise_ceiling))
        softplus = torch.nn.functional.softplus
        log_std = low + softplus(high - softplus(high - raw) - low)
        return mean, torch.exp(2 * log_std).mean(dim=0)


def _planner(torch: Any, icem: Any, ensemble: TorchEnsemble) -> Callable[[], Any]:
    """One planning step of `pytorch-icem`."""
    setting, solver = ensemble.setting, ensemble.setting.solver
    controls = setting.action_dim + setting.state_dim
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package copies a tensor in a way that PyTorch warns about
        planner = icem.iCEM(
            ensemble.dynamics,
            ensemble.cost,
            nx=setting.state_dim * setting.particles,
            nu=1,
            sigma=solver.initial_std,
            num_samples=solver.samples + solver.kept_elites,
            num_elites=solver.elites,
            elites_keep_fraction=(solver.kept_elites + 0.5) / solver.elites,
            horizon=solver.horizon,
            alpha=solver.momentum,
            noise_beta=solver.exponent,
            warmup_iters=solver.iterations,
            online_iters=solver.iterations,
        )
    # version 0.1.0 rejects more than one control by mistake: it compares their number with the number of axes
    planner.nu, planner.sigma = controls, torch.full((controls,), float(solver.initial_std))
    planner.reset()
    start = torch.zeros(setting.state_dim * setting.particles)

    def step():
        with torch.inference_mode():
            return planner.command(start)

    return step


def _faster(torch: Any, icem: Any, setting: Setting) -> tuple[TorchEnsemble, Callable[[], Any], str]:
    """PyTorch with or without its compiler, whichever is faster here."""
    plain = TorchEnsemble(torch, setting)
    compiled = TorchEnsemble(torch, setting)
    step = _planner(torch, icem, plain)
    try:
        compiled.step = torch.compile(compiled._step)
        compiled_step = _planner(torch, icem, compiled)
        compiled_step()
        first, second = in_turns({"plain": step, "compiled": compiled_step}, 1).values()
    except Exception as error:  # its compiler needs a C++ compiler, and fails in several ways
        note(f"torch.compile does not work here: {first_line(error)}")
        return plain, step, "eager"
    return (compiled, compiled_step, "compiled") if second.wall_seconds < first.wall_seconds else (plain, step, "eager")


def compare(plan: Plan) -> Iterator[Row]:
    """Rows of both packages for each size."""
    if not installed("torch", "pytorch_icem"):
        return
    torch, icem = import_module("torch"), import_module("pytorch_icem")
    torch.manual_seed(0)
    quick = CHEETAH_WITH_NOISE, FETCH
    for setting in {"tiny": (TINY,), "quick": quick, "full": (PENDULUM_WITH_NOISE, *quick)}[plan.effort]:
        note(f"peers: planning, {setting.name} ...")
        problem = problem_of(setting, 1)
        ours = engine.planning(problem, setting.solver, 1)
        ensemble, theirs, how = _faster(torch, icem, setting)
        ensemble.transitions = 0
        theirs()
        transitions = {"sonde": work.imagined_transitions(setting.solver, problem.simulated_particles)}
        by = f"pytorch-icem + PyTorch ({how})"
        transitions[by] = ensemble.transitions
        timings = in_turns({"sonde": ours, by: theirs}, plan.repeats)
        for name, timing in timings.items():
            yield Row(
                "peers",
                f"planning, {setting.name}",
                1,
                timing.seconds,
                timing.wall_seconds,
                flop=work.ensemble_queries(setting.model, setting.state_dim, setting.action_dim, transitions[name]),
                products=network_products(),
                extra={"by": name, "transitions": transitions[name]},
            )
