"""The distribution sonde-deploy: built, installed into an empty environment, and compared with Sonde."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors

import sonde
from sonde import SondeError, load_policy
from sonde._internal.past import Past
from sonde.control import GainSchedule, LinearFeedback
from sonde.control.deploy import DeployedPolicy

ROOT = Path(__file__).parent.parent
PROJECT = ROOT / "packaging" / "deploy"
ACT = """
import json, sys
import numpy as np
import sonde_deploy
policy, states = sonde_deploy.load_policy(sys.argv[1]), json.loads(sys.argv[2])
actions = [policy(np.array(x)).tolist() for x in states]
heavy = sorted({"jax", "jaxlib", "equinox", "scipy", "sonde"} & set(sys.modules))
print(json.dumps({"actions": actions, "heavy": heavy, "version": sonde_deploy.__version__}))
"""


def run(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=PROJECT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The interpreter of an environment that holds the wheel, numpy and safetensors."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:  # all that pip does with a wheel of plain Python
        archive.extractall(site)
    for package in (Path(np.__file__).parent, Path(safetensors.__file__).parent):
        for path in package.parent.glob(f"{package.name}*"):
            (site / path.name).symlink_to(path)
    return folder / "bin" / "python"


def controllers(folder: Path) -> dict[str, Path]:
    """A file of each kind, for two states and one action."""
    rng = np.random.default_rng(0)
    shapes = [((5, 4), 4), ((4, 2), 2)]
    layers = [(rng.normal(size=shape).astype(np.float32), rng.normal(size=width).astype(np.float32)) for shape, width in shapes]
    past = Past(history=2)
    files = {name: folder / f"{name}.safetensors" for name in ("policy", "gains", "schedule")}
    files["policy"].write_bytes(DeployedPolicy(rng.normal(size=5), np.ones(5), layers, 1, past).to_bytes())
    LinearFeedback(rng.normal(size=(1, 2)), np.zeros(2), np.zeros(1)).save(files["gains"])
    tables = rng.normal(size=(3, 1, 2)), np.zeros((3, 2)), np.zeros((3, 1))
    GainSchedule((np.array([-1.0, 0.0, 2.0]),), *tables, scheduled=(1,), outside="hold").save(files["schedule"])
    return files


@pytest.mark.slow
@pytest.mark.parametrize("name", ["policy", "gains", "schedule"])
def test_an_environment_without_jax_acts_the_same(name, python, tmp_path):
    path, states = controllers(tmp_path)[name], np.random.default_rng(1).normal(size=(20, 2)).tolist()
    found = json.loads(run(python, "-c", ACT, path, json.dumps(states)))
    controller = load_policy(path)
    np.testing.assert_array_equal(found["actions"], [controller(np.array(x)) for x in states])
    assert found["heavy"] == [] and found["version"] == sonde.__version__


@pytest.mark.slow
def test_the_environment_has_no_jax_to_import(python):
    assert subprocess.run([python, "-c", "import jax"], capture_output=True, check=False).returncode == 1


@pytest.mark.slow
def test_the_wheel_says_what_it_needs_and_does_not_clash_with_sonde(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("METADATA")]
    needed = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert sorted(needed) == ["numpy>=2.0", "safetensors>=0.5"]
    assert {name.split("/")[0] for name in names} == {"sonde_deploy", f"sonde_deploy-{sonde.__version__}.dist-info"}
    assert wheel.stat().st_size < 50_000


def test_modules_that_need_more_of_sonde_are_noticed(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT))
    import hatch_build

    with pytest.raises(ValueError, match=r"sonde\.data is not a part of sonde-deploy"):
        hatch_build.renamed("from sonde.data import Data\n")
    assert (
        hatch_build.renamed("from sonde._internal.errors import SondeError\n")
        == "from sonde_deploy._errors import SondeError\n"
    )


def test_a_policy_is_read_as_it_was_saved(tmp_path):
    path = controllers(tmp_path)["policy"]
    (tmp_path / "again.safetensors").write_bytes(load_policy(path).to_bytes())
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    with pytest.raises(SondeError, match="seed_index must be 0 to 0, got 1"):
        load_policy(path, 1)
