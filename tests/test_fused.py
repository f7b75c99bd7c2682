"""The fused kernel, interpreted step by step, against numpy in double precision and against the plain networks."""

import itertools
import warnings
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde import ProbabilisticEnsemble
from sonde.data import Data
from sonde.imagination import MemberTrajectories, Optimistic
from sonde.models._ensemble import EnsembleParams
from sonde.models._ensemble_posterior import EnsemblePosterior
from sonde.models._fused import LARGEST_INPUT, FusedNetworks, fits, kernel_runs_on, tiling
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.objectives import InformationGain
from sonde.solvers import ControlProblem

HALF = 2.0**-11  # relative rounding of half precision
QUICKLY = {"xla_backend_optimization_level": 0}  # compilation takes most of the time of these tests


def random_networks(sizes: tuple[int, ...], *count: int) -> Network:
    """`count` networks with biases that are not zero."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=(*count, *shape)), jnp.float32)
    pairs = list(itertools.pairwise(sizes))
    return Network(tuple(1.3 * draw(n, m) / n**0.5 for n, m in pairs), tuple(0.3 * draw(m) for _, m in pairs))


def in_numpy(weights, biases, z) -> np.ndarray:
    h = np.asarray(z, np.float64)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = h @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)
        if i + 1 < len(weights):
            h = h / (1 + np.exp(-h))
    return h


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "rows", "processors"),
    [
        ((4, 256, 256, 6), 200, 1),  # two blocks of columns, and a tile that is not full
        ((24, 64, 64, 64, 36), 37, 1),
        ((3, 20, 5), 1, 1),
        ((40, 300, 300, 2), 16, 1),  # a width that is not a multiple of the block size
        ((4, 64, 64, 6), 150, 1),  # a few rows more than a largest tile, which have a smaller one
        ((4, 64, 64, 6), 150, 132),  # small tiles
    ],
)
def test_kernel_computes_the_networks(sizes, rows, processors):
    num_seeds, members = 2, 3
    networks = random_networks(sizes, num_seeds, members)
    z = np.random.default_rng(1).normal(size=(num_seeds, rows, sizes[0]))
    kernel = jax.vmap(lambda n: FusedNetworks.of(n, processors, interpret=True))(networks)
    output = jax.jit(jax.vmap(lambda k, z: jax.vmap(k)(z)), compiler_options=QUICKLY)(kernel, jnp.asarray(z))
    assert output.shape == (num_seeds, rows, members, sizes[-1]) and output.dtype == jnp.float32
    for seed in range(num_seeds):
        for member in range(members):
            layers = ([w[seed, member] for w in networks.weights], [b[seed, member] for b in networks.biases])
            expected = in_numpy(*layers, z[seed])
            # each layer rounds its inputs and weights; errors add up like independent ones
            np.testing.assert_allclose(output[seed, :, member], expected, atol=8 * HALF * np.abs(expected).max())


@given(rows=st.integers(1, 3000), networks=st.integers(1, 400), processors=st.integers(1, 200))
def test_tiles_hold_all_rows_and_no_program_is_idle(rows, networks, processors):
    tiles = tiling(rows, networks, processors)
    assert tiles.tile * (tiles.programs - 1) < rows <= tiles.tile * tiles.whole + tiles.last
    sizes = [tiles.tile, *([tiles.last] if tiles.last else [])]
    assert all(size >= 16 and size & (size - 1) == 0 for size in sizes), "the kernel's blocks are powers of two"
    largest = -(-rows // 128) * networks
    assert largest < processors or tiles.programs * networks <= largest, "no more programs than needed where all are busy"


def test_tiles_of_the_papers_plans():
    """On 132 processors: many networks use the largest tiles, one run's few networks small ones."""
    assert [tuple(tiling(rows, 250, 132)) for rows in (131, 215)] == [(128, 1, 16), (128, 2, 0)]
    assert [tiling(rows, 5, 132).tile for rows in (131, 215, 2620)] == [16, 16, 128]
    assert tuple(tiling(515, 350, 132)) == (128, 5, 0), "three rows of 515 do not pay for a kernel with two sizes"


@pytest.mark.slow
def test_any_vmap_is_one_call_of_the_kernel():
    """Over rows for shared networks, over networks for shared rows, over both, and nested."""
    sizes, members = (3, 16, 2), 2
    networks = random_networks(sizes, 4, members)
    kernels = jax.vmap(lambda n: FusedNetworks.of(n, interpret=True))(networks)
    z = jnp.asarray(np.random.default_rng(1).normal(size=(4, 5, 3)), jnp.float32)
    one = jax.tree.map(lambda leaf: leaf[0], kernels)
    member = lambda leaves, i, e: [leaf[i, e] for leaf in leaves]
    outputs = [
        [
            [in_numpy(member(networks.weights, i, e), member(networks.biases, i, e), z[j]) for e in range(members)]
            for j in range(4)
        ]
        for i in range(4)
    ]
    by_hand = np.swapaxes(outputs, 2, 3)  # [networks of seed i, rows of seed j, row, member, output]

    over_rows = lambda kernel, z: jax.vmap(kernel)(z)
    cases = {
        "shared networks": (lambda: over_rows(one, z[1]), by_hand[0, 1]),
        "shared networks, two axes": (lambda: jax.vmap(lambda z: over_rows(one, z))(z), by_hand[0]),
        "shared rows": (lambda: jax.vmap(lambda k: k(z[2, 3]))(kernels), by_hand[:, 2, 3]),
        "seeds": (lambda: jax.vmap(over_rows)(kernels, z), by_hand[np.arange(4), np.arange(4)]),
        "seeds, then rows for all": (
            lambda: jax.vmap(lambda zz: jax.vmap(lambda k: over_rows(k, zz))(kernels))(z),
            by_hand.swapaxes(0, 1),
        ),
        "seeds of seeds": (
            lambda: jax.vmap(jax.vmap(over_rows))(split(kernels), split(z)),
            split(by_hand[np.arange(4), np.arange(4)]),
        ),
    }
    for name, (call, expected) in cases.items():
        text = str(jax.make_jaxpr(call)())
        assert text.count("pallas_call[") == 1, name
        result = jax.jit(call, compiler_options=QUICKLY)()
        np.testing.assert_allclose(result, expected, atol=8 * HALF * np.abs(by_hand).max(), err_msg=name)


def split(tree):
    return jax.tree.map(lambda leaf: leaf.reshape(2, 2, *leaf.shape[1:]), tree)


@pytest.mark.slow
def test_inputs_far_from_all_data_give_finite_outputs():
    networks = random_networks((4, 64, 64, 2), 3)
    kernel = FusedNetworks.of(networks, interpret=True)
    far, farthest = jnp.full(4, 1e30), jnp.full(4, LARGEST_INPUT)
    np.testing.assert_array_equal(kernel(far), kernel(farthest))
    # activations beyond half precision are clipped to its largest number
    wild = FusedNetworks.of(jax.tree.map(lambda leaf: 100 * leaf, networks), interpret=True)
    assert np.isfinite(wild(far)).all() and np.isfinite(wild(-far)).all()


@pytest.mark.slow
def test_networks_that_are_too_large_do_not_fit_the_kernel():
    assert fits(random_networks((128, 256, 256, 128), 1)) and fits(random_networks((3, 2), 1))
    assert not any(fits(random_networks(sizes, 1)) for sizes in ((129, 8, 2), (3, 257, 2), (3, 8, 8, 129)))


@pytest.fixture
def both(x64):
    """The posterior of a small ensemble without and with the kernel."""
    model = ProbabilisticEnsemble(members=3, layers=2, width=16)
    params = EnsembleParams(random_networks((3, 16, 16, 4), 3), Normaliser.identity(3), Normaliser.identity(2))
    plain = model.condition(params, Data.empty(1, 2, 1))
    return plain, EnsemblePosterior(params, FusedNetworks.of(params.networks, interpret=True), model)


@pytest.mark.slow
def test_predictions_agree_with_the_portable_path(both):
    rng = np.random.default_rng(1)
    x, u = jnp.asarray(3 * rng.normal(size=(64, 2))), jnp.asarray(rng.uniform(-1, 1, (64, 1)))
    plain, fused = (jax.vmap(posterior.predict)(x, u) for posterior in both)
    assert plain.members is not None and fused.members is not None
    scale = float(jnp.abs(plain.members.means - x[:, None]).max())
    for part in ("mean", "epistemic_std", "aleatoric_std"):
        np.testing.assert_allclose(getattr(fused, part), getattr(plain, part), atol=8 * HALF * scale, err_msg=part)
    alone = [jax.vmap(lambda i, p=posterior: p.member(i).predict(x[0], u[0]).mean)(jnp.arange(3)) for posterior in both]
    np.testing.assert_allclose(alone[1], alone[0], atol=8 * HALF * scale)
    np.testing.assert_allclose(alone[1], fused.members.means[0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("imagination", [Optimistic(noise=True, particles=4), MemberTrajectories(particles=4)])
def test_rewards_of_plans_agree_with_the_portable_path(both, imagination):
    plans = jnp.asarray(np.random.default_rng(2).uniform(-1, 1, (6, 4, 1 + imagination.extra_controls(2))))
    plain, fused = (
        eqx.filter_jit(ControlProblem(p, imagination, InformationGain(), 2, 1).rewards)(jnp.zeros(2), plans, jax.random.key(3))
        for p in both
    )
    np.testing.assert_allclose(fused, plain, rtol=0.1, atol=0.02)
    assert np.abs(plain).min() > 0.05, "there must be something to compare"


@pytest.mark.slow
def test_it_is_lowered_to_one_kernel_for_a_gpu(x64):
    """Lowering for a GPU works on machines without one."""
    kernel = FusedNetworks.of(random_networks((4, 256, 256, 6), 3))
    lowered = jax.jit(lambda z: jax.vmap(kernel)(z)).trace(jnp.zeros((300, 4))).lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("custom_call") == 1


def test_users_do_not_see_that_the_backend_is_deprecated(x64):
    """JAX 0.11 warns when it lowers the kernel, older versions do not."""
    kernel = FusedNetworks.of(random_networks((4, 16, 6), 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda z: jax.vmap(kernel)(z)).trace(jnp.zeros((30, 4))).lower(lowering_platforms=("cuda",))
        message = "The Pallas Triton backend is deprecated and will be removed in a future JAX version."
        warnings.warn(message, DeprecationWarning, stacklevel=1)
        with pytest.raises(DeprecationWarning):
            warnings.warn("another", DeprecationWarning, stacklevel=1)


def test_specialise_leaves_a_posterior_on_a_cpu_on_the_portable_path(cpu, both):
    """Also on a machine with a GPU: what counts is the device that holds the weights."""
    plain, _ = both
    assert plain.fused is None, "conditioning does not look at the device"
    assert plain.model.matmul_precision == "half" and fits(plain.params.networks), "only the device speaks against the kernel"
    assert not kernel_runs_on(plain.params.networks.weights[0])
    assert plain.specialise().fused is None


@pytest.mark.skipif(not kernel_runs_on(jnp.zeros(1)), reason="needs an NVIDIA GPU from Ampere on")
def test_specialise_takes_the_kernel_on_a_gpu(both):
    plain, interpreted = both
    fast = plain.specialise()
    assert fast.fused is not None and not fast.fused.interpret
    assert fast.differentiable().fused is None, "the kernel has no gradients"
    single = EnsemblePosterior(plain.params, None, replace(plain.model, matmul_precision="single"))
    assert single.specialise().fused is None
    x, u = jnp.full((5, 2), 0.3), jnp.full((5, 1), -0.2)
    found, expected = (jax.vmap(posterior.predict)(x, u) for posterior in (fast, interpreted))
    scale = float(jnp.abs(expected.members.means - x[:, None]).max())
    np.testing.assert_allclose(found.members.means, expected.members.means, atol=8 * HALF * scale)
