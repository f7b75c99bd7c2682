"""Types for users: a type checker finds them in the installed wheel, and reports wrong arguments in a user's script."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

RIGHT = """
from pathlib import Path
from typing import reveal_type

import sonde
from sonde.models import RBF
from sonde.worlds import Pendulum

world = Pendulum()
model = sonde.GaussianProcess(kernel=RBF())
explorer = sonde.Explorer(sonde.METHODS["opax"], model, sonde.ICEM(samples=20, elites=4), world.spec, capacity=200)
for _ in range(2):
    controller = explorer.ask()
    trajectory = sonde.rollout(world, controller, 100)
    explorer.tell(trajectory)
reveal_type(explorer)
reveal_type(controller)
reveal_type(trajectory)
reveal_type(explorer.transitions)
reveal_type(sonde.preset("pendulum-gp").solver)
reveal_type(sonde.explore(sonde.RunConfig(world=world), Path("run")))
reveal_type(sonde.load_policy("policy.safetensors"))
"""
REVEALED = (
    "Explorer",
    "Controller",
    "Trajectory",
    "int",
    "Solver",
    "Explorer",
    "DeployedPolicy | LinearFeedback | GainSchedule",
)

WRONG = {
    "explorer.py": "import sonde as s\ns.Explorer(s.METHODS['opax'], s.GaussianProcess(), s.ICEM(), 3, capacity=9)\n",
    "solver.py": "import sonde\nsonde.ICEM(samples='many')\n",
    "config.py": "import sonde\nsonde.RunConfig(method='opax')\n",
    "unknown.py": "import sonde\nsonde.RunConfig(episodes=10)\n",
    "attribute.py": "import sonde\nsonde.preset('pendulum-gp').beta\n",
}
EXPECTED = {
    "explorer.py": "Expected `SystemSpec`",
    "solver.py": "Expected `int`",
    "config.py": "Expected `Method`",
    "unknown.py": "`episodes` does not match any known parameter",
    "attribute.py": "no attribute `beta`",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(command, check=True)
    (built,) = folder.glob("sonde-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel installed; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    venv.create(folder, with_pip=False)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site_packages, wheel]
    subprocess.run(command, check=True)
    (site_packages / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return folder


def check(environment: Path, folder: Path) -> subprocess.CompletedProcess:
    """Run the type checker on a folder outside the checkout."""
    command = [sys.executable, "-m", "ty", "check", "--python", environment, "--output-format", "concise", folder]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=settings)


@pytest.mark.slow
def test_wheel_holds_the_package_and_its_types_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "sonde/py.typed" in names and "sonde/__init__.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"sonde"}
    assert not [name for name in names if name.startswith(("sonde/bench", "sonde/reproduce", "sonde/experiments"))]


@pytest.mark.slow
def test_type_checker_finds_the_types_of_the_installed_wheel(environment, tmp_path):
    (tmp_path / "script.py").write_text(RIGHT)
    done = check(environment, tmp_path)
    revealed = [line.rpartition("Revealed type: ")[2].strip("`") for line in done.stdout.splitlines() if "Revealed" in line]
    assert done.returncode == 0, done.stdout
    assert tuple(revealed) == REVEALED


def test_type_checker_reports_wrong_arguments(environment, tmp_path):
    for name, text in WRONG.items():
        (tmp_path / name).write_text(text)
    done = check(environment, tmp_path)
    assert done.returncode == 1, done.stdout
    errors = {name: [line for line in done.stdout.splitlines() if line.startswith(name)] for name in WRONG}
    assert all(len(lines) == 1 and EXPECTED[name] in lines[0] for name, lines in errors.items()), done.stdout
