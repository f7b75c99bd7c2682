"""Probabilistic ensembles: networks and training against numpy, and whether members disagree where there are no data."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import norm, truncnorm

from sonde import ProbabilisticEnsemble, SondeError
from sonde.data import Data
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.objectives import information_gain
from sonde.worlds import Pendulum

# compilation takes most of the time of these tests: hence few settings, and no optimisation of code that runs a few steps only
SMALL = ProbabilisticEnsemble(members=3, layers=1, width=8, batch_size=8, epochs=2, patience=0, affine=False)
CAPACITY, COUNT, HIDDEN, SEEN = 40, 30, 0.3, 20
QUICKLY = {"xla_backend_optimization_level": 0}


@partial(jax.jit, static_argnums=0)
def fit(model, params, data, key):
    return model.fit(params, data, data.count, key)


@partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def fit_briefly(model, params, data, key):
    return model.fit(params, data, data.count, key)


@partial(jax.jit, static_argnums=0)
def predict(model, params, data, x, u):
    return jax.vmap(model.condition(params, data).predict)(x, u)


def measurements(seed=0, count=COUNT) -> Data:
    """Two states, one action. A fit sees 20 of 30 rows; the hidden and the unused ones have the same distribution."""
    rng = np.random.default_rng(seed)
    states, actions = rng.normal([1, -5], [2, 0.3], (CAPACITY, 2)), rng.uniform(-1, 1, (CAPACITY, 1))
    changes = np.stack([3 * np.sin(states[:, 0]) + actions[:, 0], 0.1 * states[:, 0]], axis=-1)
    arrays = (states, actions, states + changes + 0.05 * rng.normal(size=(CAPACITY, 2)))
    return Data(*map(jnp.asarray, arrays), count=jnp.asarray(count)).without(HIDDEN)


def seen_rows(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets that a fit sees, in numpy."""
    mask = np.asarray(data.mask())
    inputs = np.concatenate([data.states, data.actions], axis=1)
    return inputs[mask], np.asarray(data.next_states - data.states)[mask]


def fresh(model, seed=0):
    return model.init(2, 1, jax.random.key(seed))


def trained(model=SMALL, data=None, start=None, key=1):
    """Params after one fit."""
    start, data = fresh(model) if start is None else start, measurements() if data is None else data
    return fit_briefly(model, start, data, jax.random.key(key))


def flat(tree) -> np.ndarray:
    """All numbers of a pytree."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def forward(weights, biases, z) -> np.ndarray:
    """A network in numpy and double precision, for points [..., inputs]."""
    h = np.asarray(z, float)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = h @ np.asarray(weight, float) + np.asarray(bias, float)
        if i + 1 < len(weights):
            h = h / (1 + np.exp(-h))
    return h


def assert_close(found, expected, rtol: float, atol: float = 0.0) -> None:
    """Within tolerances for single precision; GPUs round the inputs of products to 11 bits (TF32), layer by layer."""
    if jax.default_backend() != "cpu":
        rtol, atol = 0.0, 8 * 2.0**-11 * float(np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


# ---- one network -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_network_agrees_with_numpy(x64):
    network = Network.init((3, 8, 16, 4), jax.random.key(0))
    network = eqx.tree_at(lambda n: n.biases, network, tuple(0.3 + jnp.arange(len(b), dtype=b.dtype) for b in network.biases))
    z = np.random.default_rng(0).normal(size=(20, 3))
    expected = forward(network.weights, network.biases, z)
    assert_close(network(jnp.asarray(z)), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.slow
def test_network_is_in_single_precision(x64):
    """Also under double precision: the products of networks are most of the work."""
    network = Network.init((3, 8, 4), jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(network)} == {jnp.dtype("float32")}
    assert network(jnp.ones((1, 3), jnp.float64)).dtype == jnp.float32
    params = trained()
    assert {leaf.dtype for leaf in jax.tree.leaves(params.networks)} == {jnp.dtype("float32")}


@pytest.mark.slow
def test_initial_weights_have_the_documented_std(x64):
    """Std 1 / sqrt(inputs), truncated at two stds of the normal distribution."""
    network = Network.init((400, 300, 100), jax.random.key(0))
    for weight, inputs in zip(network.weights, (400, 300), strict=True):
        reference = truncnorm(-2, 2)
        np.testing.assert_allclose(np.std(weight), inputs**-0.5, rtol=0.02)
        assert np.abs(weight).max() <= 1.0001 * 2 / reference.std() * inputs**-0.5
    assert not flat(network.biases).any()
    half = Network.init((400, 300, 100), jax.random.key(0), 0.5)
    np.testing.assert_array_equal(flat(half.weights), 0.5 * flat(network.weights))
    by_model = replace(SMALL, layers=2, width=300, initial_scale=0.5).init(399, 1, jax.random.key(0)).networks
    np.testing.assert_allclose(np.std(by_model.weights[0]), 0.5 * 400**-0.5, rtol=0.02)


# ---- predictions -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_prediction_is_mean_and_disagreement_of_the_members(x64):
    """Against networks in numpy on normalised inputs, with their outputs brought back to state units."""
    data, params = measurements(), trained()
    z, y = seen_rows(data)
    assert len(z) == SEEN
    rng = np.random.default_rng(5)
    x, u = rng.normal([1, -5], [2, 0.3], (7, 2)), rng.uniform(-1, 1, (7, 1))
    prediction = predict(SMALL, params, data, jnp.asarray(x), jnp.asarray(u))

    points = (np.concatenate([x, u], axis=1) - z.mean(axis=0)) / z.std(axis=0)
    networks = params.networks
    outputs = [forward([w[e] for w in networks.weights], [b[e] for b in networks.biases], points) for e in range(3)]
    # the formula of the noise head is tested below
    log_stds = np.stack([np.asarray(SMALL.heads(jnp.asarray(out, jnp.float32))[1]) for out in outputs], axis=1)
    means = x[:, None] + y.mean(axis=0) + y.std(axis=0) * np.stack([out[:, :2] for out in outputs], axis=1)
    stds = y.std(axis=0) * np.exp(log_stds)
    assert prediction.members.means.shape == (7, 3, 2)
    assert_close(prediction.members.means, means, rtol=1e-4, atol=1e-5)
    assert_close(prediction.members.stds, stds, rtol=1e-4)
    assert_close(prediction.mean, means.mean(axis=1), rtol=1e-4, atol=1e-5)
    assert_close(prediction.epistemic_std, means.std(axis=1), rtol=1e-3)
    assert_close(prediction.aleatoric_std, np.sqrt((stds**2).mean(axis=1)), rtol=1e-4)
    assert prediction.mean.dtype == jnp.float64


@pytest.mark.slow
def test_member_alone_predicts_the_same_as_in_the_ensemble(x64):
    x, u = jnp.array([0.5, -4.8]), jnp.array([0.2])

    @jax.jit
    def both(params):
        posterior = SMALL.condition(params, measurements())
        return posterior.predict(x, u), jax.vmap(lambda index: posterior.member(index).predict(x, u))(jnp.arange(7))

    together, alone = both(trained())
    in_turn = np.arange(7) % 3
    assert_close(alone.mean, together.members.means[in_turn], rtol=1e-6)
    assert_close(alone.aleatoric_std, together.members.stds[in_turn], rtol=1e-6)
    np.testing.assert_array_equal(alone.epistemic_std, 0)


def test_predictions_without_data_are_finite(x64):
    """Neither conditioning nor a fit may divide by zero."""
    data = measurements(count=0)
    for params in (fresh(SMALL), trained(data=data)):
        prediction = predict(SMALL, params, data, data.states, data.actions)
        assert np.isfinite(flat(prediction)).all() and np.all(np.asarray(prediction.epistemic_std) > 0)


# ---- noise -------------------------------------------------------------------------------------------------------------------

RAW = np.array([-1e30, -1e4, -20.0, -3.0, 0.0, 3.0, 20.0, 1e4, 1e30])


def noise_of(model) -> np.ndarray:
    """The noise std, in units of the targets' std, for outputs RAW of the noise head."""
    outputs = jnp.stack([jnp.zeros(len(RAW)), jnp.asarray(RAW)], axis=-1).astype(jnp.float32)
    return np.exp(np.asarray(model.heads(outputs)[1], float))[:, 0]


@pytest.mark.parametrize("floor, ceiling", [(0.01, 1.0), (0.5, 1.0), (1e-4, 30.0)])
def test_learned_noise_stays_within_its_limits(x64, floor, ceiling):
    """It reaches them in the limit of very negative and very positive outputs of the head."""
    noise = noise_of(replace(SMALL, noise_floor=floor, noise_ceiling=ceiling))
    assert np.all(noise >= floor * (1 - 1e-5)) and np.all(noise <= ceiling * (1 + 1e-5))
    np.testing.assert_allclose(noise[:2], floor, rtol=1e-5)
    np.testing.assert_allclose(noise[-2:], ceiling, rtol=1e-5)
    assert np.all(np.diff(noise[2:7]) > 0)


def test_learned_noise_between_its_limits_is_the_exponential_of_the_head(x64):
    noise = noise_of(replace(SMALL, noise_floor=1e-6, noise_ceiling=1e6))
    np.testing.assert_allclose(noise[3:6], np.exp(RAW[3:6]), rtol=1e-4)


def test_noise_stays_within_its_limits_for_inputs_far_away(x64):
    data, params = measurements(), trained()
    far = jnp.array([[1e6, 0.0], [-1e6, 1e6], [0.0, -1e6]])
    prediction = predict(SMALL, params, data, far, jnp.zeros((3, 1)))
    spread = seen_rows(data)[1].std(axis=0)
    assert np.isfinite(flat(prediction)).all()
    assert np.all(prediction.members.stds >= spread * SMALL.noise_floor * (1 - 1e-5))
    assert np.all(prediction.members.stds <= spread * SMALL.noise_ceiling * (1 + 1e-5))


@pytest.mark.slow
def test_fixed_noise_is_the_same_everywhere(x64):
    """The networks then have a mean head only, and are trained by least squares."""
    model, data = replace(SMALL, noise="fixed", noise_std=0.2), measurements()
    params = trained(model)
    assert params.networks.weights[-1].shape == (3, 8, 2)
    prediction = predict(model, params, data, data.states, data.actions)
    spread = seen_rows(data)[1].std(axis=0)
    np.testing.assert_allclose(prediction.aleatoric_std, np.broadcast_to(0.2 * spread, (CAPACITY, 2)), rtol=1e-5)
    np.testing.assert_allclose(prediction.members.stds, np.broadcast_to(0.2 * spread, (CAPACITY, 3, 2)), rtol=1e-5)
    assert np.all(np.asarray(prediction.epistemic_std) > 0)


def test_information_gain_with_fixed_noise_is_finite_and_relative_to_it(x64):
    """1/2 sum log(1 + epistemic^2 / (noise_std spread)^2), also before any data, when the spread counts as 1."""
    model, data = replace(SMALL, noise="fixed", noise_std=0.2), measurements()
    x, u = data.states[:5], data.actions[:5]
    for params, spread in ((fresh(model), 1.0), (trained(model), seen_rows(data)[1].std(axis=0))):
        prediction = predict(model, params, data, x, u)
        expected = 0.5 * np.log(1 + (np.asarray(prediction.epistemic_std) / (0.2 * spread)) ** 2).sum(axis=1)
        np.testing.assert_allclose(information_gain(prediction), expected, rtol=1e-6)


# ---- training ----------------------------------------------------------------------------------------------------------------

# limits so wide that they do not matter
FREE = replace(SMALL, members=2, layers=1, width=4, noise_floor=1e-6, noise_ceiling=1e6)


def in_a_row(network) -> np.ndarray:
    """All weights, then all biases."""
    return flat((network.weights, network.biases)).astype(float)


def numpy_loss(network, noise, z, y):
    """The mean negative log density of y, or its mean squared error if the noise is fixed, as a function of all weights and
    biases in a row; in double precision."""
    shapes = [leaf.shape for leaf in (*network.weights, *network.biases)]

    def loss(numbers):
        parts = np.split(numbers, np.cumsum([np.prod(shape) for shape in shapes])[:-1])
        parts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        out = forward(parts[: len(parts) // 2], parts[len(parts) // 2 :], z)
        if noise == "fixed":
            return np.mean((y - out) ** 2)
        mean, raw = np.split(out, 2, axis=-1)
        return -np.mean(norm.logpdf(y, mean, np.exp(raw)))

    return loss, in_a_row(network)


@pytest.mark.slow
@pytest.mark.parametrize("noise, constant", [("learned", 0.5 * np.log(2 * np.pi)), ("fixed", 0.0)])
def test_loss_and_its_gradient_agree_with_scipy_and_finite_differences(x64, noise, constant):
    model = replace(FREE, noise=noise)
    network = jax.tree.map(lambda leaf: leaf[0], fresh(model).networks)
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(6, 2)).astype(np.float32)
    value, gradient = jax.jit(jax.value_and_grad(model._loss))(network, jnp.asarray(z), jnp.asarray(y))
    loss, at = numpy_loss(network, noise, z, y)
    np.testing.assert_allclose(value, loss(at) - constant, rtol=1e-5)
    np.testing.assert_allclose(in_a_row(gradient), approx_fprime(at, loss, 1e-7), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_first_step_of_a_fit_is_a_step_of_adam_on_the_likelihood(x64):
    """The first step of Adam is the learning rate times the negative sign of the gradient, here of all visible rows."""
    model, data = replace(FREE, max_steps=1, batch_size=SEEN, learning_rate=1e-3, weight_decay=0.0), measurements()
    start = fresh(model)
    after = trained(model, data, start)
    z, y = seen_rows(data)
    z, y = (z - z.mean(axis=0)) / z.std(axis=0), (y - y.mean(axis=0)) / y.std(axis=0)
    for member in range(2):
        pick = lambda leaf, e=member: leaf[e]
        loss, at = numpy_loss(jax.tree.map(pick, start.networks), "learned", z, y)
        gradient = approx_fprime(at, loss, 1e-7)
        moved = in_a_row(jax.tree.map(pick, after.networks)) - at
        clear = np.abs(gradient) > 1e-3
        assert clear.mean() > 0.9
        np.testing.assert_allclose(moved[clear], -1e-3 * np.sign(gradient[clear]), rtol=1e-3)


# three steps on all visible rows; each of the settings changes the result
PENALISED = replace(
    FREE,
    noise="fixed",
    optimiser="adam",
    keep_optimiser_state=True,
    batch_size=SEEN,
    epochs=3,
    learning_rate=0.02,
    optimiser_epsilon=0.03,
    weight_decay=0.2,
)


def adam_by_hand(model, network, z, y, steps) -> np.ndarray:
    """Weights and biases in a row after a number of steps of Adam on the error plus weight_decay / 2 times their square."""
    error, at = numpy_loss(network, "fixed", z, y)
    first = second = np.zeros_like(at)
    for step in range(1, steps + 1):
        gradient = approx_fprime(at, error, 1e-7) + model.weight_decay * at
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**step)) + model.optimiser_epsilon
        at = at - model.learning_rate * first / (1 - 0.9**step) / root
    return at


def adam_by_torch(model, network, z, y, steps) -> np.ndarray:
    """The same by another library."""
    torch = pytest.importorskip("torch")
    numbers = [torch.tensor(np.asarray(leaf, float), requires_grad=True) for leaf in (*network.weights, *network.biases)]
    settings = {"lr": model.learning_rate, "eps": model.optimiser_epsilon, "weight_decay": model.weight_decay}
    optimiser, (z, y) = torch.optim.Adam(numbers, **settings), (torch.tensor(z), torch.tensor(y))
    for _ in range(steps):
        optimiser.zero_grad()
        hidden, last = numbers[:2]
        output = torch.nn.functional.silu(z @ hidden + numbers[2]) @ last + numbers[3]
        torch.nn.functional.mse_loss(output, y).backward()
        optimiser.step()
    return np.concatenate([number.detach().numpy().ravel() for number in numbers])


@pytest.mark.slow
@pytest.mark.parametrize("reference", [adam_by_hand, adam_by_torch])
def test_kept_optimiser_state_continues_adam_across_fits(x64, reference):
    """Two fits of three steps are six steps; with a new optimiser state the second fit differs."""
    data, start = measurements(), fresh(PENALISED)
    z, y = seen_rows(data)
    z, y = (z - z.mean(axis=0)) / z.std(axis=0), (y - y.mean(axis=0)) / y.std(axis=0)
    once = trained(PENALISED, data, start)
    twice = trained(PENALISED, data, once, key=2)
    reset = trained(replace(PENALISED, keep_optimiser_state=False), data, eqx.tree_at(lambda p: p.moments, once, None), key=2)
    for member in range(2):
        pick = lambda leaf, e=member: leaf[e]
        network = jax.tree.map(pick, start.networks)
        for params, steps in ((once, 3), (twice, 6)):
            expected = reference(PENALISED, network, z, y, steps)
            np.testing.assert_allclose(in_a_row(jax.tree.map(pick, params.networks)), expected, rtol=2e-4, atol=2e-5)
        assert np.abs(in_a_row(jax.tree.map(pick, reset.networks)) - expected).max() > 1e-3


@pytest.mark.slow
def test_optimiser_state_is_in_the_params_and_not_in_the_posterior(x64):
    params = trained(PENALISED)
    assert {int(count) for count in np.ravel(params.moments[1][0].count)} == {3}
    assert PENALISED.condition(params, measurements()).params.moments is None
    assert trained(FREE).moments is None, "it is only kept on request"


@pytest.mark.slow
def test_columns_that_hardly_vary_are_not_scaled(x64):
    data = measurements()
    data = eqx.tree_at(lambda d: d.states, data, data.states.at[:, 1].multiply(1e-7))
    data = eqx.tree_at(lambda d: d.next_states, data, data.states.at[:, 0].add(1.0 + data.actions[:, 0]))
    z, y = seen_rows(data)
    assert 1e-8 < z[:, 1].std() < 1e-6 and np.all(y[:, 1] == 0)
    params = trained(replace(SMALL, smallest_spread=1e-6), data)
    np.testing.assert_allclose(params.inputs.scale, [z[:, 0].std(), 1, z[:, 2].std()])
    np.testing.assert_allclose(params.targets.scale, [y[:, 0].std(), 1])
    np.testing.assert_allclose(Normaliser.of_inputs(data).scale, z.std(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "count, seen, max_steps, steps",
    [
        (30, 20, 5000, 9),  # 3 passes of ceil(20 / 8)
        (16, 16, 5000, 6),  # no surplus batch where the rows fill the batches exactly
        (17, 17, 5000, 9),
        (7, 7, 5000, 3),  # fewer rows than a batch
        (30, 20, 8, 8),  # stopped within a pass
    ],
)
def test_number_of_gradient_steps(x64, count, seen, max_steps, steps):
    """The weights of a constant input have no gradient: only the decay changes them, by a factor 1 - 0.01 per step."""
    model = replace(SMALL, epochs=3, max_steps=max_steps, learning_rate=0.01, weight_decay=1.0)
    data = measurements(count=count)
    data = eqx.tree_at(lambda d: d.actions, data, jnp.full_like(data.actions, 0.25))
    assert len(seen_rows(data)[0]) == seen
    start = fresh(model)
    after = trained(model, data, start)
    ratio = np.asarray(after.networks.weights[0][:, 2] / start.networks.weights[0][:, 2], float)
    np.testing.assert_allclose(np.log(ratio) / np.log(0.99), steps, atol=0.01)


def with_garbage(data: Data, rows) -> Data:
    """Other numbers in these rows."""
    change = lambda array: array.at[jnp.asarray(rows)].multiply(-3.0).at[jnp.asarray(rows)].add(100.0)
    return Data(change(data.states), change(data.actions), change(data.next_states), data.count, data.hidden)


# all data in every batch; without and with a bootstrap sample for each member
WHOLE = replace(SMALL, batch_size=SEEN, epochs=5)
RESAMPLED = replace(WHOLE, bootstrap=True)


@pytest.mark.slow
@pytest.mark.parametrize("model", [SMALL, RESAMPLED])
def test_hidden_and_unused_rows_have_no_influence_on_the_fit(x64, model):
    data = measurements()
    seen, unseen = np.flatnonzero(data.mask()), np.flatnonzero(~np.asarray(data.mask()))
    assert len(unseen) == CAPACITY - SEEN and unseen[0] < COUNT, "some must be hidden, some unused"
    reference = flat(trained(model, data))
    assert np.array_equal(reference, flat(trained(model, with_garbage(data, unseen))))
    # a visible row does have influence
    assert not np.array_equal(reference, flat(trained(model, with_garbage(data, seen[:1]))))


def test_members_have_different_weights(x64):
    networks = trained().networks
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert all(np.abs(weight[a] - weight[b]).max() > 0.1 for weight in networks.weights)


def spread_of_equals(model) -> float:
    """Largest std over members of a weight after a fit that starts from equal weights."""
    start = fresh(model)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), start.networks)
    params = trained(model, start=eqx.tree_at(lambda p: p.networks, start, same))
    return max(float(np.std(weight, axis=0).max()) for weight in params.networks.weights)


@pytest.mark.slow
def test_each_member_has_its_own_order_and_bootstrap_sample(x64):
    """Members that start equal stay equal only where all of them see all data in every batch."""
    assert spread_of_equals(WHOLE) < 1e-6
    assert spread_of_equals(SMALL) > 1e-4
    assert spread_of_equals(RESAMPLED) > 1e-4


def test_bootstrap_samples_are_drawn_from_all_rows(x64):
    """Swapping the targets of any two rows, which changes neither mean nor std, must change some member."""
    model, data = RESAMPLED, measurements(count=15)
    start, rows, change = fresh(model), np.flatnonzero(data.mask()), data.targets()
    reference = flat(trained(model, data, start).networks)
    for row, other in zip(rows, np.roll(rows, 1), strict=True):
        traded = change.at[row].set(change[other]).at[other].set(change[row])
        changed = eqx.tree_at(lambda d: d.next_states, data, data.states + traded)
        assert np.abs(reference - flat(trained(model, changed, start).networks)).max() > 1e-5, f"rows {row} and {other}"


@pytest.mark.slow
def test_fit_depends_on_the_last_weights_only_with_warm_start(x64):
    starts = [fresh(SMALL, seed) for seed in (0, 7)]
    again = [flat(trained(replace(SMALL, warm_start=False), start=start)) for start in starts]
    np.testing.assert_array_equal(again[0], again[1])
    kept = [flat(trained(SMALL, start=start)) for start in starts]
    assert np.abs(kept[0] - kept[1]).max() > 0.1
    # new weights are drawn from the key of the fit, and differ from the initial ones
    other = flat(trained(replace(SMALL, warm_start=False), start=starts[0], key=2))
    assert np.abs(again[0] - other).max() > 0.1
    assert np.abs(again[0] - kept[0]).max() > 0.1


def test_same_key_gives_the_same_weights(x64):
    assert np.array_equal(flat(trained(key=3)), flat(trained(key=3)))
    assert not np.array_equal(flat(trained(key=3)), flat(trained(key=4)))


@pytest.mark.slow
def test_seeds_fitted_together_get_the_same_weights_as_alone(x64):
    data = [measurements(seed) for seed in range(3)]
    starts, keys = [fresh(SMALL, seed) for seed in range(3)], jax.random.split(jax.random.key(0), 3)
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    fit_all = jax.jit(jax.vmap(lambda p, d, k: SMALL.fit(p, d, jnp.asarray(COUNT), k)), compiler_options=QUICKLY)
    together = fit_all(stack(starts), stack(data), keys)
    for seed in range(3):
        alone = fit_briefly(SMALL, starts[seed], data[seed], keys[seed])
        np.testing.assert_allclose(flat(jax.tree.map(lambda leaf, s=seed: leaf[s], together)), flat(alone), atol=1e-5)


@pytest.mark.slow
def test_loops_of_cpus_and_of_accelerators_train_the_same_weights(x64, monkeypatch):
    """Which one is used depends on the device; here the other one is run on the same device."""
    data, key = measurements(), jax.random.key(1)
    name = "elsewhere" if jax.default_backend() == "cpu" else "for_cpus"
    other_loop = lambda for_cpus, *trees, elsewhere: jax.vmap({"for_cpus": for_cpus, "elsewhere": elsewhere}[name])(*trees)
    monkeypatch.setattr("sonde.models._ensemble.over_members", other_loop)
    other = jax.jit(lambda params: SMALL.fit(params, data, data.count, key), compiler_options=QUICKLY)(fresh(SMALL))
    monkeypatch.undo()
    np.testing.assert_allclose(flat(other), flat(trained(data=data)), atol=1e-5)


# ---- disagreement and noise on toy problems ----------------------------------------------------------------------------------


def cubic(seed: int, count: int, noise) -> tuple[np.ndarray, np.ndarray]:
    """y = x^3 + noise(x) for x in [-4, 4]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 4, count)
    return x, x**3 + noise(x) * rng.normal(size=count)


def learn_line(model, seed, x, y):
    """Predictions of y as a function of x [N] after a fit to points: x is the state and y its change; the action is unused."""
    column = jnp.asarray(x)[:, None]
    data = Data(column, jnp.zeros_like(column), column + jnp.asarray(y)[:, None], jnp.asarray(len(x)))
    params = fit(model, model.init(1, 1, jax.random.key(seed)), data, jax.random.key(seed + 100))

    def prediction(*parts):
        """(mean, epistemic std, aleatoric std) for each set of points."""
        points = jnp.asarray(np.concatenate(parts))[:, None]
        it = predict(model, params, data, points, jnp.zeros_like(points))
        values = np.concatenate([it.mean - points, it.epistemic_std, it.aleatoric_std], axis=1).T
        return np.split(values, np.cumsum([len(part) for part in parts])[:-1], axis=1)

    return prediction


@pytest.mark.slow
def test_members_disagree_where_there_are_no_data(x64):
    """The usual cubic toy with noise 3. Summed over three data sets, since the ratio varies from 4 to 19 between them."""
    model = ProbabilisticEnsemble(width=64, epochs=10_000, max_steps=2000)
    inside, outside = np.linspace(-4, 4, 81), np.concatenate([np.linspace(-7, -5.5, 16), np.linspace(5.5, 7, 16)])
    near = far = 0.0
    for seed in range(3):
        prediction = learn_line(model, seed, *cubic(seed, 200, lambda x: 3.0))
        (mean, std_inside, _), (_, std_outside, _) = prediction(inside, outside)
        near, far = near + std_inside.mean(), far + std_outside.mean()
        assert np.sqrt(np.mean((mean - inside**3) ** 2)) < 2, "the function itself must be learned inside"
    assert far > 5 * near


@pytest.mark.slow
def test_noise_that_depends_on_the_state_is_learned(x64):
    """Noise from 1 at x = 0 to 10 at |x| = 4: the held-out likelihood is better than that of any constant variance."""
    noise = lambda x: 1 + 9 * np.abs(x) / 4
    (x, y), (x_test, y_test) = cubic(0, 800, noise), cubic(1, 2000, noise)
    model = ProbabilisticEnsemble(width=64, epochs=10_000, max_steps=2000, learning_rate=1e-3)
    prediction = learn_line(model, 0, x, y)
    (mean, epistemic, aleatoric), (mean_seen, _, _), (_, _, at_some) = prediction(x_test, x, np.array([-3.0, 0.0, 3.0]))

    def nll(centre, std):
        return -norm.logpdf(y_test, centre, std).mean()

    ours, least_squares = nll(mean, np.hypot(epistemic, aleatoric)), np.polynomial.Polynomial.fit(x, y, 3)
    assert ours < nll(y.mean(), y.std()) - 1
    assert ours < nll(least_squares(x_test), (y - least_squares(x)).std()) - 0.1
    assert ours < nll(mean, (y - mean_seen).std()) - 0.1
    # and close to that of the truth
    assert ours < nll(x_test**3, noise(x_test)) + 0.1
    left, middle, right = at_some
    np.testing.assert_allclose([left, right], 1 + 9 * 3 / 4, rtol=0.2)
    assert middle < 0.4 * min(left, right), "the truth is 1, but the network rounds off the corner"


@pytest.mark.slow
def test_members_trained_on_slow_pendulums_disagree_on_fast_ones(x64):
    world, rng = Pendulum(), np.random.default_rng(0)
    model = ProbabilisticEnsemble(width=64, epochs=10_000, max_steps=500)
    theta, slow, actions = rng.uniform(-np.pi, np.pi, 500), rng.uniform(-1, 1, 500), jnp.asarray(rng.uniform(-1, 1, (500, 1)))
    states = lambda speed: jnp.asarray(np.stack([np.cos(theta), np.sin(theta), speed], axis=-1))
    seen, fast = states(slow), states(np.sign(slow) * rng.uniform(6.5, 7.5, 500))
    data = Data(seen, actions, jax.vmap(world.dynamics)(seen, actions), jnp.asarray(500))
    params = fit(model, model.init(3, 1, jax.random.key(0)), data, jax.random.key(1))
    near, far = (np.asarray(predict(model, params, data, x, actions).epistemic_std).mean(axis=0) for x in (seen, fast))
    assert np.all(far > 5 * near), "in every output"


# ---- invalid settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"members": 1}, "members must be 2 or more, got 1; the epistemic std is their disagreement"),
        ({"members": 0}, "model: members must be a whole number above 0, got 0"),
        ({"width": 0}, "model: width must be a whole number above 0, got 0"),
        ({"layers": 0}, "model: layers must be a whole number above 0, got 0"),
        ({"batch_size": 0}, "model: batch_size must be a whole number above 0, got 0"),
        ({"epochs": -1}, "model: epochs must be a whole number above 0, got -1"),
        ({"max_steps": 0}, "model: max_steps must be a whole number above 0, got 0"),
        ({"learning_rate": float("nan")}, "model: learning_rate must be above 0, got nan"),
        ({"noise_floor": 0.0}, "model: noise_floor must be 1e-06 or above, got 0.0"),
        ({"noise_std": -0.1}, "model: noise_std must be 1e-06 or above, got -0.1"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or above, got -1.0"),
        ({"weight_decay": float("nan")}, "weight_decay must be 0 or above, got nan"),
        ({"optimiser_epsilon": 0.0}, "model: optimiser_epsilon must be above 0, got 0.0"),
        ({"initial_scale": -1.0}, "model: initial_scale must be above 0, got -1.0"),
        ({"smallest_spread": 0.0}, "model: smallest_spread must be above 0, got 0.0"),
        ({"keep_optimiser_state": True, "warm_start": False}, "model: keep_optimiser_state needs warm_start"),
        ({"noise_ceiling": 0.01}, r"noise_ceiling must be above noise_floor \(0.01\), got 0.01"),
        ({"noise_ceiling": 0.005}, r"noise_ceiling must be above noise_floor \(0.01\), got 0.005"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(SondeError, match=message):
        ProbabilisticEnsemble(**settings)


@pytest.mark.parametrize(
    "field, word, known",
    [
        ("noise", "loud", "fixed, learned"),
        ("matmul_precision", "double", "half, single"),
        ("optimiser", "sgd", "adam, adamw"),
    ],
)
def test_unknown_names_are_rejected(field, word, known):
    model = ProbabilisticEnsemble()
    object.__setattr__(model, field, word)  # type checks are only active in tests
    with pytest.raises(SondeError, match=f"unknown setting of the model's {field} '{word}'; expected one of: {known}"):
        model.__post_init__()


def test_weight_decay_can_be_zero():
    assert ProbabilisticEnsemble(weight_decay=0.0).ensemble_size == 5
