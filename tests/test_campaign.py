"""The campaign against Sonde: every part finds nothing in small numbers, and notices faults that are planted."""

import contextlib
import json
import shutil
from pathlib import Path
from random import Random

import pytest
from matplotlib.figure import Figure

from experiments.campaign import __main__, data_files, environments, mutations, options, tell
from experiments.campaign.harness import Campaign, Outcome, Worker, read_journal, run_case
from experiments.campaign.parts import PARTS
from experiments.campaign.sandbox import Answer
from sonde.data import Trajectory
from sonde.runs import _folder, _measurements, _run
from sonde.runs._metrics_file import saved_lines
from sonde.runs._store import RunStore

IN_PROCESS = {"mutations": mutations, "options": options, "tell": tell, "data": data_files}
SMALL = {"mutations": 3, "options": 60, "tell": 8, "data": 100}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("campaign")
        patch.setattr(Figure, "savefig", Figure.savefig)  # and back at the end
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "datasets"))
        yield folder


@pytest.fixture(scope="module")
def prepared(home):
    """What the parts have prepared, each when it is first needed."""
    found = {}

    def prepare(name: str):
        if name not in found:
            folder = home / name / "prepared"
            folder.mkdir(parents=True)
            found[name] = mutations.prepare(folder, False) if name == "mutations" else IN_PROCESS[name].prepare(folder)
        return found[name]

    return prepare


def faults(name: str, prepared, home: Path, numbers) -> list[tuple[str, str]]:
    every = [run_case(name, IN_PROCESS[name].case, prepared(name), 1, number, home / name) for number in numbers]
    return [fault for outcome in every for fault in outcome.faults]


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PROCESS)
def test_nothing_is_lost_in_small_numbers(name, prepared, home):
    assert not faults(name, prepared, home, range(SMALL[name]))


@pytest.mark.slow
def test_kills_and_a_long_run_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("CAMPAIGN_ROUNDS", "12")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")  # then other tests have compiled the same programs
    campaign = Campaign(tmp_path, jobs=1)
    for name, cases in (("kills", 1), ("soak", 1)):
        campaign.run(name, cases)
        lines = read_journal(campaign.journal(name)).values()
        assert len(lines) == cases and not [line["faults"] for line in lines if line["faults"]]
    before = campaign.journal("soak").read_bytes()
    campaign.run("soak", 1)
    assert campaign.journal("soak").read_bytes() == before, "cases that are in the journal are not repeated"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pipes of processes that died
def test_faulty_environments_are_survived(home):
    folder = home / "environments" / "prepared"
    folder.mkdir(parents=True)
    found = environments.prepare(folder)
    for number in range(4):
        assert not run_case("environments", environments.case, found, 1, number, folder.parent).faults


# Planted faults


@pytest.mark.slow
def test_a_changed_number_that_is_not_noticed_is_found(prepared, home, monkeypatch):
    prepared("mutations")

    def change(damaged: Path, *_) -> str:
        path = damaged / "metrics.jsonl"
        path.write_text(path.read_text().replace('"max_epistemic": ', '"max_epistemic": 1', 1))
        return "another number"

    monkeypatch.setattr(mutations, "_damage", change)
    assert not faults("mutations", prepared, home, range(1))
    monkeypatch.setattr(_folder, "read_lines", lambda folder, rounds: saved_lines(folder))
    assert {kind for kind, _ in faults("mutations", prepared, home, range(1))} == {"wrong"}


@pytest.mark.slow
def test_a_file_that_is_lost_or_changed_outside_is_found(prepared, home, monkeypatch):
    prepared("mutations")
    real = mutations.call

    def careless(command: str, run: str, *rest: str) -> Answer:
        shutil.rmtree(Path(run) / "figures", ignore_errors=True)
        (Path(run).parent.parent / "sentinel" / "thesis.txt").write_text("gone")
        return real(command, run, *rest)

    monkeypatch.setattr(mutations, "call", careless)
    assert {"lost", "outside"} <= {kind for kind, _ in faults("mutations", prepared, home, range(2))}


@pytest.mark.slow
def test_a_round_that_is_told_twice_is_found(prepared, home, monkeypatch):
    prepared("tell")
    monkeypatch.setattr(_run, "_finished_or_undone", lambda *_: contextlib.nullcontext())
    assert faults("tell", prepared, home, range(8))


@pytest.mark.slow
def test_a_traceback_is_found(prepared, home, monkeypatch):
    prepared("options")

    def crash(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(RunStore, "open", crash)
    assert {kind for kind, _ in faults("options", prepared, home, range(20))} == {"traceback"}


@pytest.mark.slow
def test_a_number_that_is_read_wrongly_is_found(prepared, home, monkeypatch):
    prepared("data")
    real = _measurements.checked

    def rounded(*args) -> Trajectory:
        found = real(*args)
        return Trajectory(found.states.round(9), found.actions, found.next_states)

    monkeypatch.setattr(_measurements, "checked", rounded)
    assert {kind for kind, _ in faults("data", prepared, home, range(20))} == {"wrong"}


@pytest.mark.slow
def test_a_worker_that_dies_or_takes_too_long_is_a_fault(monkeypatch):
    worker = Worker("tell", 0)
    worker.start()
    worker.process.kill()
    ((kind, text),) = worker.run(0).faults
    assert kind == "traceback" and "died with exit code -9" in text
    monkeypatch.setitem(PARTS, "tell", PARTS["tell"]._replace(limit=0.0))
    ((kind, text),) = worker.run(0).faults
    assert kind == "traceback" and "took more than" in text and worker.process is None


def test_cases_depend_on_seed_and_number_only():
    one, other = (options.command_line(Random("0 options 7")) for _ in range(2))
    assert one == other and one


def test_report_counts_faults_and_says_how_to_repeat_them(tmp_path, capsys):
    campaign = Campaign(tmp_path, seed=3)
    bad = Outcome()
    bad.count("faults")
    bad.fault("lost", "a thesis")
    campaign.journal("tell").write_text(json.dumps(bad.to_json(5)) + "\n" + json.dumps(Outcome().to_json(6)) + "\n{half")
    assert __main__.report(campaign, ("tell",)) == 1
    said = capsys.readouterr().out
    assert "tell --seed 3 --case 5: lost: a thesis" in said
