"""From a log file to a controller, by the commands: the log as it came, the model, the regulator, C, and the plant itself."""

import json

import numpy as np
import pytest

from command_line import call
from sonde.control import LinearFeedback, to_c
from test_export import actions_by, needs_compiler

PERIOD = 0.05


class Carriage:
    """A carriage on a hardening spring, whose sensor sees positions."""

    def __init__(self, position: float, seed: int):
        self.position, self.speed, self.sensor = position, 0.0, np.random.default_rng(seed)

    def measure(self) -> float:
        return self.position + self.sensor.normal(0.0, 0.0002)

    def drive(self, volts: float) -> None:
        for _ in range(10):
            force = volts / 12 - 4.0 * self.position - 20.0 * self.position**3 - 0.3 * self.speed
            self.speed += PERIOD / 10 * force
            self.position += PERIOD / 10 * self.speed


def log(samples: int, lost: int) -> str:
    """Semicolons, decimal commas, millimetres, positions only, and a sample that is missing."""
    plant, lines, volts, chosen = Carriage(0.0, 0), ["Zeit;Weg;Motor", "[ms];[mm];[V]"], 0.0, np.random.default_rng(1)
    for k in range(samples):
        volts = chosen.uniform(-24, 24) if k % 8 == 0 else volts
        if k != lost:
            lines.append(f"{50 * k};{1000 * plant.measure():.1f};{volts:.2f}".replace(".", ","))
        plant.drive(volts)
    return "\n".join(lines) + "\n"


def closed_loop(controller) -> np.ndarray:
    """Positions of the true plant from 20 cm; its speed is the difference of two measured positions."""
    plant, positions = Carriage(0.2, 3), []
    before = plant.measure()
    for _ in range(120):
        position = plant.measure()
        plant.drive(24 * float(controller(np.array([position, (position - before) / PERIOD]))[0]))
        before = position
        positions.append(position)
    return np.array(positions)


READ = ["--columns", "x=Weg", "v=d/dt(Weg)", "u=Motor -24..24", "--time-column", "Zeit [ms]", "--decimal-comma"]
QUICK = ["--model.kernel", "linear", "--rounds", "1", "--horizon", "5", "--model.steps", "30", "--model.rank", "0"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lost or late:UserWarning")
@needs_compiler
def test_log_becomes_a_controller_in_c_that_holds_the_plant(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(log(300, lost=97))
    assert call(monkeypatch, "data", "check", "log.csv", *READ) == 0
    assert "1 sample lost" in " ".join(capsys.readouterr().out.split())
    assert call(monkeypatch, "fit", "log.csv", *READ, *QUICK, "--out", "run") == 0
    judged = json.loads((tmp_path / "run" / "fit.json").read_text())
    errors = {name: np.array(each) for name, each in judged["errors"].items()}
    assert judged["states"] == ["x", "v"] and judged["fitted"] + judged["held_out"] == 297
    assert (errors["model"][1] < 0.5 * errors["no change"][1]).all(), "a simulation of a second"
    assert (
        call(monkeypatch, "analyse", "run", "--at", "0,0;0", "--lqr", "--weights", "50,5;1", "--save-gain", "k.safetensors")
        == 0
    )
    assert call(monkeypatch, "deploy", "k.safetensors", "--out", "carriage.h") == 0
    feedback = LinearFeedback.load("k.safetensors")
    assert (tmp_path / "carriage.h").read_text() == to_c(feedback, "carriage")
    states = np.random.default_rng(0).normal(0, 0.3, (100, 2))
    in_c = actions_by("c", feedback, states, 1, tmp_path)
    np.testing.assert_allclose(in_c, [feedback(x) for x in states], atol=1e-12)
    held, free = closed_loop(feedback), closed_loop(lambda x: np.zeros(1))
    assert np.abs(held[80:]).max() < 0.005 < 0.05 < np.abs(free[80:]).max()
