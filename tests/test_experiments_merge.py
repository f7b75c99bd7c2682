"""Results of other machines among the recorded ones."""

import json
from dataclasses import replace

import pytest

from experiments.provenance import FILE
from experiments.scripts.merge_results import merge
from sonde import SondeError
from sonde.runs._codec import to_json
from sonde.runs.sweep import Results
from tiny import TINY


def written(folder, values, machine="abacus", config=TINY):
    """A folder of results: values by (setting, method, seed)."""
    folder.mkdir(parents=True)
    rows = [
        {"setting": setting, "method": method, "seed": seed, "round": 1, "return/swing-up": value}
        for (setting, method, seed), value in values.items()
    ]
    Results(rows).save(folder / "curves.csv")
    seeds = {key[:2]: [seed for *other, seed in values if tuple(other) == key[:2]] for key in values}
    batches = {
        f"{setting} {method} seeds-{of[0]}-{of[-1]}": {
            "setting": setting,
            "method": method,
            "of": 1,
            "seconds": 1.0,
            "config": json.loads(to_json(config)),
        }
        for (setting, method), of in seeds.items()
    }
    made = {"scale": "medium", "settings": "paper", "machines": [{"device": machine, "processor": "beads"}], "batches": batches}
    (folder / FILE).write_text(json.dumps(made))
    return folder


def table(folder):
    rows = Results.load(folder / "curves.csv").rows
    return {(row["setting"], row["method"], row["seed"]): row["return/swing-up"] for row in rows}


def test_new_worlds_replace_recorded_ones_as_a_whole_and_the_others_stay(tmp_path):
    recorded = {("cheetah", "opax", 0): 1.0, ("cheetah", "random", 0): 2.0, ("swimmer", "opax", 0): 3.0}
    into = written(tmp_path / "recorded", recorded)
    first = written(tmp_path / "first", {("cheetah", "opax", 0): 4.0, ("reacher", "opax", 0): 5.0}, "slide rule")
    second = written(tmp_path / "second", {("cheetah", "opax", 1): 6.0}, "slide rule", replace(TINY, seeds=2, rounds=9))
    assert set(merge([first, second], into)) == {"cheetah", "reacher"}
    assert table(into) == {
        ("cheetah", "opax", 0): 4.0,
        ("cheetah", "opax", 1): 6.0,
        ("reacher", "opax", 0): 5.0,
        ("swimmer", "opax", 0): 3.0,
    }
    made = json.loads((into / FILE).read_text())
    assert set(made["batches"]) == {
        "swimmer opax seeds-0-0",
        "cheetah opax seeds-0-0",
        "reacher opax seeds-0-0",
        "cheetah opax seeds-1-1",
    }
    assert [machine["device"] for machine in made["machines"]] == ["abacus", "slide rule"]


def test_results_can_be_merged_into_a_new_folder(tmp_path):
    first = written(tmp_path / "first", {("cheetah", "opax", 0): 4.0})
    merge([first], tmp_path / "new" / "downstream")
    assert table(tmp_path / "new" / "downstream") == {("cheetah", "opax", 0): 4.0}


def test_results_of_different_settings_are_not_put_together(tmp_path):
    first = written(tmp_path / "first", {("cheetah", "opax", 0): 4.0})
    second = written(tmp_path / "second", {("cheetah", "opax", 1): 4.0}, config=replace(TINY, horizon=13))
    with pytest.raises(SondeError, match=r"other settings in .*first.* than in .*second.*horizon is 12 there and 13 here"):
        merge([first, second], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (second / FILE).unlink()
    with pytest.raises(SondeError, match="does not say how the results were made"):
        merge([second], tmp_path / "new")
