"""A GPU predicts what the CPU predicts; only for machines that have one (`make test-gpu`)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import preset
from sonde.data import Data

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(jax.default_backend() == "cpu", reason="compares a GPU with the CPU"),
]

# networks multiply with the device's fast precision (10 bits of mantissa on some GPUs); Gaussian processes in full double
TOLERANCES = {"pendulum-gp-lite": 1e-6, "pendulum-pe-lite": 2e-2}


def predictions(model, device, params=None):
    """Params, and predictions at 200 points after 100 transitions; params are fitted on the device if none are given."""
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(300, 3)), rng.uniform(-1, 1, (300, 1))
    x_next = x + 0.1 * np.sin(x[:, ::-1]) + 0.1 * u
    with jax.default_device(device):
        data = Data.empty(128, 3, 1).append(*(jnp.asarray(a[:100]) for a in (x, u, x_next)))
        if params is None:
            params = jax.jit(model.fit)(model.init(3, 1, jax.random.key(0)), data, data.count, jax.random.key(1))
        params = jax.device_put(jax.tree.map(np.asarray, params), device)
        posterior = jax.jit(model.condition)(params, data).specialise()
        found = jax.jit(lambda p, x, u: jax.vmap(p.predict)(x, u))(posterior, jnp.asarray(x[100:]), jnp.asarray(u[100:]))
    return params, jax.tree.map(np.asarray, found)


@pytest.mark.parametrize("name", TOLERANCES)
def test_gpu_and_cpu_predict_the_same_with_the_same_params(x64, name):
    model = preset(name).model
    params, on_cpu = predictions(model, jax.devices("cpu")[0])
    _, on_gpu = predictions(model, jax.devices()[0], params)
    unit = max(np.abs(on_cpu.epistemic_std).max(), np.abs(on_cpu.aleatoric_std).max())
    for part in ("mean", "epistemic_std", "aleatoric_std"):
        np.testing.assert_allclose(getattr(on_gpu, part), getattr(on_cpu, part), rtol=0, atol=TOLERANCES[name] * unit)
