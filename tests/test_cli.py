"""The command line: what works, and that bad input gets a clear error, exit code 2, and touches nothing."""

import json
import subprocess
import sys

import pytest

from command_line import call
from sonde import METHODS
from sonde.runs._store import RunStore
from tiny import TINY, TINY_LENGTHS, TINY_OPTIONS, TINY_SOLVER


def everything(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, made by the command line."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    with pytest.MonkeyPatch.context() as patch:
        assert call(patch, "explore", "pendulum-gp-lite", *TINY_OPTIONS, "--out", str(folder), "--seeds", "2") == 0
    return folder


def test_explore_writes_a_whole_run(finished):
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 6
    assert (finished / "figures" / "curves.png").stat().st_size > 10_000
    assert (finished / "figures" / "states.png").stat().st_size > 10_000
    assert json.loads((finished / "config.json").read_text())["horizon"] == 12


@pytest.mark.parametrize("method", METHODS)
def test_every_method_explores_with_an_ensemble(method, monkeypatch, tmp_path):
    small = ["--model.members", "3", "--model.layers", "1", "--model.width", "8", "--model.epochs", "2"]
    options = [*TINY_LENGTHS, *small, *TINY_SOLVER, "--evaluate-every", "0", "--method", method]
    options += ["--task", "keep-down"] if method == "h-ucrl" else []
    assert call(monkeypatch, "explore", "pendulum-pe-lite", *options, "--out", str(tmp_path / "run")) == 0
    rows = RunStore.open(tmp_path / "run").load_metrics()
    assert [row["transitions"] for row in rows] == [12, 24, 36]
    assert (tmp_path / "run" / "figures" / "curves.png").stat().st_size > 10_000


def test_resume_of_a_finished_run_changes_no_result(finished, monkeypatch, capsys):
    before = (finished / "metrics.jsonl").read_bytes()
    assert call(monkeypatch, "resume", str(finished)) == 0
    assert (finished / "metrics.jsonl").read_bytes() == before


def test_evaluate_with_oracle(finished, monkeypatch, capsys):
    assert call(monkeypatch, "evaluate", str(finished), "--task", "keep-down", "--oracle") == 0
    printed = capsys.readouterr().out
    assert "keep-down after 36 transitions" in printed and "oracle" in printed and "score" in printed


def test_plot(finished, monkeypatch, tmp_path, capsys):
    assert call(monkeypatch, "plot", str(finished), "--out", str(tmp_path / "a.png")) == 0
    assert (tmp_path / "a.png").exists() and (tmp_path / "a-states.png").exists()
    assert call(monkeypatch, "plot", str(finished), str(finished), "--out", str(tmp_path / "b.svg")) == 0
    assert (tmp_path / "b.svg").exists()


def test_list_and_help(monkeypatch, capsys):
    assert call(monkeypatch, "list") == 0
    printed = capsys.readouterr().out
    for name in ("pendulum-gp-lite", "swing-up", "opax-sum", "h-ucrl", "gp"):
        assert name in printed
    assert call(monkeypatch, "--help") == 0
    assert call(monkeypatch, "explore", "--help") == 0
    assert call(monkeypatch, "explore", "pendulum-gp", "--help") == 0
    assert "--solver.samples" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["explore", "pendulum-xx"], "unknown preset 'pendulum-xx'"),
        (["explore", "--method", "opax"], "name a preset first"),
        (["exlpore"], "unknown command 'exlpore'"),
        (["explore", "pendulum-gp-lite", "--method", "magic"], "unknown method 'magic'"),
        (["explore", "pendulum-gp-lite", "--method", "h-ucrl"], "name it with --task"),
        (["explore", "pendulum-gp-lite", "--method", "h-ucrl", "--task", "fly"], "unknown task 'fly'"),
        (["explore", "pendulum-gp-lite", "--horizn", "3"], "--horizn"),
        (["explore", "pendulum-gp-lite", "--horizon", "-3"], "horizon must be above 0, got -3"),
        (["explore", "pendulum-gp-lite", "--solver.horizon", "0"], "horizon must be above 0, got 0"),
        (["explore", "pendulum-gp-lite", "--capacity", "10"], "capacity 10 is too small"),
        (["explore", "pendulum-gp-lite", "--model.noise-floor", "nan"], "noise_floor must be above 0"),
        (["explore", "pendulum-gp-lite", "--beta", "-1"], "beta must be 0 or above"),
        (["resume", "nowhere"], "nowhere is not the folder of a run"),
        (["evaluate", "nowhere", "--task", "swing-up"], "nowhere is not the folder of a run"),
        (["plot", "nowhere"], "nowhere is not the folder of a run"),
    ],
)
def test_bad_input_is_refused(args, message, monkeypatch, capsys, tmp_path):
    out = ["--out", str(tmp_path / "out")] if args[0] == "explore" else []
    code = call(monkeypatch, *args, *out)
    printed = "".join(capsys.readouterr()).replace("\n│ ", " ")
    assert code == 2, printed
    assert message in printed
    assert not (tmp_path / "out").exists()


def test_an_impossible_folder_is_refused(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert call(monkeypatch, "explore", "pendulum-gp-lite", "--out", str(tmp_path / "file" / "run")) == 2
    assert "sonde: error" in capsys.readouterr().err


def test_bad_input_about_a_run_touches_nothing(finished, monkeypatch, capsys):
    before = everything(finished)
    for args, message in [
        (["explore", "pendulum-gp-lite", "--out", str(finished)], "exists; choose another --out"),
        (["evaluate", str(finished), "--task", "fly"], "unknown task 'fly'; expected one of: keep-down, swing-up"),
        (["evaluate", str(finished), "--task", "swing-up", "--rollouts", "0"], "rollouts must be above 0, got 0"),
        (["resume", str(finished), "--from-round", "1"], "no checkpoint after episode 1; there are: 0, 2, 3"),
        (["plot", str(finished), "--out", "figure.doc"], "figure.doc"),
    ]:
        assert call(monkeypatch, *args) == 2
        assert message in "".join(capsys.readouterr())
    assert everything(finished) == before


def test_evaluating_an_empty_run_says_what_to_do(monkeypatch, capsys, tmp_path):
    RunStore.create(tmp_path / "new", TINY)
    assert call(monkeypatch, "evaluate", str(tmp_path / "new"), "--task", "swing-up") == 2
    assert "no finished episode yet" in capsys.readouterr().err


def test_import_is_light():
    """No device is touched, and nothing that only the command line or the figures need is loaded."""
    code = (
        "import sys, sonde; from jax._src import xla_bridge\n"
        "assert not xla_bridge.backends_are_initialized()\n"
        "heavy = {'matplotlib', 'gymnasium', 'tyro', 'rich', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_python_dash_m(tmp_path):
    done = subprocess.run([sys.executable, "-m", "sonde", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sonde 0.")
