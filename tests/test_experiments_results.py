"""The committed results: small, and their claims are those that their curves give."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments.claims import judge_claims
from experiments.paper import FIGURES
from experiments.scripts import late_returns
from sonde.runs import RunConfig
from sonde.runs._codec import from_json
from sonde.runs.sweep import Results

ROOT = Path(__file__).parents[1] / "experiments" / "results"
FOLDERS = sorted(path for path in ROOT.iterdir() if path.is_dir())


def test_results_are_small():
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 10_000_000


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_recorded_claims_are_what_the_curves_say(folder):
    """After a change of a rule or a statistic the results must be written again."""
    claims = judge_claims(Results.load(folder / "curves.csv"), FIGURES[folder.name].claims)
    recorded = json.loads((folder / "claims.json").read_text())
    # comparisons behind them are of unrounded curves
    assert [(claim.id, claim.verdict, claim.summary) for claim in claims] == [
        (claim["id"], claim["verdict"], claim["summary"]) for claim in recorded
    ]
    assert [(claim.statement, claim.rule) for claim in claims] == [(claim["statement"], claim["rule"]) for claim in recorded]
    assert (folder / f"{folder.name}.png").exists() and (folder / "provenance.json").exists()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_results_come_from_the_papers_settings(folder):
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["settings"] == "paper"
    assert {facts["setting"] for facts in provenance["batches"].values()} <= set(FIGURES[folder.name].settings)
    for name, facts in provenance["batches"].items():
        config = from_json(RunConfig, json.dumps(facts["config"]), name)
        assert config.method.name == ("random" if facts["method"] == "references" else facts["method"])


def test_late_returns_are_those_of_numpy_and_scipy():
    """Cheetah backward, the last twenty rounds: read with csv, and compared by a t-test of pairs."""
    late = {}
    with late_returns.TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            known = row["setting"] == "cheetah" and row["method"] in ("opax", "random") and row["return/backward"]
            if known and 80 < int(row["round"]) <= 100:
                late.setdefault(row["method"], {}).setdefault(row["seed"], []).append(float(row["return/backward"]))
    one, other = (np.array([np.mean(values) for _, values in sorted(late[name].items())]) for name in ("opax", "random"))
    low, high = stats.ttest_rel(one, other).confidence_interval()
    table = late_returns.lines(Results.load(late_returns.TABLE), "cheetah", "opax", 20)
    (found,) = [line for line in table[7:] if line.strip().startswith("random")]
    assert found.endswith(f"opax has {(one - other).mean():+.0f} [{low:+.0f}, {high:+.0f}]")
