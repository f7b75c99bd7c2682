"""Callbacks follow a run in a fixed order, and an exception in one of them loses nothing that was finished."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde.methods import METHODS
from sonde.runs import Callback, Experiment, explore
from sonde.runs._callbacks import PHASES, Callbacks
from sonde.runs._store import RunStore
from test_own_system import CONFIG as OWN
from test_own_system import measured
from test_runs import contents, without_times
from tiny import TINY
from user_parts import LargestAction

CONFIG = TINY


class Recorder(Callback):
    """Writes down all calls."""

    def __init__(self, calls: list | None = None, name: str = ""):
        self.calls, self.name = [] if calls is None else calls, name

    def on_run_start(self, config, rows):
        self.calls.append((f"{self.name}start", len(rows)))
        self.config = config

    def on_phase(self, round_number, phase, detail):
        self.calls.append((f"{self.name}{phase}", round_number))

    def on_round_end(self, round_number, rows):
        self.calls.append((f"{self.name}round", round_number))
        self.rows = rows

    def on_run_end(self):
        self.calls.append((f"{self.name}end", None))


class Failing(Recorder):
    """Raises at one call."""

    def __init__(self, moment: tuple):
        super().__init__()
        self.moment = moment

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if not name.startswith("on_"):
            return found

        def call(*args):
            found(*args)
            if self.calls[-1] == self.moment:
                raise RuntimeError("a tracker without network")

        return call


@pytest.mark.slow
def test_callbacks_are_called_in_the_order_of_the_run(tmp_path):
    first = Recorder()
    second = Recorder(first.calls, "2 ")
    explore(CONFIG, tmp_path / "run", [first, second])
    rounds = [("plan", "fit", "evaluate", "evaluate")] * 3
    mine = [("start", 0)]
    for number, phases in enumerate(rounds, start=1):
        mine += [(phase, number) for phase in phases] + [("round", number)]
    mine += [("end", None)]
    assert first.calls[::2] == mine and first.calls[1::2] == [(f"2 {what}", number) for what, number in mine]
    assert {what for what, _ in mine[1:-1]} == {*PHASES, "round"}
    assert first.config == CONFIG
    assert first.rows == RunStore.open(tmp_path / "run").load_metrics()[-1:]


@pytest.mark.slow
def test_resumed_run_shows_callbacks_what_is_finished(tmp_path):
    explore(replace(CONFIG, seeds=2), tmp_path / "run")
    recorder = Recorder()
    explore(replace(CONFIG, seeds=2), tmp_path / "run", [recorder])
    assert recorder.calls == [("start", 6), ("end", None)]


@pytest.mark.slow
def test_experiment_takes_the_same_callbacks(tmp_path):
    recorder = Recorder()
    with Experiment(tmp_path / "run", OWN, [recorder]) as experiment:
        assert recorder.calls == [("start", 0)]
        experiment.tell(measured(1))
        assert recorder.calls[1:] == [("fit", 1), ("evaluate", 1), ("evaluate", 1), ("round", 1)]
        assert recorder.rows[0]["transitions"] == 5
    assert recorder.calls[-1] == ("end", None)
    with Experiment(tmp_path / "run", OWN, [recorder]):
        assert recorder.calls[-1] == ("start", 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("callbacks") / "whole"
    explore(CONFIG, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("moment", [("start", 0), ("plan", 2), ("evaluate", 2), ("round", 1), ("round", 2), ("end", None)])
def test_exception_in_a_callback_stops_the_run_and_loses_no_finished_round(whole, tmp_path, moment):
    other, failing, third = Recorder(), Failing(moment), Recorder()
    with pytest.raises(RuntimeError, match="a tracker without network"):
        explore(CONFIG, tmp_path / "run", [other, failing, third])
    assert [recorder.calls.count(("end", None)) for recorder in (other, failing, third)] == [1, 1, 1]
    what, number = moment
    finished = {"start": 0, "end": 3, "round": number}.get(what, 1)
    if finished == 0:
        assert list(tmp_path.iterdir()) == [], "a run without a finished round leaves no folder"
    else:
        assert max(RunStore.open(tmp_path / "run").checkpoints()) == finished
    recorder = Recorder()
    explore(CONFIG, tmp_path / "run", [recorder])
    assert recorder.calls[0] == ("start", finished)
    assert contents(tmp_path / "run") == contents(whole)
    rows = [RunStore.open(folder).load_metrics() for folder in (whole, tmp_path / "run")]
    assert without_times(rows[0]) == without_times(rows[1])


def test_exception_in_a_callback_of_an_experiment_loses_no_measurement(tmp_path):
    failing = Failing(("round", 1))
    with (
        pytest.raises(RuntimeError, match="a tracker without network"),
        Experiment(tmp_path / "run", OWN, [failing]) as experiment,
    ):
        experiment.tell(measured(1))
    assert failing.calls[-1] == ("end", None)
    with Experiment(tmp_path / "run", OWN) as experiment:
        assert experiment.round == 1 and experiment.explorer.transitions == 5


def test_every_callback_is_told_of_the_end_even_if_another_one_fails():
    recorders = [Recorder(), Failing(("end", None)), Recorder()]
    with pytest.raises(RuntimeError):
        Callbacks(recorders).on_run_end()
    assert [recorder.calls for recorder in recorders] == [[("end", None)]] * 3


# Metrics of one's own


RANDOM = replace(CONFIG, method=METHODS["random"], evaluate_every=0, seeds=2)


def test_metric_of_ones_own_is_written_for_each_seed(tmp_path):
    explore(replace(RANDOM, metrics=(LargestAction(scale=2.0),)), tmp_path / "run")
    store = RunStore.open(tmp_path / "run")
    for number, trajectory in enumerate(store.load_data(3), start=1):
        rows = [row for row in store.load_metrics() if row["round"] == number]
        expected = 2 * np.abs(trajectory.actions).max(axis=(1, 2))
        np.testing.assert_array_equal([row["largest_action"] for row in rows], expected)


def test_metric_of_the_wrong_shape_stops_the_run_before_its_round_is_finished(tmp_path):
    config = replace(RANDOM, metrics=(LargestAction(count=3),))
    with pytest.raises(SondeError, match=r"metric 'largest_action' must give one number per seed, shape \[2\], got \[6\]"):
        explore(config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_metric_with_a_key_that_is_taken_is_rejected_by_the_config():
    with pytest.raises(SondeError, match="metrics need different keys, got largest_action more than once"):
        replace(RANDOM, metrics=(LargestAction(), LargestAction(scale=3.0)))


@pytest.mark.slow
def test_rows_are_json_without_nan(tmp_path):
    explore(replace(RANDOM, metrics=(LargestAction(defined=False),)), tmp_path / "run")
    line = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0]
    assert json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["largest_action"] is None
