"""Metrics of the OpAx paper's theory, for runs that meet its assumption: a Gaussian process with a fixed prior."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.lockstep import one_seed
from sonde._internal.past import Past
from sonde._internal.precision import double_precision
from sonde.data import Data
from sonde.evaluation._metrics import reachable_set
from sonde.explorer import Explorer
from sonde.models import RKHSBeta
from sonde.models._beta import MAX_MEASUREMENTS
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.models._prior import Prior, in_noise_stds, information_and_variances, mean_norms, underlying_gp
from sonde.runs._config import RunConfig
from sonde.theory._information import greedy_information
from sonde.theory._rates import theorem_bound
from sonde.worlds import World


def rkhs_rule(config: RunConfig) -> RKHSBeta:
    """The theory's rule for beta, with the settings of the run if it uses that rule.

    Args:
        config: The config of the run.
    """
    rule = config.confidence.beta_rule
    return rule if isinstance(rule, RKHSBeta) else RKHSBeta()


def keeps_its_prior(config: RunConfig) -> bool:
    """Whether the theory applies: the prior is the same in all rounds, and nothing is recalibrated or forgotten.

    Args:
        config: The config of the run.
    """
    return (
        isinstance(config.model, GaussianProcess)
        and config.model.hyperparameters == "fixed"
        and not config.confidence.recalibrate
        and not config.confidence.forgets
    )


@eqx.filter_jit
def _of_one_seed(posterior: GPPosterior, data: Data, points: Array, rule: RKHSBeta) -> tuple[Array, Array, Array]:
    """Information gain per output, beta per output, and the largest 1/2 |sigma|^2 at the points."""
    prior = Prior.of(posterior)
    # fixed hyper-parameters are the same for all outputs, up to their units
    gain, variances = information_and_variances(prior.for_output(0), points, data.inputs(), data.mask())
    information = jnp.broadcast_to(gain, prior.noise_std.shape)
    uncertainty = 0.5 * jnp.max(variances, initial=0.0) * jnp.sum(prior.noise_std**2)
    norm = mean_norms(prior.for_output(0), data.inputs(), data.mask(), in_noise_stds(posterior, data))
    return information, rule.from_information(information, norm), uncertainty


def _reachable_points(world: World, past: Past) -> np.ndarray:
    """The reachable set of the world [n, dz]; empty if it is not known."""
    points = reachable_set(world, past)
    if points is None:
        return np.zeros((0, world.state_dim + replace(world.spec, past=past).input_dim))
    return np.concatenate([points.states, points.actions], axis=-1)


@functools.cache
@double_precision
def _maximum_information(model: GaussianProcess, world: World, past: Past, count: int) -> np.ndarray:
    """Greedy gamma_1 ... gamma_count on the reachable set, per output; it does not depend on measurements."""
    sizes = world.state_dim, replace(world.spec, past=past).input_dim
    posterior = jax.jit(model.condition)(model.init(*sizes, jax.random.key(0)), Data.empty(1, *sizes))
    return greedy_information(Prior.of(posterior), _reachable_points(world, past), count)


@double_precision
def theory_metrics(explorer: Explorer, config: RunConfig) -> dict[str, np.ndarray]:
    """The quantities of the theory, with its own beta even if the planner uses another one.

    Information gains are summed over outputs; beta is the largest over outputs. The uncertainty is the left-hand side of
    Theorem 2 under the exact posterior, regardless of the model's rank, and the bound is its right-hand side up to a constant;
    both need a world whose reachable set is known.

    Args:
        explorer: The explorer after a round.
        config: The config of the run.

    Returns:
        Values per seed [S] by key; empty if the assumptions of the theory are not met.
    """
    if not keeps_its_prior(config) or explorer.capacity > MAX_MEASUREMENTS or explorer.round == 0:
        return {}
    assert isinstance(config.model, GaussianProcess)
    rule = rkhs_rule(config)
    posterior, points = underlying_gp(explorer.posterior), _reachable_points(config.world, config.past)
    # one seed after the other, since each has a matrix of all its data
    found = [
        _of_one_seed(*one_seed((posterior, explorer.data), seed), jnp.asarray(points), rule)
        for seed in range(explorer.num_seeds)
    ]
    information, beta, uncertainty = (np.stack([np.asarray(part[i]) for part in found]) for i in range(3))
    metrics = {"theory/information_gain": information.sum(axis=1), "theory/beta": beta.max(axis=1)}
    if len(points):
        gamma = _maximum_information(config.model, config.world, config.past, explorer.capacity)[explorer.transitions - 1]
        bound = [theorem_bound(width, config.steps, gamma.max(), explorer.round) for width in metrics["theory/beta"]]
        metrics["theory/gamma"] = np.full(explorer.num_seeds, gamma.sum())
        metrics |= {"theory/uncertainty": uncertainty, "theory/bound": np.asarray(bound)}
    return metrics
