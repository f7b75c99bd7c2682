"""Learned models as C99 headers: mean, epistemic and aleatoric std of the next state."""

import math
import textwrap

import numpy as np

from sonde.control._export._header import CHECK, NETWORK, Header, calls_of_layers, result_of_layers
from sonde.control._export._parts import ModelParts, parts_of, plain_networks
from sonde.models import RBF, Kernel, Linear, Matern32, Matern52, Posterior
from sonde.models._ensemble_posterior import EnsemblePosterior
from sonde.models._gp_posterior import SMALLEST_VARIANCE, GPPosterior
from sonde.models._kernels import PlusAffine

ABOUT = """
A learned model in C99: include this file, compile with -lm. It needs nothing else, allocates nothing and keeps nothing.

    double x[SONDE_STATE_DIM], u[SONDE_INPUT_DIM], mean[SONDE_STATE_DIM];
    double epistemic_std[SONDE_STATE_DIM], aleatoric_std[SONDE_STATE_DIM];
    if (sonde_predict(x, u, mean, epistemic_std, aleatoric_std) == 0) { ... }

sonde_predict predicts the state after the action u in the state x and returns 0. If x or u is not finite it returns 1 and
writes nothing. Where the past belongs to the state, it comes before the action in u.
"""
OPENING = """
static inline int sonde_predict(const double *x, const double *u, double *mean, double *epistemic_std, double *aleatoric_std)
{
    double z[SONDE_STATE_DIM + SONDE_INPUT_DIM];
"""
NORMALISE = """
    if (!sonde_finite(x, SONDE_STATE_DIM) || !sonde_finite(u, SONDE_INPUT_DIM))
        return 1;
    for (i = 0; i < SONDE_STATE_DIM + SONDE_INPUT_DIM; i++)
        z[i] = ((i < SONDE_STATE_DIM ? x[i] : u[i - SONDE_STATE_DIM]) - sonde_input_shift[i]) / sonde_input_scale[i];
"""
KERNEL_FORMS: dict[type[Kernel], str] = {
    RBF: "exp(-0.5 * squared)",
    Matern32: "(1.0 + r) * exp(-r)",
    Matern52: "(1.0 + r + r * r / 3.0) * exp(-r)",
    Linear: "1.0 + product",
}
KERNEL = """
static inline double sonde_kernel(const double *a, const double *b)
{{
    double {sums};
    int i;
    for (i = 0; i < {dim}; i++)
        {term}
{affine}    return {form};
}}
"""
GAUSSIAN_PROCESS = """
    double point[SONDE_POINT_DIM], row[SONDE_MOST_CENTRES];
    const double *points = sonde_points, *weights = sonde_weights, *factor = sonde_factor;
    int i, j, k;
{normalise}    for (j = 0; j < SONDE_STATE_DIM; j++) {{
        const int count = sonde_counts[j];
        double change = 0.0, variance;
        for (i = 0; i < SONDE_STATE_DIM + SONDE_INPUT_DIM; i++)
            point[i] = z[i] / sonde_lengthscales[j * (SONDE_STATE_DIM + SONDE_INPUT_DIM) + i];
{affine}        for (k = 0; k < count; k++) {{
            row[k] = sonde_kernel(point, points);
            change += row[k] * *weights++;
            points += SONDE_POINT_DIM;
        }}
        variance = sonde_kernel(point, point);
        for (k = 0; k < count; k++) {{ /* the factor is upper triangular: a column has entries 0 to k */
            double explained = 0.0;
            for (i = 0; i <= k; i++)
                explained += row[i] * *factor++;
            variance -= explained * explained;
        }}
        mean[j] = x[j] + sonde_target_shift[j] + sonde_target_scale[j] * change;
        epistemic_std[j] = sonde_signal[j] * sqrt(variance > {smallest} ? variance : {smallest});
        aleatoric_std[j] = sonde_noise[j];
    }}
    return 0;
}}
"""
AFFINE_POINT = """        for (i = 0; i < SONDE_STATE_DIM + SONDE_INPUT_DIM; i++)
            point[SONDE_STATE_DIM + SONDE_INPUT_DIM + i] = sonde_affine[j] * z[i];
        point[SONDE_POINT_DIM - 1] = sonde_affine[j];
"""
ENSEMBLE = """
    float one[{width}], two[{width}];
    double change[SONDE_MEMBERS * SONDE_STATE_DIM], squares[SONDE_STATE_DIM];
    int i, j, e;
{normalise}    for (j = 0; j < SONDE_STATE_DIM; j++)
        squares[j] = 0.0;
    for (e = 0; e < SONDE_MEMBERS; e++) {{
        for (i = 0; i < SONDE_STATE_DIM + SONDE_INPUT_DIM; i++)
            one[i] = (float)z[i];
{layers}
        for (j = 0; j < SONDE_STATE_DIM; j++) {{
            double total = (double){result}[j];
            const float std = {std};
{affine}            change[e * SONDE_STATE_DIM + j] = total;
            squares[j] += (double)std * (double)std;
        }}
    }}
    for (j = 0; j < SONDE_STATE_DIM; j++) {{
        double centre = 0.0, spread = 0.0;
        for (e = 0; e < SONDE_MEMBERS; e++)
            centre += change[e * SONDE_STATE_DIM + j] / SONDE_MEMBERS;
        for (e = 0; e < SONDE_MEMBERS; e++) {{
            const double apart = change[e * SONDE_STATE_DIM + j] - centre;
            spread += apart * apart / SONDE_MEMBERS;
        }}
        mean[j] = x[j] + sonde_target_shift[j] + sonde_target_scale[j] * centre;
        epistemic_std[j] = sonde_epistemic[j] * sqrt(spread);
        aleatoric_std[j] = sonde_aleatoric[j] * sqrt(squares[j] / SONDE_MEMBERS);
    }}
    return 0;
}}
"""
AFFINE_MEMBER = """            for (i = 0; i < SONDE_STATE_DIM + SONDE_INPUT_DIM; i++)
                total += sonde_slopes[(e * SONDE_STATE_DIM + j) * (SONDE_STATE_DIM + SONDE_INPUT_DIM) + i] * z[i];
"""


def model_header(posterior: Posterior, name: str) -> str:
    """Write the header of a model.

    Args:
        posterior: The posterior of one seed.
        name: What all its names begin with.

    Returns:
        Content of the header.
    """
    parts = parts_of(posterior)
    header = Header(name, ABOUT)
    header.define(STATE_DIM=parts.state_dim, INPUT_DIM=parts.input_dim)
    normalised = parts.core if isinstance(parts.core, GPPosterior) else parts.core.params
    for which in ("input", "target"):
        normaliser = getattr(normalised, f"{which}s")
        header.array(f"{which}_shift", normaliser.shift)
        header.array(f"{which}_scale", normaliser.scale)
    if isinstance(parts.core, GPPosterior):
        _gaussian_process(header, parts.core, parts)
    else:
        _ensemble(header, parts.core, parts)
    return header.finish()


def _gaussian_process(header: Header, core: GPPosterior, parts: ModelParts) -> None:
    counts = np.asarray(core.centres.used)
    points, weights, factor = (np.asarray(array) for array in (core.centres.points, core.centres.weights, core.centres.factor))
    header.define(POINT_DIM=points.shape[-1], MOST_CENTRES=int(counts.max()))
    header.array("counts", counts, np.int64)
    header.array("points", np.concatenate([points[j, :count].ravel() for j, count in enumerate(counts)]))
    header.array("weights", np.concatenate([weights[j, :count] for j, count in enumerate(counts)]))
    columns = [factor[j, : k + 1, k] for j, count in enumerate(counts) for k in range(count)]
    header.array("factor", np.concatenate(columns))
    header.array("lengthscales", core.lengthscales)
    if core.affine_std:
        header.array("affine", core.affine_std / np.asarray(core.signal_std))
    scale = np.asarray(core.targets.scale)
    header.array("signal", parts.epistemic * scale * np.asarray(core.signal_std))
    header.array("noise", parts.aleatoric * scale * np.asarray(core.noise_std))
    header.code(CHECK + _kernel(core.kernel, points.shape[-1]) + OPENING.rstrip())
    affine = AFFINE_POINT if core.affine_std else ""
    header.code(GAUSSIAN_PROCESS.format(normalise=NORMALISE.lstrip("\n"), affine=affine, smallest=SMALLEST_VARIANCE))


def _kernel(kernel: Kernel, width: int) -> str:
    """The covariance function."""
    dim, base, affine = width, kernel, ""
    if isinstance(kernel, PlusAffine):
        dim, base = width // 2, kernel.base
        affine = f"    for (i = {dim}; i < {width}; i++)\n        affine += a[i] * b[i];\n"
    form, sums, term = KERNEL_FORMS[type(base)], "squared = 0.0", "squared += (a[i] - b[i]) * (a[i] - b[i]);"
    if isinstance(base, Linear):
        sums, term = "product = 0.0", "product += a[i] * b[i];"
    if isinstance(base, Matern32 | Matern52):
        sums += ", r"
        affine += f"    r = sqrt({2 * base.smoothness} * squared);\n"
    if isinstance(kernel, PlusAffine):
        sums, form = f"{sums}, affine = 0.0", f"affine + {form}"
    return KERNEL.format(sums=sums, dim=dim, term=term, affine=affine, form=form)


def _ensemble(header: Header, core: EnsemblePosterior, parts: ModelParts) -> None:
    params, model, dim = core.params, core.model, parts.state_dim
    networks = plain_networks(core)
    layers = list(zip(networks.weights, networks.biases, strict=True))
    sizes = [dim + parts.input_dim, *(bias.shape[-1] for _, bias in layers)]
    header.define(MEMBERS=networks.biases[0].shape[0])
    header.layers([(np.asarray(weight), np.asarray(bias)) for weight, bias in layers])
    scale = np.asarray(params.targets.scale)
    if params.affine is not None:
        header.array("slopes", np.asarray(params.affine) / scale[:, None])
    header.array("epistemic", parts.epistemic * scale)
    header.array("aleatoric", parts.aleatoric * scale)
    result = result_of_layers(sizes)
    std = f"{np.float32(model.noise_std)!s}f"
    if model.noise == "learned":
        low, high = math.log(model.noise_floor), math.log(model.noise_ceiling)
        number = lambda value: f"{np.float32(value)!s}f"
        width = (high - low) / math.log1p(math.exp(high - low))
        gate = f"(1.0f + expf({number(high)} - {result}[SONDE_STATE_DIM + j]))"
        std = f"expf({number(low)} + {number(width)} * logf(1.0f + {number(math.exp(high - low))} / {gate}))"
    header.code(CHECK + NETWORK + OPENING.rstrip())
    written = {
        "width": max(sizes),
        "normalise": NORMALISE.lstrip("\n"),
        "layers": textwrap.indent(calls_of_layers(sizes, "e"), "        "),
        "result": result,
        "std": std,
        "affine": AFFINE_MEMBER if params.affine is not None else "",
    }
    header.code(ENSEMBLE.format(**written))
