"""ONNX graphs of learned models: mean, epistemic and aleatoric std of the next state."""

import math
from typing import NamedTuple

import numpy as np

from sonde.control._export._graph import DOUBLE, FLOAT, Graph
from sonde.control._export._parts import parts_of, plain_networks
from sonde.models import RBF, Kernel, Linear, Matern32, Matern52, Posterior
from sonde.models._ensemble_posterior import EnsemblePosterior
from sonde.models._gp_posterior import SMALLEST_VARIANCE, GPPosterior
from sonde.models._kernels import SQUARED_ZERO, PlusAffine
from sonde.models._normaliser import Normaliser


class _Predicted(NamedTuple):
    """Values of a graph: the change of the state over `targets.scale`, and stds in the same units."""

    change: str
    epistemic: str
    aleatoric: str


def model_graph(graph: Graph, posterior: Posterior) -> bytes:
    """Write the graph of a model.

    Args:
        graph: An empty graph.
        posterior: The posterior of one seed.

    Returns:
        Content of a file.
    """
    parts = parts_of(posterior)
    core, dim = parts.core, parts.state_dim
    x, u = graph.input("x", dim), graph.input("u", parts.input_dim)
    normaliser = core.inputs if isinstance(core, GPPosterior) else core.params.inputs
    z = _normalised(graph, normaliser, graph.add("Concat", x, u, axis=1))
    if isinstance(core, GPPosterior):
        targets, found, precision = core.targets, _gaussian_process(graph, core, z), "double precision"
    else:
        targets, found = core.params.targets, _ensemble(graph, core, z)
        precision = "networks in single precision"
    scale = np.asarray(targets.scale)
    mean = graph.add("Add", x, graph.constant(targets.shift))
    mean = graph.add("Add", mean, graph.add("Mul", found.change, graph.constant(scale)))
    graph.output("mean", mean, dim)
    graph.output("epistemic_std", graph.add("Mul", found.epistemic, graph.constant(parts.epistemic * scale)), dim)
    aleatoric = graph.add("Mul", found.aleatoric, graph.constant(parts.aleatoric * scale))
    graph.output("aleatoric_std", graph.repeated(aleatoric, x), dim)
    return graph.finish("model", f"Sonde: x, state; u, action -> next state; {precision}")


def _normalised(graph: Graph, normaliser: Normaliser, rows: str) -> str:
    return graph.add("Div", graph.add("Sub", rows, graph.constant(normaliser.shift)), graph.constant(normaliser.scale))


# ---- Gaussian processes ------------------------------------------------------------------------------------------------------


def _gaussian_process(graph: Graph, core: GPPosterior, z: str) -> _Predicted:
    means, variances = [], []
    used = np.asarray(core.centres.used)
    for output, count in enumerate(used):
        some = lambda array, output=output: np.asarray(array)[output]
        point = _features(graph, core, z, output)
        row = _cross(graph, core.kernel, point, some(core.centres.points)[:count])
        explained = graph.add("MatMul", row, graph.constant(some(core.centres.factor)[:count, :count]))
        prior = _diagonal(graph, core.kernel, point, some(core.centres.points).shape[1])
        means.append(graph.add("MatMul", row, graph.constant(some(core.centres.weights)[:count, None])))
        left = graph.add("Sub", prior, graph.sum(graph.add("Mul", explained, explained)))
        variances.append(graph.add("Max", left, graph.constant(SMALLEST_VARIANCE)))
    mean, variance = (graph.add("Concat", *parts, axis=1) for parts in (means, variances))
    epistemic = graph.add("Mul", graph.add("Sqrt", variance), graph.constant(core.signal_std))
    return _Predicted(mean, epistemic, graph.constant(core.noise_std))


def _features(graph: Graph, core: GPPosterior, z: str, output: int) -> str:
    """The point at which the kernel of an output is evaluated, as `kernel_points` computes it."""
    scaled = graph.add("Div", z, graph.constant(np.asarray(core.lengthscales)[output]))
    if not core.affine_std:
        return scaled
    weight = core.affine_std / float(np.asarray(core.signal_std)[output])
    slopes = graph.add("Mul", z, graph.constant(weight))
    offset = graph.repeated(graph.constant([weight]), graph.columns(z, 0, 1))
    return graph.add("Concat", scaled, slopes, offset, axis=1)


def _cross(graph: Graph, kernel: Kernel, point: str, centres: np.ndarray) -> str:
    """The kernel row [batch, m]."""
    if isinstance(kernel, PlusAffine):
        dim, width = centres.shape[1] // 2, centres.shape[1]
        base = _cross(graph, kernel.base, graph.columns(point, 0, dim), centres[:, :dim])
        affine = graph.add("MatMul", graph.columns(point, dim, width), graph.constant(centres[:, dim:].T))
        return graph.add("Add", base, affine)
    product = graph.add("MatMul", point, graph.constant(centres.T))
    if isinstance(kernel, Linear):
        return graph.add("Add", product, graph.constant(1.0))
    half = graph.add("Mul", graph.sum(graph.add("Mul", point, point)), graph.constant(0.5))
    near = graph.add("Sub", graph.add("Sub", product, half), graph.constant(0.5 * np.sum(centres**2, axis=1)))
    near = graph.add("Min", near, graph.constant(0.0))  # -|a - b|^2 / 2
    if isinstance(kernel, RBF):
        return graph.add("Exp", near)
    assert isinstance(kernel, Matern32 | Matern52)
    squared = graph.add("Max", graph.add("Mul", near, graph.constant(-2.0)), graph.constant(SQUARED_ZERO))
    r = graph.add("Mul", graph.add("Sqrt", squared), graph.constant(math.sqrt(2 * kernel.smoothness)))
    polynomial = graph.add("Add", r, graph.constant(1.0))
    if isinstance(kernel, Matern52):
        polynomial = graph.add("Add", polynomial, graph.add("Div", graph.add("Mul", r, r), graph.constant(3.0)))
    return graph.add("Mul", polynomial, graph.add("Exp", graph.add("Neg", r)))


def _diagonal(graph: Graph, kernel: Kernel, point: str, width: int) -> str:
    """The prior variance [batch, 1], or a constant."""
    squares = lambda columns: graph.sum(graph.add("Mul", columns, columns))
    if isinstance(kernel, PlusAffine):
        dim = width // 2
        base = _diagonal(graph, kernel.base, graph.columns(point, 0, dim), dim)
        return graph.add("Add", base, squares(graph.columns(point, dim, width)))
    if isinstance(kernel, Linear):
        return graph.add("Add", squares(point), graph.constant(1.0))
    return graph.constant(1.0)


# ---- ensembles ---------------------------------------------------------------------------------------------------------------


def _ensemble(graph: Graph, core: EnsemblePosterior, z: str) -> _Predicted:
    """Members lead, [E, batch, ...]."""
    params, model = core.params, core.model
    h = graph.cast(z, FLOAT)
    networks = plain_networks(core)
    layers = list(zip(networks.weights, networks.biases, strict=True))
    for number, (weight, bias) in enumerate(layers):
        if number:
            h = graph.add("Mul", h, graph.add("Sigmoid", h))
        product = graph.add("MatMul", h, graph.constant(weight, FLOAT))
        h = graph.add("Add", product, graph.constant(np.asarray(bias)[:, None], FLOAT))
    dim = params.targets.shift.shape[0]
    if model.noise == "fixed":
        mean, aleatoric = h, graph.constant(model.noise_std)
    else:
        mean, raw = graph.columns(h, 0, dim), graph.columns(h, dim, 2 * dim)
        aleatoric = _noise(graph, raw, math.log(model.noise_floor), math.log(model.noise_ceiling))
    mean = graph.cast(mean, DOUBLE)
    if params.affine is not None:
        over_scale = np.asarray(params.affine) / np.asarray(params.targets.scale)[:, None]
        mean = graph.add("Add", mean, graph.add("MatMul", z, graph.constant(np.swapaxes(over_scale, 1, 2))))
    centre = _mean(graph, mean)
    apart = graph.add("Sub", mean, centre)
    epistemic = graph.add("Sqrt", _mean(graph, graph.add("Mul", apart, apart)))
    return _Predicted(centre, epistemic, aleatoric)


def _noise(graph: Graph, raw: str, low: float, high: float) -> str:
    """Root mean square of the members' noise stds, in single precision as `ProbabilisticEnsemble.heads` computes them."""
    number = lambda value: graph.constant(value, FLOAT)
    open_gate = graph.add("Sigmoid", graph.add("Sub", raw, number(high)))
    above = graph.add("Log", graph.add("Add", graph.add("Mul", open_gate, number(math.exp(high - low))), number(1.0)))
    width = (high - low) / math.log1p(math.exp(high - low))
    std = graph.add("Exp", graph.add("Add", graph.add("Mul", above, number(width)), number(low)))
    return graph.add("Sqrt", _mean(graph, graph.cast(graph.add("Mul", std, std), DOUBLE)))


def _mean(graph: Graph, value: str) -> str:
    """Mean over the members."""
    return graph.add("ReduceMean", value, axes=[0], keepdims=0)
