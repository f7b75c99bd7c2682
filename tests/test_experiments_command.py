"""`python -m experiments`, as it is called: what it writes, what it prints, and what it rejects."""

import json
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from experiments import __main__ as program
from experiments import grid
from experiments.command import Reproduction
from experiments.grid import Grid
from experiments.paper import SCALES, TRAINED_ON, Scale, run_config
from sonde.models import ProbabilisticEnsemble
from sonde.runs._codec import to_json
from sonde.runs.sweep import LocalBackend, Results, SweepProgress
from tiny import TINY


def call(monkeypatch, *args: str) -> int:
    """Run `python -m experiments ARGS`; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["experiments", *args])
    monkeypatch.setattr(program, "cache_compilations", lambda: None)
    try:
        program.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def tiny_config(setting, method, rounds, seeds, *, lite=False):
    return replace(TINY.with_method(method), horizon=6, evaluation_tasks=("swing-up",), rounds=rounds, seeds=seeds)


@pytest.fixture
def tiny_runs(monkeypatch):
    monkeypatch.setattr(grid, "run_config", tiny_config)
    monkeypatch.setitem(SCALES, "small", Scale(2, dict.fromkeys(TRAINED_ON, 2)))


PROVENANCE = {"machines": [{"device": "abacus", "processor": "beads"}], "batches": {}}


def recorded(seeds: int = 6, rounds: int = 3) -> Results:
    """Results of which no run is left: OpAx's uncertainty falls, that of random actions does not."""
    rng = np.random.default_rng(0)
    return Results(
        {
            "setting": "pendulum-gp",
            "method": method,
            "seed": seed,
            "round": round_number,
            "max_epistemic": float(level / round_number**power * np.exp(0.05 * rng.normal())),
        }
        for method, level, power in (("opax", 1.0, 3.0), ("random", 1.2, 0.1))
        for seed in range(seeds)
        for round_number in range(1, rounds + 1)
    )


@pytest.mark.slow
def test_missing_runs_are_run_then_figures_drawn_and_claims_answered(tiny_runs, monkeypatch, tmp_path, capsys):
    subset = ("uncertainty", "--settings", "lite", "--out", str(tmp_path), "--only", "pendulum-gp", "--methods", "random")
    assert call(monkeypatch, *subset) == 0
    said = capsys.readouterr().out
    assert "1 batch, 0 finished" in said and "pendulum-gp random seeds 0-1: round 2 of 2" in said
    folder = tmp_path / "uncertainty-lite"
    assert {path.name for path in folder.iterdir()} == {
        "curves.csv",
        "claims.json",
        "claims.md",
        "provenance.json",
        "uncertainty.png",
        "uncertainty-iqm.png",
    }
    table = (folder / "curves.csv").read_bytes()
    rows = Results.load(folder / "curves.csv").rows
    assert sorted((row["method"], row["seed"], row["round"]) for row in rows if row["round"]) == [
        ("random", seed, round_number) for seed in (0, 1) for round_number in (1, 2)
    ]
    assert [claim["verdict"] for claim in json.loads((folder / "claims.json").read_text())] == ["undecided"] * 3
    made = json.loads((folder / "provenance.json").read_text())
    assert (
        made["settings"] == "lite"
        and made["machines"]
        and made["batches"]["pendulum-gp random 2-rounds-no-tasks-seeds-0-1"]["rounds"] == 2
    )
    # again: nothing is left to do, and the numbers stay
    monkeypatch.setattr(LocalBackend, "run", lambda self, missing, *_: dict.fromkeys(missing, "begun again"))
    assert call(monkeypatch, *subset) == 0
    assert "1 batch, 1 finished" in capsys.readouterr().out
    assert (folder / "curves.csv").read_bytes() == table


@pytest.mark.slow
def test_recorded_results_without_runs_give_figures_and_claims_and_stay(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
    before = (folder / "curves.csv").read_bytes()
    again = ("uncertainty", "--no-run", "--settings", "paper", "--scale", "medium", "--out", str(tmp_path))
    assert call(monkeypatch, *again) == 0
    assert (folder / "curves.csv").read_bytes() == before
    assert json.loads((folder / "provenance.json").read_text())["machines"] == PROVENANCE["machines"]
    fading = next(claim for claim in json.loads((folder / "claims.json").read_text()) if claim["id"] == "C3")
    assert fading["evidence"][0]["estimate"] == pytest.approx(-3, abs=0.1)
    assert "C3 holds" in capsys.readouterr().out  # in three rounds it falls to 1/27


@pytest.mark.slow
def test_subset_loses_nothing_that_was_recorded(monkeypatch, tmp_path):
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    before = (folder / "curves.csv").read_bytes()
    again = ("uncertainty", "--no-run", "--settings", "paper", "--out", str(tmp_path))
    for subset in (("--methods", "random"), ("--only", "pendulum-pe"), ("--seeds", "1")):
        assert call(monkeypatch, *again, *subset) == 0
        assert (folder / "curves.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("provenance.json", "[1]", "does not say where results come from"),
        ("provenance.json", '{"machines": [{}], "batches": {}}', "does not say where results come from"),
        ("curves.csv", "", "its first line must name setting, method, seed, round"),
        ("curves.csv", "setting,method,seed,round\nx,y,one,2\n", "is not a table of results"),
    ],
)
def test_broken_files_are_rejected_and_kept(name, content, message, monkeypatch, tmp_path, capsys):
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    (folder / name).write_text(content)
    assert call(monkeypatch, "uncertainty", "--no-run", "--settings", "paper", "--out", str(tmp_path)) == 2
    assert message in capsys.readouterr().err and (folder / name).read_text() == content


@pytest.fixture
def other_settings(tmp_path):
    """Recorded results that a config made which is not today's; the file that says so."""
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    config = run_config("pendulum-gp", "opax", 3, 6)
    wide = replace(config.method, imagination=replace(config.method.imagination, beta=7.0))
    facts = {"setting": "pendulum-gp", "method": "opax", "of": 3, "seconds": 1.0}
    facts |= {"config": json.loads(to_json(replace(config, method=wide)))}
    path = folder / "provenance.json"
    path.write_text(json.dumps({"scale": "small", "settings": "paper", **PROVENANCE, "batches": {"mine": facts}}))
    return path


def test_results_of_other_settings_are_not_put_together_with_runs(other_settings, monkeypatch, tmp_path, capsys):
    before = (other_settings.parent / "curves.csv").read_bytes()
    shown = Grid(("pendulum-gp",), ("random",), {"pendulum-gp": 5}, 3, lite=False, out=tmp_path, evaluate_tasks=False)
    (run,) = shown.batches()
    run.create()
    run.store().append_metrics([{"seed": seed, "round": 1, "max_epistemic": 1.0} for seed in range(3)])
    (run.folder / "checkpoints" / "0001.json").write_text("{}")
    assert call(monkeypatch, "uncertainty", "--no-run", "--settings", "paper", "--out", str(tmp_path)) == 2
    assert "mine was made with other settings: method.imagination.beta is 7.0 there and 2.0 here" in capsys.readouterr().err
    assert (other_settings.parent / "curves.csv").read_bytes() == before


@pytest.mark.slow
def test_results_of_other_settings_are_drawn_as_recorded_where_no_runs_are(other_settings, monkeypatch, tmp_path, capsys):
    before = json.loads(other_settings.read_text()), (other_settings.parent / "curves.csv").read_bytes()
    assert call(monkeypatch, "uncertainty", "--no-run", "--settings", "paper", "--out", str(tmp_path)) == 0
    assert (json.loads(other_settings.read_text()), (other_settings.parent / "curves.csv").read_bytes()) == before
    assert "C3" in capsys.readouterr().out and (other_settings.parent / "uncertainty.png").exists()


class Working(LocalBackend):
    """Looks at its batches for ever, as a backend does until they are done."""

    def run(self, batches, callbacks, watch):
        for _ in range(10_000):
            watch(batches[:1])
            time.sleep(0.001)
        raise AssertionError("nothing ended it")


def test_after_the_given_minutes_runs_are_stopped_and_what_there_is_is_reported(tiny_runs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(program, "backend_named", lambda *_: Working())
    began = time.monotonic()
    assert call(monkeypatch, "uncertainty", "--settings", "lite", "--minutes", "0.002", "--out", str(tmp_path)) == 0
    assert time.monotonic() - began >= 0.12
    said = " ".join(capsys.readouterr().out.split())
    assert "Time is up. Every finished round is safe" in said and "uncertainty: nothing was run yet" in said
    assert call(monkeypatch, "uncertainty", "--minutes", "0", "--out", str(tmp_path)) == 2
    assert "minutes must be above 0" in capsys.readouterr().err


@pytest.mark.slow
def test_methods_of_a_figure_advance_in_lockstep_in_several_goes(tiny_runs, monkeypatch, tmp_path, capsys):
    """A world, as it is run on a GPU: with the task for H-UCRL, stopped half-way, drawn in between, and continued."""
    ensemble = ProbabilisticEnsemble(members=2, layers=1, width=8, epochs=2)

    def small(setting, method, rounds, seeds, *, lite=False):
        config = TINY.with_method(method, "keep-down" if method == "h-ucrl" else None)
        config = replace(config, model=ensemble, rounds=rounds, seeds=seeds, capacity=None)
        return replace(config, evaluation_tasks=("swing-up", "keep-down"), evaluate_every=2)

    monkeypatch.setattr(grid, "run_config", small)
    monkeypatch.setitem(SCALES, "small", Scale(2, dict.fromkeys(TRAINED_ON, 3)))
    methods = ("opax", "random", "h-ucrl")
    options = ("--only", "pendulum-pe", "--methods", *methods, "--lockstep", "--workers", "1", "--settings", "lite")
    options = (*options, "--out", str(tmp_path))
    shown = Reproduction(("downstream",), "small", None, True, tmp_path, ("pendulum-pe",), methods).grid("downstream")
    runs = lambda: [batch for batch in shown.batches() if batch.method in methods]
    progress = SweepProgress.__call__

    def stop_after_a_round(self, running):
        progress(self, running)
        if any(batch.rounds_done() for batch in running if batch.method in methods):
            raise KeyboardInterrupt

    monkeypatch.setattr(SweepProgress, "__call__", stop_after_a_round)
    assert call(monkeypatch, "downstream", *options) == 130
    monkeypatch.setattr(SweepProgress, "__call__", progress)
    done = [batch.rounds_done() for batch in runs()]
    assert len(done) == len(methods) and 0 < sum(done) < 3 * len(methods)
    folder = tmp_path / "downstream-lite"
    early = Results.load(folder / "curves.csv")
    assert len([row for row in early.rows if row["method"] in methods]) == 2 * sum(done)
    assert call(monkeypatch, "downstream", *options) == 0
    assert [batch.rounds_done() for batch in runs()] == [3] * len(methods)
    late = Results.load(folder / "curves.csv")
    texts = lambda results: {repr(sorted(row.items())) for row in results.rows}
    assert texts(late) > texts(early)  # no round is run again
    assert set(late.methods("pendulum-pe")) >= {*methods, "random-actions"}
    assert (folder / "downstream.png").exists() and "C7" in capsys.readouterr().out


def test_without_runs_nothing_is_written(monkeypatch, tmp_path, capsys):
    assert call(monkeypatch, "rewards", "--no-run", "--out", str(tmp_path / "none")) == 0
    assert "rewards: nothing was run yet" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_failed_batch_is_printed_and_the_exit_code_is_1(tiny_runs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(LocalBackend, "run", lambda self, missing, *_: {missing[0].folder: "out of luck"})
    assert call(monkeypatch, "uncertainty", "--out", str(tmp_path), "--only", "pendulum-gp", "--methods", "opax") == 1
    assert "pendulum-gp opax seeds 0-1 failed: out of luck" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["figure-1"], "unknown figure 'figure-1'; expected one of: all, downstream, manipulation, rewards, uncertainty"),
        (["uncertainty", "--only", "cheetah"], "'cheetah'; expected one of: pendulum-gp, pendulum-pe"),
        (["uncertainty", "--methods", "h-ucrl"], "'h-ucrl'; expected one of"),
        (["uncertainty", "--seeds", "0"], "seeds must be a whole number"),
        (["uncertainty", "--workers", "0"], "workers must be a whole number"),
        (["uncertainty", "--gpus", "0.5"], "--address and --gpus are for Ray"),
    ],
)
def test_what_no_figure_has_is_rejected(args, message, monkeypatch, tmp_path, capsys):
    assert call(monkeypatch, *args, "--out", str(tmp_path / "out")) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_out_must_be_a_folder(monkeypatch, tmp_path, capsys):
    (tmp_path / "results").write_text("mine")
    assert call(monkeypatch, "uncertainty", "--out", str(tmp_path / "results")) == 2
    assert "must be a folder" in capsys.readouterr().err
    assert (tmp_path / "results").read_text() == "mine"
