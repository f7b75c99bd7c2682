"""The committed results: small, and their claims are those that their curves give."""

import json
from pathlib import Path

import pytest

from experiments.claims import judge_claims
from experiments.paper import FIGURES
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
