"""Policies from files, without JAX: against the formula in plain Python, and against the actor that was saved."""

import ast
import math
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import sonde
from sonde import SondeError, load_policy
from sonde.control import LinearFeedback

METADATA = {"format": "sonde-policy-1"}
DOCS = Path(__file__).parent.parent / "docs"


def hand_made() -> dict[str, np.ndarray]:
    """Two seeds: 2 states, 3 hidden, 2 controls (an action and one for the imagination), each with a mean and a log-std."""
    rng = np.random.default_rng(5)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    return {
        "action_dim": np.array([1]),
        "shift": np.array([[0.5, -1.0], [0.0, 2.0]]),
        "scale": np.array([[2.0, 0.25], [1.0, 3.0]]),
        **{"weight0": draw(2, 2, 3), "bias0": draw(2, 3), "weight1": draw(2, 3, 4), "bias1": draw(2, 4)},
    }


def in_plain_python(arrays, seed, x) -> float:
    """The action, computed without arrays."""
    z = [(x[i] - arrays["shift"][seed][i]) / arrays["scale"][seed][i] for i in range(2)]
    hidden = []
    for j in range(3):
        total = float(arrays["bias0"][seed][j]) + sum(z[i] * float(arrays["weight0"][seed][i][j]) for i in range(2))
        hidden.append(total / (1 + math.exp(-total)))
    return math.tanh(float(arrays["bias1"][seed][0]) + sum(hidden[j] * float(arrays["weight1"][seed][j][0]) for j in range(3)))


@pytest.fixture
def file(tmp_path):
    def write(arrays=None, metadata=METADATA):
        path = tmp_path / "policy.safetensors"
        path.write_bytes(safetensors.numpy.save(hand_made() if arrays is None else arrays, metadata=metadata))
        return path

    return write


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("x", [(0.0, 0.0), (0.4, -1.2), (-30.0, 7.0), (200.0, 1.0)])
def test_policy_agrees_with_the_formula(file, seed, x):
    policy = load_policy(file(), seed)
    u = policy(np.array(x))
    assert u.shape == (1,) and u.dtype == np.float64
    with np.errstate(all="raise"):
        assert u[0] == pytest.approx(in_plain_python(hand_made(), seed, x), abs=2e-6)


def test_extreme_states_do_not_overflow(file):
    with np.errstate(over="raise", invalid="raise"):
        assert np.abs(load_policy(file())(np.array([1e30, -1e30]))).max() <= 1


@pytest.mark.slow
def test_policy_equals_the_actor_that_was_saved(tmp_path):
    from sonde import Controller
    from sonde.models._network import Network
    from sonde.models._normaliser import Normaliser
    from sonde.solvers._actor import ActorPolicy

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 2)

        def make(key):
            return ActorPolicy(Network.init((3, 8, 4), key), Normaliser(jnp.ones(3), jnp.full(3, 0.5)), 2)

        actor = jax.jit(jax.vmap(make))(keys)
        content, states = actor.to_bytes(), np.random.default_rng(0).normal(size=(5, 2, 3))
        actions = np.stack([Controller(actor, keys, 3)(x) for x in states])
    assert content is not None
    (tmp_path / "actor.safetensors").write_bytes(content)
    for seed in (0, 1):
        policy = load_policy(tmp_path / "actor.safetensors", seed)
        np.testing.assert_allclose([policy(x) for x in states[:, seed]], actions[:, seed], atol=1e-6)


@pytest.mark.parametrize(
    ("x", "message"),
    [(np.zeros(3), r"shape \[2\], got \[3\]"), (np.zeros((1, 2)), r"got \[1, 2\]"), (np.array([0, np.nan]), "finite")],
)
def test_invalid_states_are_rejected(file, x, message):
    with pytest.raises(SondeError, match=message):
        load_policy(file())(x)


def changed(**changes):
    return {name: array for name, array in (hand_made() | changes).items() if array is not None}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed(bias1=None), "damaged: it has the arrays"),
        (changed(extra=np.zeros(1)), "damaged: it has the arrays"),
        (changed(weight1=np.zeros((2, 5, 4), np.float32)), r"weight1 has shape \[2, 5, 4\], expected \[2, 3, 4\]"),
        (changed(bias0=np.full((2, 3), np.nan)), "bias0 is not finite"),
        (changed(scale=np.zeros((2, 2))), "scale must be above 0"),
        (changed(shift=np.zeros(2)), "shift two axes"),
        (changed(weight1=np.zeros((2, 3, 3)), bias1=np.zeros((2, 3))), "3 outputs cannot be"),
    ],
)
def test_damaged_files_are_rejected(file, arrays, message):
    with pytest.raises(SondeError, match=message):
        load_policy(file(arrays))


def test_files_that_are_not_policies_are_rejected(file, tmp_path):
    with pytest.raises(SondeError, match="cannot be read as a policy"):
        load_policy(tmp_path / "nothing.safetensors")
    with pytest.raises(SondeError, match="cannot be read as a policy"):
        load_policy(tmp_path)
    for metadata in (None, {"format": "pt"}):
        with pytest.raises(SondeError, match="is not a policy: expected the format sonde-policy-1 or sonde-linear-feedback-1"):
            load_policy(file(metadata=metadata))
    with pytest.raises(SondeError, match="action_dim must have one entry"):
        load_policy(file({**hand_made(), "action_dim": np.array([1, 2])}))
    with pytest.raises(SondeError, match="seed_index must be 0 to 1, got 2"):
        load_policy(file(), seed_index=2)
    path = file()
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SondeError, match="cannot be read as a policy"):
        load_policy(path)


GAINS = {"gain": np.array([[2.0, -0.5]]), "state": np.array([0.1, 0.0]), "action": np.array([0.25])}


def test_gains_are_read_as_they_were_saved(tmp_path):
    path = tmp_path / "gains.safetensors"
    LinearFeedback(**GAINS).save(path)
    assert load_policy(path)(np.array([0.2, 0.4])) == pytest.approx([0.25 - 2.0 * 0.1 + 0.5 * 0.4])
    assert load_policy(path)(np.array([9.0, 0.0])) == [-1.0]
    with pytest.raises(SondeError, match="seed_index must be 0, got 1"):
        load_policy(path, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gain": np.ones((2, 2))}, r"gain must have shape \[1, 2\], got \[2, 2\]"),
        ({"state": np.array([np.nan, 0])}, "state must be finite"),
        ({"extra": np.zeros(1)}, "is damaged: expected the arrays action, gain, state, got action, extra"),
    ],
)
def test_damaged_gains_are_rejected(file, change, message):
    with pytest.raises(SondeError, match=message):
        load_policy(file(GAINS | change, {"format": "sonde-linear-feedback-1"}))


def test_example_in_the_docs_works(file, tmp_path, monkeypatch):
    (code,) = [
        c for c in re.findall(r"```python\n(.*?)```", (DOCS / "own-system.md").read_text(), re.DOTALL) if "load_policy" in c
    ]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "cart" / "policies").mkdir(parents=True)
    (tmp_path / "runs" / "cart" / "policies" / "park.safetensors").write_bytes(file().read_bytes())
    names = {"x": np.array([0.4, -1.2])}
    exec(code, names)
    assert names["u"][0] == pytest.approx(in_plain_python(hand_made(), 0, names["x"]), abs=2e-6)


# ---- the package itself ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_load_policy_does_not_import_jax():
    heavy = "{'jax', 'jaxlib', 'equinox', 'matplotlib', 'tyro'}"
    code = (
        f"import sys, sonde, sonde.control.deploy; sonde.load_policy; assert not {heavy} & set(sys.modules); "
        "from sonde import ICEM; import jax"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_type_checkers_see_the_names_in_the_modules_that_hold_them():
    tree = ast.parse(Path(sonde.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == sonde._HOMES and set(seen) == set(sonde.__all__)
    assert set(sonde.__all__) <= set(dir(sonde))
    for name, module in seen.items():
        assert getattr(sonde, name) is getattr(sys.modules[module], name)


@pytest.mark.slow
def test_functions_are_not_hidden_by_modules_of_the_same_name():
    code = (
        "import sonde.control._rollout, sonde.evaluation._evaluate, sonde.explorer, sonde; "
        "assert callable(sonde.rollout) and callable(sonde.evaluate) and callable(sonde.explore)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_names_are_rejected():
    with pytest.raises(AttributeError, match="'sonde' has no attribute 'magic'"):
        getattr(sonde, "magic")  # noqa: B009 (the attribute is not there on purpose)
    with pytest.raises(ImportError, match="magic"):
        exec("from sonde import magic")
