"""The posterior of a Gaussian process: scikit-learn and GPyTorch against ours, on the same data and hyper-parameters.

All answer the same queries (mean and std of every output) in double precision and on all cores, in portions of a size that
suits all of them. The error is the largest error of the std, relative to the signal std of that output, against an exact
posterior that is computed here with SciPy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from benchmarks import engine, work
from benchmarks.gaussian_process import CONFIG, INPUTS, STATES, centres, pendulum_data
from benchmarks.measuring import Plan, in_lockstep, in_turns, installed, note
from benchmarks.rows import Row
from sonde.models import GaussianProcess
from sonde.models._gp_posterior import GPPosterior

Answer = tuple[np.ndarray, np.ndarray]
PORTION = 2060
LANCZOS_FROM = 800
"""By default GPyTorch factorises matrices up to this size, and uses Lanczos iterations for larger ones."""


@dataclass(frozen=True)
class Question:
    """Data, hyper-parameters and queries, in normalised units."""

    points: np.ndarray
    targets: np.ndarray
    lengthscales: np.ndarray
    signal_std: np.ndarray
    noise_std: np.ndarray
    queries: np.ndarray

    def portions(self, size: int = PORTION) -> list[np.ndarray]:
        """The queries in portions."""
        return np.array_split(self.queries, max(1, len(self.queries) // size))


def exact_std(question: Question) -> np.ndarray:
    """The reference: epistemic std [queries, outputs], by the textbook formulas."""
    columns = []
    for scales, signal, noise in zip(question.lengthscales, question.signal_std, question.noise_std, strict=True):
        a, b = question.points / scales, question.queries / scales
        squares = lambda x, y: ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1)
        lower = np.linalg.cholesky(signal**2 * np.exp(-0.5 * squares(a, a)) + noise**2 * np.eye(len(a)))
        stds = []
        for portion in np.array_split(b, max(1, len(b) // PORTION)):
            cross = signal**2 * np.exp(-0.5 * squares(a, portion))
            left = scipy.linalg.solve_triangular(lower, cross, lower=True)
            stds.append(np.sqrt(np.maximum(signal**2 - (left**2).sum(axis=0), 0.0)))
        columns.append(np.concatenate(stds))
    return np.stack(columns, axis=1)


@eqx.filter_jit
def _predict(posterior: GPPosterior, x, u) -> tuple[Any, Any]:
    prediction = jax.lax.map(lambda point: posterior.predict(*point), (x, u), batch_size=min(PORTION, x.shape[0]))
    return prediction.mean, prediction.epistemic_std / posterior.targets.scale


def by_sonde(posterior: GPPosterior, x: np.ndarray, u: np.ndarray) -> Callable[[], Answer]:
    """Ours, as a planner uses it: numpy in, numpy out.

    Args:
        posterior: The posterior of one seed.
        x: States [queries, dx].
        u: Actions [queries, du].
    """
    ask = engine.compiled(_predict, posterior, jnp.asarray(x), jnp.asarray(u))
    return lambda: jax.tree.map(np.asarray, ask())


def by_scikit_learn(question: Question) -> Callable[[], Answer]:
    """scikit-learn, with one regressor per output."""
    gp, kernels = import_module("sklearn.gaussian_process"), import_module("sklearn.gaussian_process.kernels")
    regressors = []
    for i, noise in enumerate(question.noise_std):
        kernel = kernels.ConstantKernel(question.signal_std[i] ** 2) * kernels.RBF(question.lengthscales[i])
        regressor = gp.GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None)
        regressors.append(regressor.fit(question.points, question.targets[:, i]))

    def ask() -> Answer:
        answers = [[r.predict(portion, return_std=True) for portion in question.portions()] for r in regressors]
        parts = [[np.concatenate([answer[k] for answer in answers_of_one]) for answers_of_one in answers] for k in (0, 1)]
        return np.stack(parts[0], axis=1), np.stack(parts[1], axis=1)

    return ask


def by_gpytorch(question: Question, fast_variances: bool, lanczos: bool = False) -> Callable[[], Answer]:
    """GPyTorch, with one exact model per output, as in its tutorials.

    Args:
        question: Data, hyper-parameters and queries.
        fast_variances: Use its fast predictive variances, which keep a root of the inverse kernel matrix.
        lanczos: Compute that root by Lanczos iterations, its default for more than `LANCZOS_FROM` points, and not by Cholesky.
    """
    torch, gpytorch = import_module("torch"), import_module("gpytorch")

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    double, models = lambda array: torch.tensor(array, dtype=torch.float64), []
    for i, noise in enumerate(question.noise_std):
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        model = Exact(double(question.points), double(question.targets[:, i]), likelihood).double()
        model.covar_module.base_kernel.lengthscale = double(question.lengthscales[i])
        model.covar_module.outputscale = double(question.signal_std[i] ** 2)
        likelihood.noise = double(noise**2)
        models.append(model.eval())
    portions = [double(portion) for portion in question.portions()]

    def ask() -> Answer:
        settings = gpytorch.settings
        factorise = settings.max_cholesky_size(LANCZOS_FROM if lanczos else len(question.points))
        means, stds = [], []
        with torch.no_grad(), factorise, settings.fast_pred_var(fast_variances):
            for model in models:
                # one portion's kernel matrix at a time: all of them would fill the memory
                parts = [(prediction.mean, prediction.variance) for prediction in map(model, portions)]
                means.append(torch.cat([mean for mean, _ in parts]))
                stds.append(torch.cat([variance for _, variance in parts]).clamp_min(0).sqrt())
        return torch.stack(means, dim=1).numpy(), torch.stack(stds, dim=1).numpy()

    return ask


def _pose(plan: Plan) -> tuple[int, int]:
    """Numbers of points and queries; in full, those of the paper's planning step."""
    return {"tiny": (20, 50), "quick": (1000, 10_300), "full": (1000, 103_000)}[plan.effort]


def compare(plan: Plan) -> Iterator[Row]:
    """Rows of ours (low-rank and exact) and of the others."""
    count, number = _pose(plan)
    note(f"peers: posterior, n = {count}, {number} queries ...")
    model = GaussianProcess(steps=2, rank=16) if plan.effort == "tiny" else CONFIG.model
    assert isinstance(model, GaussianProcess)
    data, asked = in_lockstep(pendulum_data(count), 1), pendulum_data(number)
    x, u = np.asarray(asked.states), np.asarray(asked.actions)
    params = engine.fitting(model, engine.initial_params(model, STATES, INPUTS - STATES, 1), data)()
    first = lambda tree: jax.tree.map(lambda leaf: leaf[0], tree)
    ours = first(engine.conditioning(model, params, data)())
    exact = first(engine.conditioning(replace(model, rank=0), params, data)())
    question = Question(
        np.asarray(ours.inputs(data.inputs()[0])),
        np.asarray(ours.targets(data.targets()[0])),
        *(np.asarray(values) for values in (ours.lengthscales, ours.signal_std, ours.noise_std)),
        np.asarray(ours.inputs(jnp.concatenate([jnp.asarray(x), jnp.asarray(u)], axis=1))),
    )
    askers = {"sonde": by_sonde(ours, x, u), "sonde, exact": by_sonde(exact, x, u)}
    if installed("sklearn"):
        askers["scikit-learn"] = by_scikit_learn(question)
    if installed("torch", "gpytorch"):
        askers["GPyTorch, exact"] = by_gpytorch(question, fast_variances=False)
        askers["GPyTorch, fast variances (Cholesky)"] = by_gpytorch(question, fast_variances=True)
        if count > LANCZOS_FROM:
            askers["GPyTorch, fast variances (Lanczos)"] = by_gpytorch(question, fast_variances=True, lanczos=True)
    reference = exact_std(question)
    gaps = {name: np.abs(ask()[1] - reference) for name, ask in askers.items()}
    used = {name: centres(in_lockstep(ours, 1)) if name == "sonde" else [count] * STATES for name in askers}
    for name, timing in in_turns(askers, plan.repeats).items():
        yield Row(
            "peers",
            f"posterior, n = {count}, {number:,} queries",
            1,
            timing.seconds,
            timing.wall_seconds,
            flop=number * work.gp_query(INPUTS, used[name]),
            products="f64",
            extra={
                "by": name,
                "std_error": float((gaps[name] / question.signal_std).max()),
                "largest_std_error_relative_to_itself": float((gaps[name] / reference).max()),
                "centres": used[name],
            },
        )
