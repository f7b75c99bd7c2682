"""Controllers and models outside of Python: ONNX graphs and compiled C against numpy and JAX, on 10,000 random points."""

import ctypes
import inspect
import math
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import SondeError
from sonde._internal.past import NO_PAST, Past
from sonde._internal.precision import double_precision
from sonde.control import GainSchedule, LinearFeedback, to_c, to_onnx
from sonde.control.deploy import DeployedPolicy
from sonde.data import Data
from sonde.evaluation import TrueDynamics
from sonde.models import RBF, GaussianProcess, KnownPhysics, Linear, Matern32, Matern52, Posterior, ProbabilisticEnsemble
from sonde.models._auto import AutoPosterior
from sonde.models._base import predict_many
from sonde.models._calibration import Factors, PosteriorWithBeta, RecalibratedPosterior
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.solvers._actor import ActorPolicy
from sonde.worlds import Pendulum

POINTS = 10_000
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc or clang) is installed")
BOTH = ["onnx", pytest.param("c", marks=needs_compiler)]


def actor(past=NO_PAST, width=64, state_dim=3, action_dim=2) -> ActorPolicy:
    """An actor with a leading axis of one seed; its last layer also has a control of the imagination."""
    full = state_dim + past.size(state_dim, action_dim)
    with jax.enable_x64(True):
        network = Network.init((full, width, width, 2 * (action_dim + 1)), jax.random.key(3))
        normaliser = Normaliser(jnp.linspace(-1, 2, full), jnp.geomspace(0.1, 10, full))
        return jax.tree.map(lambda leaf: leaf[None], ActorPolicy(network, normaliser, action_dim, past=past))


def deployed(actor: ActorPolicy) -> DeployedPolicy:
    one = jax.tree.map(lambda leaf: np.asarray(leaf[0]), actor)
    layers = list(zip(one.network.weights, one.network.biases, strict=True))
    return DeployedPolicy(one.normaliser.shift, one.normaliser.scale, layers, actor.action_dim, actor.past)


def session(content: bytes):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def compiled(header: str, name: str, caller: str, folder: Path) -> ctypes.CDLL:
    """A library of functions that call those of a header."""
    (folder / f"{name}.h").write_text(header)
    source = folder / f"{name}.c"
    source.write_text(f'#include "{name}.h"\n{caller}')
    library = folder / f"{len(list(folder.iterdir()))}.so"  # a library of the same name would not be loaded a second time
    done = subprocess.run(
        [str(COMPILER), *FLAGS, "-shared", "-fPIC", "-o", str(library), str(source), "-lm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def pointer(array: np.ndarray):
    assert array.dtype == np.float64 and array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)


ACT = """
int act(const double *x, double *u, int n);
int act(const double *x, double *u, int n)
{
    int i, failed = 0;
    for (i = 0; i < n; i++)
        failed += NAME_act(x + i * MACRO_STATE_DIM, u + i * MACRO_ACTION_DIM);
    return failed;
}
"""
BEGIN = "int i, failed = 0;\n    NAME_memory memory;\n    NAME_reset(&memory);"
ACT_IN_TURN = ACT.replace("int i, failed = 0;", BEGIN).replace("NAME_act(x", "NAME_act(&memory, x")


def caller(text: str, name: str) -> str:
    return text.replace("NAME", name).replace("MACRO", name.upper())


def actions_by(kind: str, controller, states: np.ndarray, action_dim: int, folder: Path) -> np.ndarray:
    """Actions of an exported controller without memory."""
    if kind == "onnx":
        return session(to_onnx(controller)).run(None, {"x": states})[0]
    library = compiled(to_c(controller, "swing"), "swing", caller(ACT, "swing"), folder)
    actions = np.zeros((len(states), action_dim))
    assert library.act(pointer(states), pointer(actions), len(states)) == 0
    return actions


# ---- controllers -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_exported_policy_acts_like_the_actor_in_jax(kind, tmp_path):
    trained = actor()
    states = deployed(trained).shift + 2 * deployed(trained).scale * np.random.default_rng(0).normal(size=(POINTS, 3))

    @double_precision
    def by_jax():
        one = jax.tree.map(lambda leaf: leaf[0], trained)
        return np.asarray(jax.jit(jax.vmap(lambda x: one.act(None, x, jax.random.key(0))[0]))(jnp.asarray(states)))

    expected, found = by_jax(), actions_by(kind, deployed(trained), states, 2, tmp_path)
    assert np.abs(expected).max() > 0.9 and np.abs(expected).min() < 0.01
    # sums of 64 products in single precision, which C adds up one after the other
    tolerance = 1e-6 if kind == "onnx" else 2e-6
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    policy = deployed(trained)
    np.testing.assert_allclose(found[:500], [policy(x) for x in states[:500]], rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", BOTH)
def test_exported_feedback_is_the_same_to_the_last_digits(kind, tmp_path):
    rng = np.random.default_rng(1)
    feedback = LinearFeedback(rng.normal(size=(2, 4)), rng.normal(size=4), rng.uniform(-1, 1, 2))
    states = rng.normal(size=(POINTS, 4))
    found = actions_by(kind, feedback, states, 2, tmp_path)
    np.testing.assert_allclose(found, [feedback(x) for x in states], rtol=0, atol=1e-14)
    assert (np.abs(found) == 1).any()


def schedule(**changes) -> GainSchedule:
    """Two scheduling variables, the first with uneven steps."""
    rng, axes = np.random.default_rng(4), (np.array([-1.0, -0.5, 2.0]), np.array([0.0, 1.0]))
    tables = rng.normal(size=(3, 2, 2, 4)), rng.normal(size=(3, 2, 4)), rng.uniform(-1, 1, (3, 2, 2))
    return replace(GainSchedule(axes, *tables, outside="hold"), **changes)


@pytest.mark.parametrize("kind", BOTH)
def test_exported_schedule_interpolates_as_in_python(kind, tmp_path):
    controller = schedule(scheduled=(2, 0))
    states = np.random.default_rng(1).normal(size=(POINTS, 4))
    found = actions_by(kind, controller, states, 2, tmp_path)
    np.testing.assert_allclose(found, [controller(x) for x in states], rtol=0, atol=1e-13)


def test_exported_schedule_takes_values_and_shows_where_the_table_ends(tmp_path):
    controller = schedule(outside="refuse")
    graph, x = session(to_onnx(controller)), np.full((1, 4), 0.3)
    for values in ([0.7, 0.2], [2.0, 1.0], [-1.0, 0.0]):
        action = graph.run(None, {"x": x, "values": np.array([values])})[0][0]
        np.testing.assert_allclose(action, controller(x[0], np.array(values)), rtol=0, atol=1e-14)
    assert np.isnan(graph.run(None, {"x": x, "values": np.array([[2.1, 0.0]])})[0]).all()
    alone = schedule(
        outside="refuse",
        axes=(np.zeros(1), np.zeros(1)),
        **{name: getattr(controller, name)[:1, :1] for name in ("gains", "states", "actions")},
    )
    only = session(to_onnx(alone)).run(None, {"x": x, "values": np.zeros((1, 2))})[0][0]
    np.testing.assert_allclose(only, alone(x[0], np.zeros(2)), rtol=0, atol=1e-14)


@needs_compiler
def test_schedules_in_c_take_values_and_refuse_those_outside_of_the_table(tmp_path):
    controller = schedule(outside="refuse")
    call = "int act(const double *x, const double *v, double *u);\n"
    call += "int act(const double *x, const double *v, double *u)\n{\n    return swing_act(x, v, u);\n}\n"
    library, x, u = compiled(to_c(controller, "swing"), "swing", call, tmp_path), np.full(4, 0.3), np.zeros(2)
    for values in ([0.7, 0.2], [2.0, 1.0], [-1.0, 0.0]):
        assert library.act(pointer(x), pointer(np.array(values)), pointer(u)) == 0
        np.testing.assert_allclose(u, controller(x, np.array(values)), rtol=0, atol=1e-14)
    for values in ([2.1, 0.0], [0.0, np.nan]):
        assert library.act(pointer(x), pointer(np.array(values)), pointer(u)) == 1


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("past", [Past(delay=1), Past(history=2), Past(delay=2, history=3)], ids=str)
def test_the_past_is_remembered_as_in_python(kind, past, tmp_path):
    policy = deployed(actor(past=past, width=8))
    states = policy.scale[:3] * np.sin(np.cumsum(np.random.default_rng(2).normal(0, 0.5, (200, 3)), axis=0))
    expected = np.stack([policy(x) for x in states])
    assert not np.allclose(expected, [policy.reset() or policy(x) for x in states], atol=1e-3)  # it matters here
    if kind == "c":
        library = compiled(to_c(policy, "swing"), "swing", caller(ACT_IN_TURN, "swing"), tmp_path)
        found = np.zeros((len(states), 2))
        assert library.act(pointer(states), pointer(found), len(states)) == 0
    else:
        graph = session(to_onnx(policy))
        memory, rows = np.zeros((1, graph.get_inputs()[1].shape[1])), []
        for x in states:
            action, memory = graph.run(["action", "next_memory"], {"x": x[None], "memory": memory})
            rows.append(action[0])
        found = np.stack(rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_graphs_have_as_many_rows_as_asked_for():
    feedback = LinearFeedback(np.ones((1, 2)), np.zeros(2), np.zeros(1))
    free, fixed = session(to_onnx(feedback)), session(to_onnx(feedback, batch=3))
    assert [len(free.run(None, {"x": np.zeros((n, 2))})[0]) for n in (1, 7)] == [1, 7]
    assert fixed.get_inputs()[0].shape == [3, 2] and fixed.get_inputs()[0].type == "tensor(double)"
    assert fixed.run(None, {"x": np.zeros((3, 2))})[0].shape == (3, 1)


@needs_compiler
def test_c_refuses_states_that_are_not_finite(tmp_path):
    policy = deployed(actor(width=8))
    library = compiled(to_c(policy, "swing"), "swing", caller(ACT, "swing"), tmp_path)
    for bad in (math.nan, math.inf):
        u = np.full(2, 7.0)
        assert library.act(pointer(np.array([0.0, bad, 0.0])), pointer(u), 1) == 1
        assert (u == 7).all()


@needs_compiler
def test_two_headers_can_be_used_in_one_program(tmp_path):
    feedback = LinearFeedback(np.ones((1, 2)), np.zeros(2), np.zeros(1))
    (tmp_path / "other.h").write_text(to_c(feedback, "other"))
    both = '#include "other.h"\n' + caller(ACT, "swing").replace("NAME", "swing")
    library = compiled(to_c(deployed(actor(width=8)), "swing"), "swing", both, tmp_path)
    assert library.act(pointer(np.zeros((1, 3))), pointer(np.zeros(2)), 1) == 0
    names = re.findall(r"^(?:static [\w *]*?|#define )(\w+)(?:[\[(]| \d|$)", to_c(feedback, "other"), re.MULTILINE)
    assert {"OTHER_H", "OTHER_STATE_DIM", "other_gain", "other_act"} <= set(names)
    assert all(name.lower().startswith("other_") for name in names), names


@needs_compiler
def test_the_usage_in_a_header_compiles(tmp_path):
    text = to_c(deployed(actor(past=Past(delay=1), width=8)), "swing")
    comment = text[: text.index("*/")]
    code = "\n".join(line.removeprefix(" *") for line in comment.splitlines() if line.startswith(" *     "))
    assert "swing_reset(&memory);" in code
    code = code.replace("u[SWING_ACTION_DIM];", "u[SWING_ACTION_DIM];\nx[0] = x[1] = x[2] = 0.0;").replace("{ ... }", "return;")
    compiled(text, "swing", f"void use(void);\nvoid use(void)\n{{\n{code}\n}}\n", tmp_path)


# ---- models ------------------------------------------------------------------------------------------------------------------


@double_precision
def learned(model, measurements=60) -> Posterior:
    """A posterior of a smooth system with two states and an action."""
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(measurements, 2)) * [1, 5], rng.uniform(-1, 1, (measurements, 1))
    x_next = x + 0.1 * np.sin(x[:, ::-1]) + 0.2 * u
    arrays = {"states": x, "actions": u, "next_states": x_next, "count": measurements}
    data = replace(Data.empty(measurements, 2, 1), **{name: jnp.asarray(value) for name, value in arrays.items()})
    params = model.fit(model.init(2, 1, jax.random.key(0)), data, data.count, jax.random.key(1))
    return model.condition(params, data)


PREDICT = """
int predict(const double *x, const double *u, double *mean, double *epistemic, double *aleatoric, int n);
int predict(const double *x, const double *u, double *mean, double *epistemic, double *aleatoric, int n)
{
    int i, failed = 0;
    for (i = 0; i < n; i++) {
        const int at = i * MODEL_STATE_DIM;
        failed += model_predict(x + at, u + i * MODEL_INPUT_DIM, mean + at, epistemic + at, aleatoric + at);
    }
    return failed;
}
"""


@double_precision
def largest_differences(posterior: Posterior, folder: Path) -> np.ndarray:
    """Largest differences of mean, epistemic and aleatoric std from `predict`, relative to the std of predicted changes.

    Returns:
        One row for ONNX, and one for C where there is a compiler.
    """
    rng = np.random.default_rng(1)
    x, u = rng.normal(size=(POINTS, 2)) * [2, 10], rng.uniform(-1, 1, (POINTS, 1))
    expected = jax.jit(predict_many)(posterior, jnp.asarray(x), jnp.asarray(u))
    found = [session(to_onnx(posterior)).run(["mean", "epistemic_std", "aleatoric_std"], {"x": x, "u": u})]
    if COMPILER:
        library = compiled(to_c(posterior, "model"), "model", PREDICT, folder)
        found.append([np.zeros((POINTS, 2)) for _ in range(3)])
        assert library.predict(pointer(x), pointer(u), *map(pointer, found[-1]), POINTS) == 0
    spread = np.std(np.asarray(expected.mean) - x, axis=0)
    truth = np.stack([expected.mean, expected.epistemic_std, expected.aleatoric_std])
    return np.max(np.abs(np.array(found) - truth) / spread, axis=(-2, -1))


FAST = GaussianProcess(hyperparameters="fixed", rank=0, affine_std=0.0)
PROCESSES = {
    "rbf": FAST,
    "rbf, affine, low rank": replace(FAST, affine_std=1.0, rank=16),
    "matern32, affine": replace(FAST, kernel=Matern32(), affine_std=1.0),
    "matern52, low rank": replace(FAST, kernel=Matern52(), rank=16),
    "linear": replace(FAST, kernel=Linear()),
}
ENSEMBLES = {
    "learned noise, affine": ProbabilisticEnsemble(members=3, width=16, max_steps=20),
    "fixed noise": ProbabilisticEnsemble(members=2, width=8, max_steps=20, noise="fixed", affine=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSES)
def test_exported_processes_predict_the_same(name, tmp_path):
    assert (largest_differences(learned(PROCESSES[name]), tmp_path) < 1e-8).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENSEMBLES)
def test_exported_ensembles_predict_the_same(name, tmp_path):
    assert (largest_differences(learned(ENSEMBLES[name]), tmp_path) < 3e-6).all()


@pytest.mark.slow
def test_recalibration_and_the_choice_among_models_are_exported(tmp_path):
    with jax.enable_x64(True):
        inner = learned(FAST)
        factors = Factors(jnp.array([2.0, 0.5]), jnp.array([3.0, 0.25]))
        recalibrated = RecalibratedPosterior(inner, factors)
        chosen = AutoPosterior((learned(replace(FAST, kernel=Matern32())), recalibrated), jnp.asarray(1))
        posterior = PosteriorWithBeta(chosen, jnp.ones(2))
    assert (largest_differences(posterior, tmp_path) < 1e-8).all()


@dataclass(frozen=True)
class Mine(RBF):
    """A kernel of a user."""


def test_what_has_no_form_outside_of_python_is_refused():
    with pytest.raises(SondeError, match="one of the kernels rbf, matern32"):
        to_onnx(learned(replace(FAST, kernel=Mine())))
    physics = KnownPhysics(prior=lambda x, u: x + 0.1 * u, model=FAST)
    with pytest.raises(SondeError, match=r"known physics is Python code.*posterior\.posterior"):
        to_c(learned(physics), "model")
    seeds = jax.tree.map(lambda leaf: leaf[None], learned(FAST))
    with pytest.raises(SondeError, match="posterior of one seed, got one with a leading axis"):
        to_onnx(seeds)


@pytest.mark.parametrize("export", [to_onnx, to_c])
def test_anything_else_is_refused(export):
    with pytest.raises(SondeError, match="expected what load_policy returns, or the posterior of one seed, got int"):
        inspect.unwrap(export)(3, *([] if export is to_onnx else ["name"]))  # without the tests' own check of types
    with pytest.raises(SondeError, match="posterior of a Gaussian process or a probabilistic ensemble, got TrueDynamics"):
        export(TrueDynamics(Pendulum()), *([] if export is to_onnx else ["name"]))


@pytest.mark.parametrize("name", ["", "swing-up", "3d", "_own", "größe", "a b"])
def test_names_that_c_cannot_have_are_refused(name):
    with pytest.raises(SondeError, match="letters, digits and _, and begin with a letter"):
        to_c(LinearFeedback(np.ones((1, 1)), np.zeros(1), np.zeros(1)), name)


def test_the_package_that_onnx_needs_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SondeError, match=r"pip install 'sonde\[onnx\]'"):
        to_onnx(LinearFeedback(np.ones((1, 1)), np.zeros(1), np.zeros(1)))
