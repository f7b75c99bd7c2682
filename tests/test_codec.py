"""Configs as JSON: what is written is read back, and everything else is rejected with a message that says what to do."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import user_parts
from sonde._internal.errors import SondeError
from sonde.evaluation import Metric
from sonde.imagination import Pessimistic
from sonde.methods import METHODS
from sonde.models import GaussianProcess
from sonde.runs import PRESETS, RunConfig
from sonde.runs._codec import FORMAT, class_reference, from_json, to_json
from sonde.runs._store import RunStore
from sonde.worlds import FetchConstruction, MountainCar, Pendulum, Swimmer
from tiny import TINY
from user_parts import LargestAction, MySolver

FILE = Path(user_parts.__file__)


def read(text: str) -> RunConfig:
    return from_json(RunConfig, text, "config.json")


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_read_back(name):
    assert read(to_json(PRESETS[name])) == PRESETS[name]


def test_every_object_names_its_class_and_has_all_fields():
    entries = json.loads(to_json(TINY))
    assert entries["format"] == FORMAT == 3
    assert entries["world"] == {
        "class": "sonde.worlds:Pendulum",
        "process_noise": 0.0,
        "gravity": 10.0,
        "mass": 1.0,
        "length": 1.0,
        "friction": 0.0,
        "max_torque": 2.0,
        "max_speed": 8.0,
        "time_step": 0.05,
    }
    assert entries["method"] == {
        "class": "sonde.methods:Method",
        "imagination": {"class": "sonde.imagination:Optimistic", "noise": False, "particles": 10, "beta": 2.0},
        "objective": {"class": "sonde.objectives:InformationGain"},
        "label": "",
    }
    assert entries["model"]["kernel"] == {"class": "sonde.models:RBF"}
    assert entries["confidence"]["beta_rule"] is None and entries["metrics"] == []


@pytest.mark.parametrize(
    "world",
    [
        Pendulum(mass=2.0, length=0.5, friction=0.1, gravity=9.81, max_torque=5.0, max_speed=12.0, time_step=0.02),
        MountainCar(power=0.002, gravity=0.003, friction=0.01, max_speed=0.1),
        Swimmer(target_box=2.0, mass_scale=1.5, damping_scale=0.5, torque_scale=2.0),
        FetchConstruction(blocks=2, gravity_scale=0.5, friction_scale=2.0),
    ],
    ids=lambda world: type(world).__name__,
)
def test_other_physics_are_read_back(world):
    config = replace(TINY, world=world, evaluation_tasks=(next(iter(world.tasks)),))
    assert read(to_json(config)) == config != replace(config, world=type(world)())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(horizon="many"), "config.json: horizon: expected int, got 'many'"),
        (lambda c: c.update(horizon=-1), "horizon must be above 0, got -1"),
        (lambda c: c.update(horizon=True), "horizon: expected int, got True"),
        (lambda c: c.update(colour="red"), r"unknown field\(s\) colour; expected .*capacity, confidence"),
        (lambda c: c.pop("rounds"), r"missing field\(s\) rounds"),
        (lambda c: c["model"].pop("gradient_limit"), r"config.json: model: missing field\(s\) gradient_limit"),
        (lambda c: c["method"]["imagination"].pop("beta"), r"method: imagination: missing field\(s\) beta"),
        (lambda c: c.update(method="magic"), "method: expected Method, got 'magic'"),
        (lambda c: c.update(model=3), "model: expected Model, got 3"),
        (lambda c: c["model"].update({"class": "sonde.models:Oracle"}), "sonde.models:Oracle is not a dataclass, or does not"),
        (lambda c: c["model"].update({"class": "sonde.oracles:Oracle"}), "sonde.oracles:Oracle cannot be imported"),
        (
            lambda c: c["model"].update({"class": "oracle"}),
            "expected a class such as 'sonde.models:GaussianProcess', got 'oracle'",
        ),
        (lambda c: c["model"].update({"class": []}), r"expected a class such as .*, got \[\]"),
        (lambda c: c["model"].pop("class"), "expected a class such as .*, got None"),
        (lambda c: c["model"].update({"class": "sonde.models:fit"}), "sonde.models:fit is not a dataclass"),
        (lambda c: c.update(model=c["solver"]), "model: expected Model, got sonde.solvers:ICEM"),
        (lambda c: c["model"].update(kernel="cubic"), "kernel: expected Kernel, got 'cubic'"),
        (lambda c: c["method"]["imagination"].update(beta=float("inf")), "beta must be 0 or above and finite"),
        (lambda c: c.update(first_seed=2**50), "first_seed must lie in"),
        (lambda c: c["solver"].update(samples=2.5), "samples: expected int, got 2.5"),
        (lambda c: c.update(capacity=3), "capacity 3 is too small: 3 rounds of 12 steps need 36"),
        (lambda c: c.update(exploration_task="fly"), "method 'opax' explores without any task"),
        (lambda c: c.update(format=1), "expected a config of format 3, got 1; it was made by another version of Sonde"),
        (lambda c: c.pop("format"), "expected a config of format 3, got None"),
        (lambda c: c["world"].update({"class": "/none/mine.py:World"}), "there is no file /none/mine.py"),
    ],
)
def test_edited_config_is_rejected(change, message):
    entries = json.loads(to_json(TINY))
    change(entries)
    with pytest.raises(SondeError, match=message):
        read(json.dumps(entries))


def test_whole_number_is_read_as_a_real_one():
    entries = json.loads(to_json(TINY))
    entries["method"]["imagination"]["beta"] = 2
    assert read(json.dumps(entries)) == TINY
    assert type(read(json.dumps(entries)).method.imagination.beta) is float


# Classes of a user's own


OWN = replace(
    TINY,
    solver=MySolver(samples=16, elites=4, iterations=2, horizon=5, window=(7, 0.25), note="a note"),
    metrics=(LargestAction(scale=2.0),),
)


def test_classes_of_ones_own_file_are_named_by_path_and_read_back():
    entries = json.loads(to_json(OWN))
    assert entries["solver"]["class"] == f"{FILE}:MySolver" and entries["solver"]["window"] == [7, 0.25]
    assert entries["metrics"] == [{"class": f"{FILE}:LargestAction", "scale": 2.0, "count": 1, "defined": True}]
    assert read(to_json(OWN)) == OWN
    assert type(read(to_json(OWN)).solver) is MySolver, "a file that is loaded already is not loaded again"


@pytest.mark.slow
def test_classes_of_ones_own_file_are_found_by_another_process(tmp_path):
    (tmp_path / "config.json").write_text(to_json(OWN))
    program = (
        "import sys; from sonde.runs import RunConfig; from sonde.runs._codec import from_json, to_json\n"
        "from sonde._internal.consent import allow_code\n"
        "text = open(sys.argv[1]).read()\n"
        "with allow_code():\n"
        "    config = from_json(RunConfig, text, 'here')\n"
        "assert to_json(config) == text\n"
        "print(type(config.solver).__name__, config.solver.note, config.schema.spec('largest_action').unit)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "config.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "MySolver a note share of the limit"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["solver"].update(window=[7]), "solver: window: expected 2 entries, got 1"),
        (lambda c: c["solver"].update(window=[7.5, 0.25]), "solver: window: expected int, got 7.5"),
        (lambda c: c["solver"].update(note=3), "solver: note: expected str or None, got 3"),
        (lambda c: c["solver"].update({"class": f"{FILE}:Missing"}), "Missing is not a dataclass, or does not exist"),
        (lambda c: c["solver"].update({"class": f"{FILE}:function"}), "function is not a dataclass"),
        (lambda c: c["metrics"].append(c["solver"]), "metrics: expected Metric, got .*MySolver"),
    ],
)
def test_edited_config_with_classes_of_ones_own_is_rejected(change, message):
    entries = json.loads(to_json(OWN))
    change(entries)
    with pytest.raises(SondeError, match=message):
        read(json.dumps(entries))


def test_installed_class_is_named_by_module():
    from gymnasium.envs.registration import EnvSpec

    assert class_reference(EnvSpec) == "gymnasium.envs.registration:EnvSpec"
    assert class_reference(GaussianProcess) == "sonde.models:GaussianProcess"


# What cannot be saved


@dataclass(frozen=True)
class Untyped(Metric):
    """A metric with a field whose type says too little to be read back."""

    values: tuple = (1, 2)

    spec = LargestAction.spec
    compute = LargestAction.compute


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            replace(TINY, method=METHODS["h-ucrl"].for_task(user_parts.function)),
            r"method\.objective\.reward is <function .*functions cannot be saved; write a frozen dataclass in its place, "
            r"or name the function as FILE\.py:NAME where a task or a prior is asked for",
        ),
        (
            replace(TINY, evaluation_imagination=Pessimistic(project=lambda x: x)),
            r"evaluation_imagination\.project is .*functions cannot be saved",
        ),
        (
            replace(TINY, metrics=(LargestAction(scale=[1.0]),)),
            r"metrics\[0\]\.scale is \[1\.0\], which cannot be saved; expected numbers, texts, tuples or frozen dataclasses",
        ),
        (replace(TINY, metrics=(Untyped(),)), r"config: metrics: values: expected tuple, got \[1, 2\]"),
    ],
)
def test_config_that_cannot_be_saved_is_rejected_before_a_folder_is_made(config, message, tmp_path):
    with pytest.raises(SondeError, match=message):
        RunStore.create(tmp_path / "run", config)
    assert not list(tmp_path.iterdir())


def test_class_that_cannot_be_found_again_is_rejected():
    @dataclass(frozen=True)
    class Local(LargestAction):
        """Defined in a function."""

    with pytest.raises(SondeError, match=r"Local cannot be found again .*define it at the top level of a file"):
        to_json(replace(TINY, metrics=(Local(),)))
    names: dict = {"__name__": "notebook", "LargestAction": LargestAction, "dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Typed(LargestAction):\n    pass\n", names)
    with pytest.raises(SondeError, match="Typed cannot be found again"):
        to_json(replace(TINY, metrics=(names["Typed"](),)))
