"""`sonde reproduce`, as it is called: what it writes, what it says, and what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest
from experiments.paper import FIGURES, SCALES, TASKS, TRAINED_ON, Scale, run_config

from command_line import call
from sonde.reproduce import command, grid
from sonde.runs._config import to_json
from sonde.runs.sweep._results import Results
from tiny import TINY


def tiny_config(setting, method, rounds, seeds, first_seed=0, lite=False):
    return replace(TINY, horizon=6, tasks=("swing-up",), method=method, rounds=rounds, seeds=seeds, first_seed=first_seed)


@pytest.fixture
def tiny_runs(monkeypatch):
    monkeypatch.setattr(grid, "run_config", tiny_config)
    monkeypatch.setitem(SCALES, "small", Scale(2, dict.fromkeys(TRAINED_ON, 2)))


MADE_WITH = {"machines": [{"device": "abacus", "processor": "beads"}], "batches": {}}


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


def test_it_runs_what_is_missing_then_draws_and_answers(tiny_runs, monkeypatch, tmp_path, capsys):
    subset = ("uncertainty", "--out", str(tmp_path), "--only", "pendulum-gp", "--methods", "random")
    assert call(monkeypatch, "reproduce", *subset) == 0
    said = capsys.readouterr().out
    assert "1 batch, 0 finished" in said and "pendulum-gp random seeds 0-1: round 2 of 2" in said
    folder = tmp_path / "uncertainty-lite"
    assert {path.name for path in folder.iterdir()} == {
        "curves.csv",
        "claims.json",
        "claims.md",
        "made-with.json",
        "uncertainty.png",
        "uncertainty-iqm.png",
    }
    table = (folder / "curves.csv").read_bytes()
    rows = Results.load(folder / "curves.csv").rows
    assert sorted((row["method"], row["seed"], row["round"]) for row in rows if row["round"]) == [
        ("random", seed, round_number) for seed in (0, 1) for round_number in (1, 2)
    ]
    assert [claim["verdict"] for claim in json.loads((folder / "claims.json").read_text())] == ["undecided"] * 3
    made = json.loads((folder / "made-with.json").read_text())
    assert (
        made["settings"] == "lite"
        and made["machines"]
        and made["batches"]["pendulum-gp random 2-rounds-untried-seeds-0-1"]["rounds"] == 2
    )
    # again: nothing is left to do, and the numbers stay
    monkeypatch.setattr(command, "run_locally", lambda missing, *_: dict.fromkeys(missing, "begun again"))
    assert call(monkeypatch, "reproduce", *subset) == 0
    assert "1 batch, 1 finished" in capsys.readouterr().out
    assert (folder / "curves.csv").read_bytes() == table


def test_numbers_without_runs_are_enough_for_figures_and_claims_and_stay(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    (folder / "made-with.json").write_text(json.dumps(MADE_WITH))
    before = (folder / "curves.csv").read_bytes()
    again = ("uncertainty", "--no-run", "--settings", "paper", "--scale", "medium", "--out", str(tmp_path))
    assert call(monkeypatch, "reproduce", *again) == 0
    assert (folder / "curves.csv").read_bytes() == before
    assert json.loads((folder / "made-with.json").read_text())["machines"] == MADE_WITH["machines"]
    fading = next(claim for claim in json.loads((folder / "claims.json").read_text()) if claim["id"] == "C3")
    assert fading["evidence"][0]["estimate"] == pytest.approx(-3, abs=0.1)
    assert "C3 holds" in capsys.readouterr().out  # in three rounds it falls to 1/27


def test_a_subset_loses_nothing_that_was_recorded(monkeypatch, tmp_path):
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    before = (folder / "curves.csv").read_bytes()
    again = ("uncertainty", "--no-run", "--settings", "paper", "--out", str(tmp_path))
    for subset in (("--methods", "random"), ("--only", "pendulum-pe"), ("--seeds", "1")):
        assert call(monkeypatch, "reproduce", *again, *subset) == 0
        assert (folder / "curves.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("made-with.json", "[1]", "does not say where results come from"),
        ("made-with.json", '{"machines": [{}], "batches": {}}', "does not say where results come from"),
        ("curves.csv", "", "its first line must name setting, method, seed, episode"),
        ("curves.csv", "setting,method,seed,episode\nx,y,one,2\n", "is not a table of results"),
    ],
)
def test_files_that_are_broken_are_refused_and_kept(name, content, message, monkeypatch, tmp_path, capsys):
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    (folder / name).write_text(content)
    assert call(monkeypatch, "reproduce", "uncertainty", "--no-run", "--settings", "paper", "--out", str(tmp_path)) == 2
    assert message in capsys.readouterr().err and (folder / name).read_text() == content


def test_numbers_that_were_made_with_other_settings_are_refused(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "uncertainty"
    folder.mkdir()
    recorded().save(folder / "curves.csv")
    other = json.loads(to_json(replace(run_config("pendulum-gp", "opax", 3, 6), beta=7.0)))
    facts = {"setting": "pendulum-gp", "kind": "opax", "of": 3, "seconds": 1.0, "config": other}
    (folder / "made-with.json").write_text(json.dumps({**MADE_WITH, "batches": {"mine": facts}}))
    assert call(monkeypatch, "reproduce", "uncertainty", "--no-run", "--settings", "paper", "--out", str(tmp_path)) == 2
    assert "mine was made with other settings: beta is 7.0 there and 2.0 here" in capsys.readouterr().err


def test_nothing_was_run(monkeypatch, tmp_path, capsys):
    assert call(monkeypatch, "reproduce", "rewards", "--no-run", "--out", str(tmp_path / "none")) == 0
    assert "rewards: nothing was run yet" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_a_failure_is_told_and_ends_with_1(tiny_runs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "run_locally", lambda missing, *_: {missing[0].folder: "out of luck"})
    assert (
        call(monkeypatch, "reproduce", "uncertainty", "--out", str(tmp_path), "--only", "pendulum-gp", "--methods", "opax") == 1
    )
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
def test_what_no_figure_has_is_refused(args, message, monkeypatch, tmp_path, capsys):
    assert call(monkeypatch, "reproduce", *args, "--out", str(tmp_path / "out")) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_folder(monkeypatch, tmp_path, capsys):
    (tmp_path / "results").write_text("mine")
    assert call(monkeypatch, "reproduce", "uncertainty", "--out", str(tmp_path / "results")) == 2
    assert "must be a folder" in capsys.readouterr().err
    assert (tmp_path / "results").read_text() == "mine"


def test_every_panel_is_evaluated_and_nothing_else_is():
    for setting in TRAINED_ON:
        shown = {p.task for f in FIGURES.values() for p in f.panels if p.setting == setting and p.is_return}
        assert set(run_config(setting, "opax", 2, 1).task_names) == set(TASKS[setting]) == shown
