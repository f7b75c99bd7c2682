"""The committed results: small, and their claims are those that their curves give."""

import json
from pathlib import Path

import pytest
from experiments.claims import judge_claims
from experiments.paper import FIGURES

from sonde.runs.sweep._results import Results

ROOT = Path(__file__).parents[1] / "results"
FOLDERS = sorted(path for path in ROOT.iterdir() if path.is_dir())


def test_results_are_small():
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 10_000_000


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_recorded_claims_are_what_the_curves_say(folder):
    """Whoever changes a rule, or a statistic, has to make the results anew."""
    claims = judge_claims(Results.load(folder / "curves.csv"), FIGURES[folder.name].claims)
    recorded = json.loads((folder / "claims.json").read_text())
    # comparisons behind them are of unrounded curves
    assert [(claim.id, claim.verdict, claim.summary) for claim in claims] == [
        (claim["id"], claim["verdict"], claim["summary"]) for claim in recorded
    ]
    assert (folder / f"{folder.name}.png").exists() and (folder / "made-with.json").exists()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_results_come_from_the_papers_settings(folder):
    made_with = json.loads((folder / "made-with.json").read_text())
    assert made_with["settings"] == "paper"
    assert {facts["setting"] for facts in made_with["batches"].values()} <= set(FIGURES[folder.name].settings)
