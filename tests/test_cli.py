"""The command line: its commands work, and bad input gives a clear error, exit code 2, and changes no file."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sonde
from command_line import call
from sonde import METHODS
from sonde.cli import _main
from sonde.cli._choices import PARTS, parts_help
from sonde.cli._list import table_lines
from sonde.cli._listing import text
from sonde.cli._names import NAMES, known_names
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


@pytest.mark.slow
def test_explore_writes_a_whole_run(finished):
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 6
    assert (finished / "figures" / "curves.png").stat().st_size > 10_000
    assert (finished / "figures" / "states.png").stat().st_size > 10_000
    assert json.loads((finished / "config.json").read_text())["horizon"] == 12
    store = RunStore.open(finished)
    described = [store.config.schema.spec(key).meaning for row in store.load_metrics() for key in row]
    assert all(described), "every metric is in the schema"


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_explores_with_an_ensemble(method, monkeypatch, tmp_path):
    small = ["--model.members", "3", "--model.layers", "1", "--model.width", "8", "--model.epochs", "2"]
    options = [*TINY_LENGTHS, *small, *TINY_SOLVER, "--evaluate-every", "0", "--method", method]
    options += ["--exploration-task", "keep-down"] if METHODS[method].needs_task else []
    assert call(monkeypatch, "explore", "pendulum-pe-lite", *options, "--out", str(tmp_path / "run")) == 0
    rows = RunStore.open(tmp_path / "run").load_metrics()
    assert [row["transitions"] for row in rows] == [12, 24, 36]
    measured = ("model_rmse", "model_nll", "max_epistemic", "mean_epistemic")
    assert all(np.isfinite(row[name]) for row in rows for name in measured)
    assert (tmp_path / "run" / "figures" / "curves.png").stat().st_size > 10_000


@pytest.mark.slow
def test_resume_of_a_finished_run_changes_no_result(finished, monkeypatch, capsys):
    before = (finished / "metrics.jsonl").read_bytes()
    assert call(monkeypatch, "resume", str(finished)) == 0
    assert (finished / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_evaluate_compares_with_the_oracle(finished, monkeypatch, capsys):
    assert call(monkeypatch, "evaluate", str(finished), "--task", "keep-down", "--oracle") == 0
    printed = capsys.readouterr().out
    assert "keep-down after 36 transitions" in printed and "oracle" in printed and "score" in printed


@pytest.mark.slow
def test_plot_writes_figures(finished, monkeypatch, tmp_path, capsys):
    assert call(monkeypatch, "plot", str(finished), "--out", str(tmp_path / "a.png")) == 0
    assert (tmp_path / "a.png").exists() and (tmp_path / "a-states.png").exists()
    assert call(monkeypatch, "plot", str(finished), str(finished), "--out", str(tmp_path / "b.svg")) == 0
    assert (tmp_path / "b.svg").exists()


def test_list_and_help_show_names_and_options(monkeypatch, capsys):
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
        (["explore", "pendulum-gp-lite", "--method", "h-ucrl"], "name it with --exploration-task"),
        (["explore", "pendulum-gp-lite", "--method", "h-ucrl", "--exploration-task", "fly"], "unknown task 'fly'"),
        (["explore", "pendulum-gp-lite", "--horizn", "3"], "--horizn"),
        (["explore", "pendulum-gp-lite", "--horizon", "-3"], "horizon must be above 0, got -3"),
        (["explore", "pendulum-gp-lite", "--solver.horizon", "0"], "horizon must be above 0, got 0"),
        (["explore", "pendulum-gp-lite", "--capacity", "10"], "capacity 10 is too small"),
        (["explore", "pendulum-gp-lite", "--model.noise-floor", "nan"], "noise_floor must be above 0"),
        (["explore", "pendulum-gp-lite", "--method.imagination.beta", "-1"], "beta must be 0 or above"),
        (["explore", "pendulum-gp-lite", "--model.kernel", "cubic"], "unknown model.kernel 'cubic'"),
        (["explore", "pendulum-pe-lite", "--model.kernel", "rbf"], "ProbabilisticEnsemble has no kernel"),
        (["explore", "pendulum-gp-lite", "--solver", f"{__file__}:finished"], "must be a Solver or a class of one"),
        (["resume", "nowhere"], "nowhere is not the folder of a run"),
        (["evaluate", "nowhere", "--task", "swing-up"], "nowhere is not the folder of a run"),
        (["plot", "nowhere"], "nowhere is not the folder of a run"),
    ],
)
def test_bad_input_is_rejected(args, message, monkeypatch, capsys, tmp_path):
    out = ["--out", str(tmp_path / "out")] if args[0] == "explore" else []
    code = call(monkeypatch, *args, *out)
    printed = "".join(capsys.readouterr()).replace("\n│ ", " ")
    assert code == 2, printed
    assert message in printed
    assert not (tmp_path / "out").exists()


def test_folder_that_cannot_be_made_is_rejected(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert call(monkeypatch, "explore", "pendulum-gp-lite", "--out", str(tmp_path / "file" / "run")) == 2
    assert "sonde: error" in capsys.readouterr().err


def test_bad_input_about_a_run_changes_no_file(finished, monkeypatch, capsys):
    before = everything(finished)
    for args, message in [
        (["explore", "pendulum-gp-lite", "--out", str(finished)], "exists; choose another --out"),
        (["evaluate", str(finished), "--task", "fly"], "unknown task 'fly'; expected one of: keep-down, swing-up"),
        (["evaluate", str(finished), "--task", "swing-up", "--rollouts", "0"], "rollouts must be above 0, got 0"),
        (["resume", str(finished), "--from-round", "1"], "no checkpoint after round 1; there are: 0, 2, 3"),
        (["plot", str(finished), "--out", "figure.doc"], "figure.doc"),
    ]:
        assert call(monkeypatch, *args) == 2
        assert message in "".join(capsys.readouterr())
    assert everything(finished) == before


def test_evaluate_of_a_run_without_rounds_says_what_to_do(monkeypatch, capsys, tmp_path):
    RunStore.create(tmp_path / "new", TINY)
    assert call(monkeypatch, "evaluate", str(tmp_path / "new"), "--task", "swing-up") == 2
    assert "no finished round yet" in capsys.readouterr().err


@pytest.mark.slow
def test_import_is_light():
    """`import sonde` touches no device and loads nothing that only the command line or the figures need."""
    code = (
        "import sys, sonde; from jax._src import xla_bridge\n"
        "assert not xla_bridge.backends_are_initialized()\n"
        "heavy = {'matplotlib', 'gymnasium', 'tyro', 'rich', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "words",
    [
        *("--help", "--version", "list", "list presets", "list --help", "resume --help", "plot --help", "report --help"),
        *("export --help", "demo --help", "completion bash", "completion --help", "completion --answer zsh explore pend"),
        "completion --answer fish evaluate runs --task ",
    ],
)
def test_what_computes_nothing_does_not_wait_for_jax(words):
    code = (
        "import sys; from sonde.cli import _main\n"
        f"sys.argv = ['sonde', *{words.split()!r}]\n"
        "try:\n    _main.main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "heavy = {'jax', 'jaxlib', 'equinox', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_the_file_of_names_is_up_to_date():
    written = NAMES.read_text(encoding="utf-8")
    assert written == text(), "names or options have changed: run 'python -m sonde.cli._listing' and commit names.json"


@pytest.mark.parametrize("what", known_names()["tables"])
def test_list_prints_one_table(what, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert call(monkeypatch, "list", what) == 0
    alone = capsys.readouterr().out
    assert call(monkeypatch, "list") == 0
    assert alone in capsys.readouterr().out
    assert all(line == line.rstrip() and len(line) <= 80 for line in alone.splitlines())
    unwrapped = " ".join(alone.split())
    for row in known_names()["tables"][what]["rows"]:
        assert " ".join(row[-1].split()) in unwrapped, "the text of a row is there in its order, however it is wrapped"
        assert any(line.startswith(f"  {row[0]}") for line in alone.splitlines())


def test_list_prints_a_line_for_each_name_where_lines_may_be_long(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert call(monkeypatch, "list", "imaginations") == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 + 5 and max(map(len, printed)) > 100


def test_tables_are_aligned_and_wrap_in_the_last_column():
    rows = [["name", "rounds", "what"], ["a", "7", "one two three four five"], ["bcd", "10", "six"]]
    assert list(table_lines({"title": "things", "rows": rows}, 36)) == [
        "things",
        "  name  rounds  what",
        "  a          7  one two three four",
        "                five",
        "  bcd       10  six",
    ]


def test_python_dash_m_prints_the_version():
    done = subprocess.run([sys.executable, "-m", "sonde", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sonde 0.")


def test_every_public_name_resolves():
    names = {}
    exec("from sonde import *", names)
    assert set(sonde.__all__) <= names.keys() and set(sonde.__all__) <= set(dir(sonde))
    with pytest.raises(AttributeError, match="no attribute 'Expplorer'"):
        _ = sonde.Expplorer


def test_help_of_parts_names_all_and_fits_the_terminal():
    text = parts_help(120)
    assert all(len(line) <= 120 for line in text.splitlines())
    for option, part in PARTS.items():
        assert f"--{option} NAME " in text and all(name in text for name in part.table)


def test_warnings_of_ours_are_sentences_and_others_as_python_shows_them():
    ours = Path(_main.__file__).parent.parent / "runs" / "_run.py"
    assert _main._as_sentence("rank is small", UserWarning, str(ours), 1) == "sonde: warning: rank is small\n"
    for category, where in ((UserWarning, "/elsewhere.py"), (DeprecationWarning, str(ours))):
        assert f"{where}:1: {category.__name__}: old" in _main._as_sentence("old", category, where, 1)
