"""Memory: Gaussian processes take little of it, and a run that does not fit is rejected before anything is made."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import memory_check
from sonde import METHODS, Experiment, ProbabilisticEnsemble, SondeError, explore, preset
from sonde._internal.errors import LARGEST
from sonde._internal.lockstep import CHUNK_BYTES, in_chunks
from sonde._internal.machine import Memory, free_host_memory
from sonde.data import Data
from sonde.models import Confidence, GaussianProcess, RKHSBeta
from sonde.models._base import ROWS, Posterior, Prediction, predict_many
from sonde.models._gp_posterior import prefix_sizes
from sonde.models._outputs import over_outputs
from sonde.models._programs import condition_all, fit_program
from sonde.runs import _memory
from sonde.runs._memory import check_memory, in_gigabytes, memory_need
from sonde.solvers import SAC
from sonde.worlds import OwnSystem
from tiny import TINY

GB = 10**9


# ---- work in chunks ----------------------------------------------------------------------------------------------------------


def shapes(config, capacity: int):
    """Params and data of a run, without their numbers."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), config.seeds))
    world = config.world
    init = lambda key: (
        config.model.init(world.state_dim, world.action_dim, key),
        Data.empty(capacity, world.state_dim, world.action_dim),
    )
    return *jax.eval_shape(jax.vmap(init), keys), keys


def working_bytes(program, *arguments) -> int:
    """Working memory of a compiled program, by the compiler's own account."""
    return jax.jit(program).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_working_memory_of_a_gaussian_process_does_not_grow_with_seeds(x64, cpu):
    """The matrices of all outputs of all seeds would be 1.4 GB for the factorisation, and 350 MB for the fit."""
    config, capacity = replace(preset("pendulum-gp"), seeds=50), 1000
    model = GaussianProcess(fit_points=200, rank=360, steps=2)
    params, data, keys = shapes(config, capacity)
    inputs = config.seeds * capacity * 8 * 16
    condition = lambda params, data: condition_all.__wrapped__(model, params, data, Confidence())
    assert working_bytes(condition, params, data) < 1.3 * model.condition_bytes(capacity) + inputs
    fit = lambda params, data, keys: fit_program(model).__wrapped__(model, params, data, jnp.asarray(100), keys, 0.0)
    assert working_bytes(fit, params, data, keys) < 1.3 * model.fit_bytes(200) + inputs


def test_chunks_give_what_vmap_gives():
    function = lambda number: {"square": number**2, "row": jnp.full(3, number)}
    wanted = jax.vmap(function)(jnp.arange(7))
    for bytes_each in (1, CHUNK_BYTES // 3, CHUNK_BYTES):
        found = in_chunks(function, 7, bytes_each)
        assert jax.tree.all(jax.tree.map(np.array_equal, found, wanted))


def test_chunks_on_an_accelerator_are_equal_and_complete(monkeypatch):
    """Its form, run on a CPU: seven numbers in three chunks of three."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, default, **_: default(*args))
    sizes = []

    def function(number):
        sizes.append(number.shape)
        return 2 * number

    np.testing.assert_array_equal(in_chunks(function, 7, CHUNK_BYTES // 3), 2 * np.arange(7))
    np.testing.assert_array_equal(in_chunks(function, 7, 2 * CHUNK_BYTES), 2 * np.arange(7))
    np.testing.assert_array_equal(in_chunks(function, 7, 1), 2 * np.arange(7))
    assert set(sizes) == {()}  # mapped, and never called with a whole chunk


def test_outputs_of_seeds_are_those_of_each_seed_alone():
    rng = np.random.default_rng(0)
    shared, own = jnp.asarray(rng.normal(size=(4, 5))), jnp.asarray(rng.normal(size=(4, 3, 5)))
    one = lambda shared, own: over_outputs(lambda a, b: (a * b, jnp.sum(b)), shared, own, 8)
    together = jax.jit(jax.vmap(one))(shared, own)
    np.testing.assert_allclose(together[0], shared[:, None] * own, rtol=1e-6)
    np.testing.assert_allclose(together[1], own.sum(axis=-1), rtol=1e-5)
    # what is the same for all seeds need not have their axis
    same = jax.vmap(one, in_axes=(None, 0))(shared[0], own)
    np.testing.assert_allclose(same[0], shared[0] * own, rtol=1e-6)


def test_prefixes_halve_down_to_the_smallest():
    assert prefix_sizes(1000, 128) == [250, 500, 1000]
    assert prefix_sizes(1000, 256, 4) == [1000]
    assert prefix_sizes(20_000, 256, 4) == [312, 1250, 5000, 20_000]
    assert prefix_sizes(5, 128) == [5]


def test_predictions_in_blocks_are_those_of_each_point():
    class Double(Posterior):
        def predict(self, x, u) -> Prediction:
            return Prediction(mean=2 * x, epistemic_std=jnp.abs(x) + u, aleatoric_std=jnp.ones_like(x))

    for count in (3, ROWS, 2 * ROWS + 5):
        states, actions = jnp.arange(2.0 * count).reshape(count, 2), jnp.arange(1.0 * count).reshape(count, 1)
        found = predict_many(Double(), states, actions)
        np.testing.assert_allclose(found.mean, 2 * states)
        np.testing.assert_allclose(found.epistemic_std, states + actions)


# ---- the check ---------------------------------------------------------------------------------------------------------------


def machine_with(monkeypatch, gigabytes: float) -> None:
    monkeypatch.setattr(_memory, "free_memory", lambda: Memory(int(gigabytes * GB), "this machine", False))
    monkeypatch.setattr(_memory, "free_host_memory", lambda: int(gigabytes * GB))


def test_run_that_does_not_fit_is_rejected_before_its_folder_is_made(tmp_path, monkeypatch):
    machine_with(monkeypatch, 4)
    config = replace(TINY, horizon=1_000_000)
    with pytest.raises(
        SondeError, match=r"needs about [\d.]+ GB .* has 4.0 GB free; most of it is for .* lower capacity"
    ) as told:
        explore(config, tmp_path / "run")
    assert f"{memory_need(config).bytes / GB:.1f} GB" in str(told.value)
    own = replace(config, world=OwnSystem(states=("x",), actions=("u",)))
    with pytest.raises(SondeError, match="of memory at its peak"), Experiment(tmp_path / "run", own):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"horizon": LARGEST},
        {"rounds": LARGEST},
        {"seeds": LARGEST},
        {"rollouts": LARGEST},
        {"evaluation_horizon": LARGEST},
        {"evaluation_rollouts": LARGEST},
        {"capacity": LARGEST},
        {"solver": replace(TINY.solver, samples=LARGEST)},
        {"solver": replace(TINY.solver, horizon=LARGEST)},
        {"solver": SAC(starts=LARGEST)},
        {"solver": SAC(critic=(10**9, 10**9))},
        {"model": ProbabilisticEnsemble(width=10**9)},
        {"model": ProbabilisticEnsemble(members=LARGEST)},
        {"model": replace(TINY.model, rank=0), "horizon": 10**6},
        {"method": METHODS["pets-ae"], "model": replace(TINY.model, rank=10**4), "horizon": LARGEST},
    ],
)
def test_absurd_sizes_are_rejected(tmp_path, change):
    limits = r"this run needs about [\d,.]+ GB of memory|must be at most [\d,]+, got|must lie within"
    with pytest.raises(SondeError, match=limits):
        explore(replace(TINY, **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_presets_fit_on_a_laptop():
    needed = {name: memory_need(preset(name)).bytes / GB for name in ("pendulum-gp", "pendulum-pe", "cheetah", "reacher")}
    assert max(needed.values()) < 8, needed


def test_the_runs_that_asked_for_too_much_fit_now():
    pendulum = preset("pendulum-gp")
    fifty = replace(pendulum, seeds=50, rounds=200)  # n = 20,000: asked for 46 GB
    million = replace(pendulum, rounds=10_000)  # asked for 28 GB
    cheetah = replace(preset("cheetah"), model=GaussianProcess(), seeds=10)  # asked for 687 GB; the data alone are 1.7 GB
    assert cheetah.data_capacity == 500_000
    limits = {fifty: 5, million: 11, cheetah: 22}
    for config, gigabytes in limits.items():
        assert memory_need(config).bytes < gigabytes * GB


def test_every_size_of_a_config_counts():
    need = lambda config: memory_need(config).bytes
    ensemble = replace(TINY, model=ProbabilisticEnsemble(), confidence=Confidence(holdout=0.2))
    for config in (TINY, ensemble, replace(TINY, solver=SAC(starts=10**5)), replace(TINY, model=replace(TINY.model, rank=0))):
        for name, size in {"seeds": 10**4, "capacity": 10**7}.items():
            larger = replace(config, **{name: size})
            assert need(larger) > 2 * need(config), name
        assert memory_need(config, 10**7).bytes > 2 * need(config)
    theory = replace(TINY, capacity=4000, model=replace(TINY.model, hyperparameters="fixed"))
    assert need(theory) > 4000**2 * 8 * 3
    assert need(replace(theory, seeds=2, confidence=Confidence(beta_rule=RKHSBeta()))) > 2 * 3 * 4000**2 * 8 * 3
    assert memory_need(TINY, accelerator=True).bytes > need(TINY)


def test_sweep_leaves_the_device_to_its_workers(monkeypatch):
    def asked():
        raise AssertionError("the device was asked")

    monkeypatch.setattr(_memory, "free_memory", asked)
    check_memory(TINY, runs_here=False)


def test_free_memory_respects_the_limit_of_a_container(tmp_path):
    files = {
        "proc/meminfo": "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n",
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/memory.max": "max\n",
    }

    def write(**more: str):
        for name, content in {**files, **more}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)

    write()
    assert free_host_memory(tmp_path) == 8000 * 1024
    write(**{"sys/fs/cgroup/job/memory.max": "5000000\n", "sys/fs/cgroup/job/memory.current": "2000000\n"})
    assert free_host_memory(tmp_path) == 3_000_000
    # files in the cache can be dropped
    write(**{"sys/fs/cgroup/job/memory.stat": "anon 5\ninactive_file 1000000\nactive_file 7\n"})
    assert free_host_memory(tmp_path) == 4_000_000
    write(**{"sys/fs/cgroup/memory/memory.limit_in_bytes": "3000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000\n"})
    assert free_host_memory(tmp_path) == 0  # version 1, and more in use than allowed
    assert 10**8 < free_host_memory() < 10**14


def test_gigabytes_of_any_size():
    assert in_gigabytes(1_234_567_890_123) == "1,234.6 GB"
    assert in_gigabytes(10**400) == "more than a billion GB"


# ---- the formula against real runs -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", memory_check.QUICK)
def test_formula_agrees_with_the_memory_of_a_run(name):
    """`python -m benchmarks memory-check` has more sizes."""
    error = memory_check.measure(memory_check.case_named(name)).extra["error"]
    assert abs(error) < 0.3, f"the formula is off by {error:+.0%}"
