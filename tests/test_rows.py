"""Predictions of an ensemble on CPUs, all queries together, against numpy in double precision and the plain networks."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import ProbabilisticEnsemble
from sonde.data import Data
from sonde.imagination import MemberTrajectories, Optimistic
from sonde.models._ensemble import EnsembleParams
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.models._rows import LARGEST_TILE, MOST_TOGETHER, in_rows
from sonde.objectives import InformationGain
from sonde.solvers import ControlProblem

SIZES = 3, 20, 20, 4


@pytest.fixture(autouse=True)
def on_a_cpu(cpu):
    """Products of single-precision numbers, which an accelerator may round."""


def random_networks(*count: int) -> Network:
    """`count` networks with biases that are not zero."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=(*count, *shape)), jnp.float32)
    pairs = list(itertools.pairwise(SIZES))
    return Network(tuple(1.3 * draw(n, m) / n**0.5 for n, m in pairs), tuple(0.3 * draw(m) for _, m in pairs))


def in_numpy(networks: Network, z: np.ndarray) -> np.ndarray:
    """Outputs [..., rows, outputs] of networks [...] at inputs [..., rows, inputs]."""
    h = np.asarray(z, np.float64)
    for i, (weight, bias) in enumerate(zip(networks.weights, networks.biases, strict=True)):
        h = h @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)[..., None, :]
        if i + 1 < len(networks.weights):
            h = h / (1 + np.exp(-h))
    return h


@pytest.mark.parametrize("rows", [1, MOST_TOGETHER, MOST_TOGETHER + 1, 2 * LARGEST_TILE + 1])
def test_every_number_of_rows_gives_the_networks_outputs(rows):
    networks, z = random_networks(3), np.random.default_rng(1).normal(size=(rows, 3), scale=3)
    outputs = jax.jit(jax.vmap(in_rows, in_axes=(None, 0)))(networks, jnp.asarray(z))
    assert outputs.shape == (rows, 3, 4) and outputs.dtype == jnp.float32
    expected = np.moveaxis(in_numpy(networks, z[None]), 0, 1)
    np.testing.assert_allclose(outputs, expected, atol=2e-6 * np.abs(expected).max())


def test_nested_maps_over_seeds_plans_and_members_agree_with_the_networks():
    seeds, plans, particles = 2, 5, 3
    networks, z = random_networks(seeds, 3), np.random.default_rng(1).normal(size=(seeds, plans, particles, 3))
    over_particles = jax.vmap(in_rows, in_axes=(None, 0))
    over_seeds = jax.vmap(jax.vmap(over_particles, in_axes=(None, 0)))
    outputs = jax.jit(over_seeds)(networks, jnp.asarray(z))
    expected = np.moveaxis(in_numpy(networks, z.reshape(seeds, 1, -1, 3)), 1, 2).reshape(seeds, plans, particles, 3, 4)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    # each particle of each plan has its own networks, for all seeds: networks differ along an inner axis and an outer one
    own = jax.tree.map(lambda leaf: leaf[:, :, None], networks)  # particles of one member each
    each_member = jax.vmap(jax.vmap(jax.vmap(in_rows), in_axes=(None, 0)))
    outputs = jax.jit(each_member)(own, jnp.asarray(z))
    member = np.arange(particles)
    np.testing.assert_allclose(outputs[..., 0, :], expected[:, :, member, member], atol=1e-5)


@pytest.fixture
def both(x64):
    """The posterior of a small ensemble as it is conditioned, and as a planner on a CPU queries it."""
    model = ProbabilisticEnsemble(members=3, layers=2, width=20)
    params = EnsembleParams(random_networks(3), Normaliser.identity(3), Normaliser.identity(2))
    plain = model.condition(params, Data.empty(1, 2, 1))
    return plain, plain.specialise()


@pytest.mark.parametrize("imagination", [Optimistic(noise=True, particles=4), MemberTrajectories(particles=4)])
def test_rewards_of_plans_agree_with_the_plain_networks(both, imagination):
    plans = jnp.asarray(np.random.default_rng(2).uniform(-1, 1, (6, 4, 1 + imagination.extra_controls(2))))
    plain, together = (
        eqx.filter_jit(ControlProblem(p, imagination, InformationGain(), 2, 1).rewards)(jnp.zeros(2), plans, jax.random.key(3))
        for p in both
    )
    np.testing.assert_allclose(together, plain, rtol=1e-4)
    assert np.abs(plain).min() > 0.05, "there must be something to compare"


def test_only_specialised_posteriors_on_a_cpu_are_evaluated_together(both):
    plain, together = both
    assert not plain.together and together.together and together.member(jnp.asarray(1)).together
    gradient = lambda posterior: jax.grad(lambda x: posterior.predict(x, jnp.ones(1)).mean.sum())(jnp.ones(2))
    np.testing.assert_allclose(gradient(together.differentiable()), gradient(plain))
    np.testing.assert_allclose(gradient(together), gradient(plain), rtol=1e-5)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jacfwd(lambda x: together.predict(x, jnp.ones(1)).mean)(jnp.ones(2))
