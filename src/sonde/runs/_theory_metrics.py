"""What a run notes of the theory after each episode, where its assumptions are kept: Gaussian processes that never change."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.lockstep import one_seed
from sonde._internal.precision import double_precision
from sonde.data import Data
from sonde.evaluation._metrics import reachable_set
from sonde.explorer import Explorer
from sonde.models import RKHSBeta
from sonde.models._beta import LARGEST
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.models._prior import Prior, plain_gp, told_and_left
from sonde.runs._config import RunConfig
from sonde.theory._information import greedy_information
from sonde.theory._rates import theorem_bound
from sonde.worlds import World


def rkhs_rule(config: RunConfig) -> RKHSBeta:
    """The theory's rule for beta: the run's own, if that is what it uses.

    Args:
        config: The config of the run.

    """
    rule = config.confidence.beta_rule
    return rule if isinstance(rule, RKHSBeta) else RKHSBeta()


def keeps_its_prior(config: RunConfig) -> bool:
    """Whether the prior is the same in all episodes, so that the theory applies: nothing is fitted, nothing recalibrated."""
    return (
        isinstance(config.model, GaussianProcess)
        and config.model.hyperparameters == "fixed"
        and not config.confidence.recalibrate
    )


@eqx.filter_jit
def _of_one_seed(posterior: GPPosterior, data: Data, points: Array, rule: RKHSBeta) -> tuple[Array, Array, Array]:
    """Information gain per output, beta per output, and the largest 1/2 |sigma|^2 at the points."""
    prior = Prior.of(posterior)
    # what is fixed is the same for all outputs, but for their units
    told, left = told_and_left(prior.only(0), points, data.inputs(), data.mask())
    information = jnp.broadcast_to(told, prior.noise_std.shape)
    return information, rule.by_theory(posterior, information), 0.5 * jnp.max(left, initial=0.0) * jnp.sum(prior.noise_std**2)


def _reachable_points(world: World) -> np.ndarray:
    """What the world can reach [n, dz]; nothing where that cannot be known."""
    points = reachable_set(world)
    if points is None:
        return np.zeros((0, world.state_dim + world.action_dim))
    return np.concatenate([points.states, points.actions], axis=-1)


@functools.cache
@double_precision
def _maximum_information(model: GaussianProcess, world: World, count: int) -> np.ndarray:
    """Greedy gamma_1 ... gamma_count on the world's reachable set, per output; it depends on nothing that is measured."""
    nothing = Data.empty(1, world.state_dim, world.action_dim)
    posterior = jax.jit(model.condition)(model.init(world.state_dim, world.action_dim, jax.random.key(0)), nothing)
    return greedy_information(Prior.of(posterior), _reachable_points(world), count)


@double_precision
def theory_metrics(explorer: Explorer, config: RunConfig) -> dict[str, np.ndarray]:
    """The theory's quantities per run [S], with its own beta, whichever the planner uses; none where they mean nothing.

    Information gains are summed over outputs; beta is that of the output for which it is largest. The uncertainty is the
    left-hand side of Theorem 2, under the exact posterior whatever the model's rank, and the bound its right-hand side up to a
    constant; both only where it is known what the world can reach.
    """
    if not keeps_its_prior(config) or explorer.capacity > LARGEST or explorer.round == 0:
        return {}
    assert isinstance(config.model, GaussianProcess)
    rule = rkhs_rule(config)
    posterior, points = plain_gp(explorer.posterior), _reachable_points(config.world)
    # one run after the other: each has a matrix of all its data
    found = [
        _of_one_seed(*one_seed((posterior, explorer.data), run), jnp.asarray(points), rule) for run in range(explorer.num_seeds)
    ]
    information, beta, uncertainty = (np.stack([np.asarray(part[i]) for part in found]) for i in range(3))
    metrics = {"theory/information_gain": information.sum(axis=1), "theory/beta": beta.max(axis=1)}
    if len(points):
        gamma = _maximum_information(config.model, config.world, explorer.capacity)[explorer.transitions - 1]
        bound = [theorem_bound(width, config.steps, gamma.max(), explorer.round) for width in metrics["theory/beta"]]
        metrics["theory/gamma"] = np.full(explorer.num_seeds, gamma.sum())
        metrics |= {"theory/uncertainty": uncertainty, "theory/bound": np.asarray(bound)}
    return metrics
