"""The schema of metrics: its entries are complete and unique, and the page in the docs is up to date."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from experiments.scripts.metrics_table import PAGE, metrics_page
from sonde import Metric, MetricSpec, RunConfig, SondeError, preset
from sonde.evaluation import SCHEMA, Schema
from sonde.runs import PRESETS
from sonde.runs._progress import shown_metrics
from sonde.worlds import FetchConstruction, Pendulum


@dataclass(frozen=True)
class Constant(Metric):
    """The same number for all seeds."""

    key: str = "constant"
    value: float = 1.0

    @property
    def spec(self):
        return MetricSpec(self.key, "A constant", "units", "Always the same.", column="constant")

    def compute(self, result):
        return np.full(result.explorer.num_seeds, self.value)


def test_page_of_metrics_is_up_to_date():
    assert PAGE.read_text() == metrics_page(), "run python -m experiments.scripts.metrics_table"


def test_every_entry_has_a_title_a_meaning_and_a_key_of_its_own():
    keys = [spec.key for spec in SCHEMA]
    assert len(set(keys)) == len(keys)
    for spec in (*SCHEMA, *FetchConstruction().metric_specs):
        assert spec.title and spec.meaning.endswith("."), spec.key
        assert ("{}" in spec.title) == spec.key.endswith("/*"), spec.key
        assert spec.unit or not spec.drawn, spec.key


def test_entry_of_a_family_matches_its_keys_and_names_the_member():
    schema = Schema(Pendulum())
    spec = schema.spec("return/swing-up")
    assert spec.key == "return/*" and spec.title_of("return/swing-up") == "Return on swing-up"
    with pytest.raises(SondeError, match="'returns/swing-up' is not in the schema"):
        schema.spec("returns/swing-up")


def test_drawn_metrics_have_the_order_of_the_schema():
    keys = ["return/b", "constant", "return/a", "model_rmse", "prediction_error", "unheard-of", "max_epistemic"]
    drawn = Schema(Pendulum(), (Constant(),)).drawn(keys)
    assert drawn == ["max_epistemic", "model_rmse", "constant", "return/b", "return/a"]


def test_metrics_with_the_same_key_are_rejected():
    for metrics in ((Constant("model_rmse"),), (Constant(), Constant(value=2.0))):
        with pytest.raises(SondeError, match="metrics need different keys"):
            RunConfig(metrics=metrics)


@pytest.mark.parametrize("name", PRESETS)
def test_progress_display_shows_the_models_uncertainty_and_that_under_the_common_kernel(name):
    shown = {spec.key: spec.column for spec in shown_metrics(preset(name)) if spec.key.startswith("max_epistemic")}
    assert shown == {"max_epistemic": "uncertainty", "max_epistemic_common": "common kernel"}


def test_page_lists_every_key():
    listed = re.findall(r"^\| `([^`]+)`", metrics_page(), re.MULTILINE)
    assert listed == [spec.key for spec in (*SCHEMA, *FetchConstruction().metric_specs)]
