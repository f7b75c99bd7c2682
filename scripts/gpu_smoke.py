"""Try Sonde on a GPU: correctness first, then a short exploration, then the benchmarks.

    python scripts/gpu_smoke.py [--quick] [--out DIR]

Needs nothing but an installed JAX with GPU support and Sonde's own requirements; no network. On a small card set
XLA_PYTHON_CLIENT_PREALLOCATE=false, since the benchmarks run in a process of their own. Prints what it does to standard
error and the benchmarks' table to standard output; exits with 1 if the GPU's predictions differ from the CPU's.
"""

import subprocess
import sys
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from sonde import preset, rollout
from sonde._internal.precision import double_precision
from sonde.data import Data
from sonde.models._base import Model
from sonde.runs._run import build_explorer

# networks multiply with the device's fast precision (10 bits of mantissa on some GPUs); Gaussian processes in full double
TOLERANCES = {"pendulum-gp-lite": 1e-6, "pendulum-pe-lite": 2e-2}


def note(text: str) -> None:
    """Progress, beside the results on standard output."""
    print(text, file=sys.stderr, flush=True)


def predictions(model: Model, device: jax.Device, params=None):
    """What the model predicts at 200 points after 100 random transitions, with params fitted here if none are given."""
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(300, 3)), rng.uniform(-1, 1, (300, 1))
    x_next = x + 0.1 * np.sin(x[:, ::-1]) + 0.1 * u
    with jax.default_device(device):
        data = Data.empty(128, 3, 1).append(*(jnp.asarray(a[:100]) for a in (x, u, x_next)))
        if params is None:
            params = jax.jit(model.fit)(model.init(3, 1, jax.random.key(0)), data, data.count, jax.random.key(1))
        params = jax.device_put(jax.tree.map(np.asarray, params), device)
        predict = jax.jit(lambda p, d, x, u: jax.vmap(model.condition(p, d).predict)(x, u))
        prediction = predict(params, data, jnp.asarray(x[100:]), jnp.asarray(u[100:]))
    return params, jax.tree.map(np.asarray, prediction)


@double_precision
def agrees(name: str) -> bool:
    """Whether CPU and GPU predict the same, given the same params; stds in units of their largest."""
    model = preset(name).model
    params, on_cpu = predictions(model, jax.devices("cpu")[0])
    _, on_gpu = predictions(model, jax.devices()[0], params)
    gaps = {}
    for part in ("mean", "epistemic_std", "aleatoric_std"):
        a, b = getattr(on_cpu, part), getattr(on_gpu, part)
        gaps[part] = float(np.abs(a - b).max() / max(np.abs(on_cpu.epistemic_std).max(), np.abs(on_cpu.aleatoric_std).max()))
    note(f"{name}: largest differences between CPU and GPU: " + ", ".join(f"{k} {v:.1e}" for k, v in gaps.items()))
    return max(gaps.values()) < TOLERANCES[name]


@double_precision
def explore(name: str) -> None:
    """Two short episodes of ten runs."""
    config = replace(preset(name), seeds=10, rounds=2, horizon=50)
    explorer = build_explorer(config)
    for round_number in (1, 2):
        began = time.perf_counter()
        explorer.tell(rollout(config.world, explorer.ask(), config.horizon))
        note(f"{name}: episode {round_number} of 10 runs in {time.perf_counter() - began:.1f} s")


def main() -> None:
    """All of it."""
    if jax.default_backend() == "cpu":
        raise SystemExit("JAX sees no GPU here; this script is for machines that have one")
    note(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}")
    good = [agrees(name) for name in TOLERANCES]
    for name in TOLERANCES:
        explore(name)
    paths = ["pe-planning", "pe-training", "round"]
    subprocess.run([sys.executable, "-m", "sonde", "bench", *paths, *sys.argv[1:]], check=True)
    if not all(good):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
