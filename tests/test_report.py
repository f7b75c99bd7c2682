"""Reports: numbers are those on disk, statistics those of SciPy, names cannot become markup, and a run can be followed.

The last part looks at pages in a real browser.
"""

import html.parser
import io
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy import stats

from browser import CHROMIUM, DRIVER, MISSING, browser
from command_line import call
from sonde import METHODS, Experiment, OwnSystem, SondeError
from sonde.evaluation import Learned, plan_task, score_on_model
from sonde.imagination import Pessimistic
from sonde.models import Confidence
from sonde.models._calibration import LEVELS
from sonde.runs import Callback, explore, write_report
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.runs.report import _follow, _page, _tasks, follow_report
from sonde.runs.report._advice import _is_worse, warnings_of
from sonde.runs.report._charts import Axis, identifier, nice_ticks
from sonde.runs.report._comparison import difference_charts, differences, task_values
from sonde.runs.report._content import collect
from sonde.runs.report._curves import metric_chart
from sonde.runs.report._html import cell, data_block, number, tag
from sonde.runs.report._learned import ModelErrors, held_out, model_errors
from sonde.runs.report._states import visited
from sonde.runs.report._subjects import opened, schema_of, subjects
from sonde.runs.report._tasks import Film, Solved, TaskWork, solve_tasks
from test_own_system import CONFIG as OWN
from test_own_system import measured
from tiny import TINY

NOTHING = TaskWork(films=False, promises=False)
CONFIG = replace(TINY, seeds=3, confidence=Confidence(holdout=0.3, recalibrate=True))
"""Shorter runs in this file have its capacity of 36, so that nothing is compiled for them."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs on the pendulum: OpAx with seeds 0 to 2, random actions with seeds 1 to 3."""
    folder = tmp_path_factory.mktemp("report")
    explore(CONFIG, folder / "opax")
    explore(replace(CONFIG, method=METHODS["random"], first_seed=1), folder / "random")
    return folder


@pytest.fixture(scope="module")
def page(runs):
    """The report of both."""
    return write_report([runs / "opax", runs / "random"], runs / "both.html", films=False, promises=False).read_text()


class Tables(html.parser.HTMLParser):
    """The tables of a page, by caption: rows of numbers as the cells have them, and of texts where they have none."""

    def __init__(self, text: str):
        super().__init__()
        self.tables: dict[str, list[list]] = {}
        self.tags: list[str] = []
        self._row, self._text, self._value, self._caption = [], None, None, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self._row = []
        if tag in ("td", "th", "caption"):
            self._text, self._value = "", dict(attrs).get("data-value")

    def handle_data(self, data):
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self._caption, self._text = self._text, None
            self.tables[self._caption] = []
        elif tag in ("td", "th"):
            self._row.append(self._text if self._value is None else float(self._value))
            self._text = None
        elif tag == "tr":
            self.tables[self._caption].append(self._row)


def on_disk(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def of_round(rows: list[dict], key: str, round_number: int) -> np.ndarray:
    return np.array([row[key] for row in sorted(rows, key=lambda row: row["seed"]) if row["round"] == round_number])


# ---- contents ----------------------------------------------------------------------------------------------------------------


def test_numbers_of_charts_are_those_on_disk(runs, page):
    tables, rows = Tables(page).tables, {name: on_disk(runs / name) for name in ("opax", "random")}
    titles = {
        "model_rmse": "Error of the mean model (RMSE), state units",
        "max_epistemic_common": "Largest uncertainty, common kernel, state units",
        "realised_information_gain": "Realised information gain, nats per round",
        "return/swing-up": "Return on swing-up, sum of rewards",
        "seconds/plan": "Seconds: plan, s",
    }
    for key, title in titles.items():
        head, *body = tables[title]
        assert head == ["round", "opax", "random"] and [row[0] for row in body] == ["1", "2", "3"]
        for number_, opax, random in body:
            for value, name in ((opax, "opax"), (random, "random")):
                assert value == pytest.approx(of_round(rows[name], key, int(number_)).mean(), rel=1e-12)


def test_every_metric_on_disk_is_on_the_page(runs, page):
    captions = " | ".join(Tables(page).tables)
    found = subjects([opened(runs / "opax")])
    schema = schema_of(found)
    for key, value in on_disk(runs / "opax")[-1].items():
        if isinstance(value, float) and key not in ("transitions", "model_choice"):
            assert schema.spec(key).title_of(key) in captions, key


def test_bands_are_two_standard_errors(runs):
    content = collect(subjects([opened(runs / "random")]), NOTHING, lambda _: None)
    chart, rows = metric_chart(content, "model_rmse"), on_disk(runs / "random")
    assert chart is not None
    (line,) = chart.lines
    for i in range(3):
        values = of_round(rows, "model_rmse", i + 1)
        assert line.high[i] - line.y[i] == pytest.approx(2 * stats.sem(values))
        assert line.y[i] - line.low[i] == pytest.approx(2 * stats.sem(values))
    assert len(line.seeds) == 3 and [points.shape for points in line.seeds] == [(3, 2)] * 3


def test_returns_now_and_best_so_far(runs):
    rows = on_disk(runs / "random")
    (value,) = [each for each in task_values(subjects([opened(runs / "random")])) if each.task == "swing-up"]
    every = np.stack([of_round(rows, "return/swing-up", i) for i in (1, 2, 3)])
    assert (value.round, value.seeds) == (3, 3)
    assert value.now == pytest.approx((every[-1].mean(), 2 * stats.sem(every[-1])))
    assert value.best == pytest.approx((every.max(axis=0).mean(), 2 * stats.sem(every.max(axis=0))))


def test_page_is_one_file_that_needs_no_network(page):
    assert len(page.encode()) < _page.MAX_BYTES
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", page)  # nothing is loaded from elsewhere
    assert not re.search(r"@import|url\((?!data:)", page) and "default-src 'none'" in page
    assert "{{" not in page and "data-renew" not in page


def test_page_says_in_words_what_was_explored(runs):
    text = write_report(runs / "opax", runs / "one.html", films=False, promises=False).read_text()
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    rows = on_disk(runs / "opax")
    first, last = (number(float(of_round(rows, "model_rmse", i).mean())) for i in (1, 3))
    assert "3 state dimensions (cos th, sin th, thdot) and 1 action (torque), in steps of 0.05 s" in plain
    assert (
        "optimistic active exploration (OpAx). In 3 rounds of 12 steps it took 36 measurements for each of 3 seeds (0 to 2)"
        in plain
    )
    assert f"from {first} after round 1 to {last} after round 3" in plain
    assert "Side by side" not in plain  # one run is compared with nothing


def test_section_of_a_later_feature_is_shown_where_it_is_listed(runs, monkeypatch):
    section = lambda content: _page.Section("constraints", "Constraints", tag("p", f"{len(content.subjects)} run"))
    none = lambda content: None
    monkeypatch.setattr(_page, "SECTIONS", (section, none))
    content = collect(subjects([opened(runs / "opax")]), NOTHING, lambda _: None)
    assert re.findall(r'<section id="(\w+)"', _page.write(content)) == ["constraints"]


def test_rounds_of_any_length_and_initial_data_are_told_as_they_were(tmp_path):
    start, told = measured(9), [measured(1), measured(5), measured(2)]
    np.savez(tmp_path / "start.npz", states=start.states, actions=start.actions, next_states=start.next_states)
    config = replace(OWN, horizon=9, data=str(tmp_path / "start.npz"))
    with Experiment(tmp_path / "run", config) as experiment:
        for trajectory in told:
            experiment.tell(trajectory)
    content = collect(subjects([opened(tmp_path / "run")]), NOTHING, lambda _: None)
    found = content.facts[0].states
    assert found is not None and found.rounds.tolist() == [0] * 13 + [1] * 5 + [2] * 9 + [3] * 6
    assert found.columns == ["angle", "speed"]
    plain = re.sub(r"<[^>]+>", "", _page.write(content))
    assert "The system is run by its owner, with 2 state dimensions (angle, speed) and 1 action (torque)." in plain
    assert "In 3 rounds of at most 9 steps it took 20 measurements" in plain
    assert "It started from 13 measurements made before." in plain


def test_folder_may_have_any_name(runs, tmp_path):
    folder = tmp_path / "caf\udce9"  # not UTF-8
    shutil.copytree(runs / "opax", folder)
    page = write_report(folder, tmp_path / "page.html", films=False, promises=False)
    assert r"caf\udce9" in page.read_text(encoding="utf-8")


def test_tasks_that_were_only_solved_for_the_report_are_shown(runs):
    content = collect(subjects([opened(runs / "opax")]), NOTHING, lambda _: None)
    for row in content.subjects[0].rows:
        for key in [key for key in row if key.startswith(("return/", "success/"))]:
            del row[key]
    assert "No task was evaluated yet" in _page.write(content)
    content.facts[0].solved.append(
        Solved("swing-up", (0,), {"learned": np.array([-3.0]), "promised": np.array([-1.0])}, Film(b"x", "image/gif"))
    )
    text = _page.write(content)
    assert "No task was evaluated" not in text and "data:image/gif" in text
    assert Tables(text).tables["Promised and achieved returns of each seed"][1] == ["swing-up", "0", -1.0, -3.0, -2.0]


# ---- the model ---------------------------------------------------------------------------------------------------------------


def test_errors_by_dimension_make_up_the_error_on_disk(runs):
    store = RunStore.open(runs / "random")
    errors = model_errors(store, restore_explorer(store))
    assert isinstance(errors, ModelErrors) and errors.rmse.shape == (3, 3)
    rows = on_disk(runs / "random")
    np.testing.assert_allclose(np.sqrt((errors.rmse**2).sum(axis=1)), of_round(rows, "model_rmse", 3), rtol=1e-5)
    reachable = store.config.world.reachable()
    spread = np.std(reachable.next_states - reachable.states, axis=0)
    np.testing.assert_allclose(errors.relative, errors.rmse / spread, rtol=1e-9)
    found = np.abs(errors.coverage - LEVELS[:, None]).mean(axis=(1, 2))
    np.testing.assert_allclose(found, of_round(rows, "calibration_error", 3), rtol=1e-5)


def test_errors_without_a_reachable_set_are_those_of_the_model_from_before_the_round(tmp_path):
    with Experiment(tmp_path / "run", OWN) as experiment:
        experiment.tell(measured(1))
        store = RunStore.open(tmp_path / "run")
        assert "first round" in str(model_errors(store, experiment.explorer))
        experiment.tell(measured(2))
        before = restore_explorer(store, 1)
        told = measured(2)
        predicted = [before.predict(x, u) for x, u in zip(told.states, told.actions, strict=True)]
        off = told.next_states - np.stack([each.mean for each in predicted])
        errors = model_errors(store, experiment.explorer)
    assert isinstance(errors, ModelErrors)
    np.testing.assert_allclose(errors.rmse[0], np.sqrt((off**2).mean(axis=0)), rtol=1e-6)
    np.testing.assert_allclose(errors.spread[0], np.std(told.next_states - told.states, axis=0))
    std = np.stack([np.hypot(each.epistemic_std, each.aleatoric_std) for each in predicted])
    for level, share in zip(LEVELS, errors.coverage[0], strict=True):
        np.testing.assert_allclose(share, (np.abs(off) <= stats.norm.ppf((1 + level) / 2) * std).mean(axis=0))


def test_uncertainty_at_visited_states_is_that_of_the_explorer(runs):
    store = RunStore.open(runs / "opax")
    explorer = restore_explorer(store)
    found = visited(explorer, store.config.world, [12] * 3)
    assert found.columns == ["angle [rad]", "angular velocity [rad/s]", "cos th", "sin th"]  # the speed is shown once
    states = np.asarray(explorer.data.states[0, :36])
    np.testing.assert_allclose(found.points[:, 2:], states[:, :2])
    np.testing.assert_allclose(found.points[:, 0], np.arctan2(states[:, 1], states[:, 0]))
    same = [explorer.predict(np.stack([x] * 3), np.zeros((3, 1))) for x in states[:5]]
    expected = [float(np.linalg.norm(each.epistemic_std[0])) for each in same]
    np.testing.assert_allclose(found.uncertainty[:5], expected, rtol=1e-5)
    assert found.rounds.tolist() == [1] * 12 + [2] * 12 + [3] * 12 and found.field is not None


def test_held_out_calibration_is_that_of_the_explorer(runs):
    explorer = restore_explorer(RunStore.open(runs / "opax"))
    assert explorer.calibration is not None
    known = jnp.asarray(np.random.default_rng(0).uniform(size=explorer.calibration.before.shape))
    explorer.calibration = replace(explorer.calibration, before=known, after=known / 2)
    found = held_out(explorer)
    assert found is not None
    np.testing.assert_array_equal(found.before, known)
    np.testing.assert_array_equal(found.after, known / 2)
    explorer.calibration = replace(explorer.calibration, after=known * np.nan)
    assert held_out(explorer) is None, "no block was held out yet"
    explorer.calibration = None
    assert held_out(explorer) is None


@pytest.mark.slow
def test_promised_return_is_the_nominal_one_and_the_realised_one_that_on_disk(runs):
    source = opened(runs / "opax")
    solved = solve_tasks(source, TaskWork(films=False), lambda _: None)
    rows, explorer = on_disk(runs / "opax"), source.restored()
    for each in solved:
        np.testing.assert_array_equal(each.returns["learned"], of_round(rows, f"return/{each.task}", 3))
    (swing_up,) = [each for each in solved if each.task == "swing-up"]
    setup, keys = source.store.config.task_setup("swing-up"), explorer.evaluation_keys()
    policy = plan_task(setup, Learned(explorer.posterior, explorer.data), explorer.keys())
    scored = score_on_model(setup, explorer.posterior, keys, policy, Pessimistic())
    np.testing.assert_allclose(swing_up.returns["promised"], scored.returns.nominal, rtol=1e-6)
    assert swing_up.returns["random"].shape == (3,)


@pytest.mark.slow
def test_films_are_inside_the_page_or_it_says_why_not(runs, monkeypatch):
    text = write_report(runs / "opax", runs / "films.html", promises=False).read_text()
    assert len(re.findall(r'src="data:(?:video/mp4|image/gif);base64,', text)) == 2 and "There is no film" not in text

    class Broken:
        def __init__(self, *_):
            raise SondeError("no image: OpenGL is not available; install EGL")

    monkeypatch.setattr(_tasks, "_small_film", lambda: Broken)
    text = write_report(runs / "opax", runs / "films.html", promises=False).read_text()
    assert "There is no film: no image: OpenGL is not available; install EGL." in text and "data:video" not in text


def test_films_that_do_not_fit_are_left_out(runs):
    content = collect(subjects([opened(runs / "opax")]), NOTHING, lambda _: None)
    films = [
        Solved(name, (0, 1), {"learned": np.zeros(2)}, Film(b"x" * size, "video/mp4"))
        for name, size in (("a", 10), ("b", 5_000_000))
    ]
    content.facts[0].solved += films
    text = _page.write(content)
    assert films[0].film is not None and films[1].film is None
    assert (
        len(text.encode()) < _page.MAX_BYTES and "b: There is no film here: with it the page would be larger than 6 MB" in text
    )


# ---- comparisons -------------------------------------------------------------------------------------------------------------


def test_differences_are_those_of_a_paired_t_test_over_common_seeds(runs):
    found = subjects([opened(runs / "opax"), opened(runs / "random")])
    rows = {name: on_disk(runs / name) for name in ("opax", "random")}
    compared = {each.key: each for each in differences(found, schema_of(found))}
    assert {"model_rmse", "max_epistemic", "return/swing-up", "realised_information_gain"} <= compared.keys()
    for key, each in compared.items():
        opax, random = of_round(rows["opax"], key, 3), of_round(rows["random"], key, 3)
        assert each.means == pytest.approx((opax.mean(), random.mean())) and each.seeds == (1, 2) and each.round == 3
        base, other = (np.log(values) if each.is_ratio else values for values in (opax[1:], random[:2]))
        ends = stats.ttest_rel(other, base).confidence_interval(0.95)
        expected = np.exp([ends.low, ends.high]) if each.is_ratio else [ends.low, ends.high]
        np.testing.assert_allclose(each.bounds, expected, rtol=1e-6)
        excluded = not ends.low <= 0 <= ends.high
        assert (each.verdict in ("higher", "lower")) == excluded
    assert compared["model_rmse"].is_ratio and not compared["return/swing-up"].is_ratio


def test_charts_of_differences_end_in_the_differences(runs):
    found = subjects([opened(runs / "opax"), opened(runs / "random")])
    schema = schema_of(found)
    drawn = {chart.identifier: chart.lines[0] for chart in difference_charts(found, schema)}
    for each in differences(found, schema):
        line = drawn[f"diff-{identifier(each.key)}"]
        assert line.x.tolist()[-1] == 3
        np.testing.assert_allclose((line.y[-1], line.low[-1], line.high[-1]), (each.value, *each.bounds), rtol=1e-9)


def test_intervals_on_the_page_are_those_that_were_computed(runs, page):
    found = subjects([opened(runs / "opax"), opened(runs / "random")])
    for each in differences(found, schema_of(found)):
        (cell_,) = re.findall(rf'<td [^>]*data-key="{each.key}"[^>]*>', page)
        low, high = (float(re.search(rf'data-{end}="([^"]+)"', cell_)[1]) for end in ("low", "high"))
        assert (low, high) == pytest.approx(each.bounds)
    assert "seeds that all of them have: 1, 2." in page and "(round 3)" in page


def test_one_common_seed_gives_no_interval(runs, tmp_path):
    go_on(tmp_path / "other", 1, replace(CONFIG, method=METHODS["random"], first_seed=2))
    found = subjects([opened(runs / "opax"), opened(tmp_path / "other")])
    compared = differences(found, schema_of(found))
    assert compared and all(each.round == 1 and each.seeds == (2,) for each in compared)
    assert all(np.isnan(chart.lines[0].low).all() for chart in difference_charts(found, schema_of(found)))
    assert all(each.verdict.startswith("unknown") and "[" not in each.text for each in compared)


def test_runs_that_differ_only_in_seeds_are_one_line(runs, tmp_path):
    explore(replace(CONFIG, first_seed=7), tmp_path / "more")
    (subject,) = subjects([opened(runs / "opax"), opened(tmp_path / "more")])
    curve = subject.curve("model_rmse")
    assert curve is not None and curve.seeds.tolist() == [0, 1, 2, 7, 8, 9] and curve.rounds.tolist() == [1, 2, 3]


# ---- warnings ----------------------------------------------------------------------------------------------------------------


def findings(folder: Path) -> dict[str, str]:
    (subject,) = subjects([opened(folder)])
    subject.sources[0].restored()
    return {each.kind: f"{each.text} {each.remedy}" for each in warnings_of(subject)}


def changed(runs: Path, out: Path, **values) -> Path:
    """A copy of the run by OpAx whose last round has other metrics."""
    shutil.copytree(runs / "opax", out)
    store = RunStore.open(out)
    rows = [row | values for row in store.load_metrics() if row["round"] == 3]
    store.append_metrics(rows)
    return out


def test_each_warning_says_what_to_do(runs, tmp_path):
    stalled = findings(changed(runs, tmp_path / "stalled", overconfidence=4.0, information_rank=-0.5))
    assert "erred 4.0 times as much" in stalled["Exploration stalls"] and "--holdout 0.2" in stalled["Exploration stalls"]
    certain = findings(changed(runs, tmp_path / "certain", overconfidence=3.5, information_rank=0.4))
    assert (
        "Exploration stalls" not in certain and "3.50 times as much as it promised in 3 of 3 seeds" in certain["Overconfidence"]
    )
    right = findings(changed(runs, tmp_path / "right", overconfidence=1.0, information_rank=0.4))
    assert not right.keys() & {"Overconfidence", "Exploration stalls", "Not finished"}
    late = findings(changed(runs, tmp_path / "late", late_actions=0.25))
    assert "at most 25.0 % in round 3" in late["Late actions"] and "lower rate" in late["Late actions"]
    reason = "Stopped after round 3 of at most 3: enough."
    assert reason in findings(changed(runs, tmp_path / "stopped", stopped=reason))["Stopping rule"]


def test_best_of_many_rounds_that_differ_by_chance_is_no_finding():
    draws = np.random.default_rng(0)
    noise = draws.normal(size=(400, 5, 20))
    found = [_is_worse(values, int(np.argmax(values.mean(axis=0)))) for values in noise]
    assert np.mean(found) <= 0.07
    assert _is_worse(noise[0] - 10 * (np.arange(20) > 9), 3)
    assert not _is_worse(np.array([[1.0, 0.0]]), 0) and not _is_worse(np.array([[0.0, 9.0, 1.0, 8.0]]), 1)
    assert _is_worse(np.array([[0.0, 9.0, 8.0, 1.0, 2.0]]), 1)


def test_low_rank_warning_of_the_model_is_on_the_page(runs):
    source = opened(runs / "opax")
    source.remarks.append("model: the low-rank posterior is not within its tolerance")
    (subject,) = subjects([source])
    (found,) = [each for each in warnings_of(subject) if each.kind == "Low rank"]
    assert "--model.rank" in found.remedy and found.text.startswith("Model: the low-rank posterior")


def test_late_actions_of_an_experiment_are_recorded(tmp_path):
    with Experiment(tmp_path / "run", OWN) as experiment:
        policy = experiment.ask(budget=30.0)
        for x in measured(1).states:
            policy(x)
        (row,) = experiment.tell(measured(1))
        assert row["late_actions"] == 0.0
        policy = experiment.ask(budget=1e-9)
        for x in measured(2).states:
            policy(x)
        (row,) = experiment.tell(measured(2))
        assert row["late_actions"] == policy.timing.late / policy.timing.calls > 0.5
        experiment.ask()
        (row,) = experiment.tell(measured(3))
        assert "late_actions" not in row
    assert "in round 2" in findings(tmp_path / "run")["Late actions"]


# ---- markup ------------------------------------------------------------------------------------------------------------------


def test_names_cannot_become_markup(tmp_path):
    evil = "</script><script>alert(1)</script>"
    config = replace(OWN, world=OwnSystem(states=(evil, "b\"onload='x'"), actions=("<img src=x onerror=alert(2)>",)))
    folder = tmp_path / "<script>alert(3)<!--"
    with Experiment(folder, config) as experiment:
        for number_ in (1, 2, 3):
            experiment.tell(measured(number_))
    text = write_report(folder, tmp_path / "page.html").read_text()
    tags = Tables(text).tags
    assert tags.count("script") == 2 and tags.count("img") == 0
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text
    assert "<!--" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_text_is_escaped_and_data_cannot_end_their_element():
    assert tag("p", '<b> & "', title='"><') == '<p title="&quot;&gt;&lt;">&lt;b&gt; &amp; "</p>'
    assert tag("td", None, "x", hidden=True, id=None) == "<td hidden>x</td>"
    block = data_block("data", {"a": "</script>", "b": [np.nan, 1.0]})
    content = re.fullmatch(r'<script type="application/json" id="data">(.*)</script>', block)
    assert content and "<" not in content[1] and json.loads(content[1]) == {"a": "</script>", "b": [None, 1.0]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-393.24, "−393"),
        (0.01234, "0.0123"),
        (1234567.0, "1,234,567"),
        (2.0, "2"),
        (3e-7, "3.00e-7"),
        (np.nan, "–"),
    ],
)
def test_numbers_are_readable(value, text):
    assert number(value) == text
    assert ("data-value" in cell(value)) == bool(np.isfinite(value))


def test_axes_have_round_ticks_inside_their_limits():
    assert nice_ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0] and nice_ticks(-7, 33) == [0, 10, 20, 30]
    axis = Axis(0.013, 2.1, (200, 0), log=True)
    assert all(0.013 <= tick <= 2.1 for tick in axis.ticks()) and len(axis.ticks()) >= 3
    assert axis(0.013) == 200 and axis(2.1) == 0 and axis((0.013 * 2.1) ** 0.5) == pytest.approx(100, abs=0.1)


# ---- bad input ---------------------------------------------------------------------------------------------------------------


def test_bad_input_is_rejected(runs, tmp_path, monkeypatch, capsys):
    with Experiment(tmp_path / "own", OWN) as experiment:
        experiment.tell(measured(1))
    RunStore.create(tmp_path / "new", TINY)
    explore(replace(CONFIG, rounds=1, capacity=36, evaluate_every=0, method=METHODS["random"]), tmp_path / "only")
    opax = str(runs / "opax")
    for args, message in [
        ([], "name at least one folder"),
        ([str(tmp_path)], "is not the folder of a run"),
        ([str(tmp_path / "new")], "has no finished round yet"),
        ([opax, opax], "is named twice"),
        ([opax, str(tmp_path / "own")], "must have the same system"),
        ([opax, str(tmp_path / "only")], "must have the same tasks"),
        ([opax, "--out", "page.pdf"], "end its name in .html or .htm"),
        ([opax, "--out", str(tmp_path)], "end its name in"),
        ([opax, str(runs / "random"), "--follow"], "--follow is for one run, got 2 folders"),
        ([str(tmp_path / "nowhere"), "--follow"], "is not the folder of a run"),
    ]:
        monkeypatch.chdir(tmp_path)
        assert call(monkeypatch, "report", *args) == 2, args
        assert message in "".join(capsys.readouterr()), args
    assert not list(tmp_path.glob("*.html"))


def test_command_prints_the_path_and_opens_the_browser(runs, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or True)
    assert call(monkeypatch, "report", str(runs / "opax"), "--no-films", "--no-promises", "--open") == 0
    path = runs / "opax" / "report.html"
    assert f"Report: {path}" in capsys.readouterr().out and shown == [path.as_uri()]
    # it is a file of Sonde's, so that the run may be replaced
    from sonde.runs._place import foreign_entries

    assert path.exists() and foreign_entries(runs / "opax") == []
    path.unlink()


# ---- following ---------------------------------------------------------------------------------------------------------------


class StopAfter(Callback):
    """Interrupts a run after a round."""

    def __init__(self, number_: int):
        self.number = number_

    def on_round_end(self, round_number, rows):
        if round_number == self.number:
            raise InterruptedError


def go_on(folder: Path, until: int, config=CONFIG) -> None:
    with pytest.raises(InterruptedError):
        explore(config, folder, [StopAfter(until)])


@pytest.fixture
def one_round(runs, tmp_path):
    """A run that was interrupted after its first round."""
    go_on(tmp_path / "run", 1)
    return tmp_path / "run"


def test_run_in_progress_is_reported_as_it_is(one_round):
    text = write_report(one_round, films=False, promises=False).read_text()
    assert "run has 1 of 3 rounds: what follows is as of round 1." in text and "1 of 3" in text
    assert f"sonde resume {one_round}" in text


def test_followed_page_renews_itself_until_the_run_ends(one_round, monkeypatch):
    states, page = [], one_round / "report.html"

    def next_round(_):
        states.append(page.read_text())
        go_on(one_round, min(len(states) + 1, 3))

    monkeypatch.setattr(_follow.time, "sleep", next_round)
    shown = []
    assert follow_report(one_round, work=NOTHING, on_first=shown.append) == "The run has ended: all 3 rounds are done."
    assert shown == [page] and len(states) == 2
    for number_, text in enumerate(states, 1):
        assert f"Running: round {number_} of 3 is done." in text and 'data-renew="10"' in text
        assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in text
    assert "data-renew" not in page.read_text() and 'http-equiv="refresh"' not in page.read_text()
    _, *body = Tables(page.read_text()).tables["Error of the mean model (RMSE), state units"]
    assert [row[0] for row in body] == ["1", "2", "3"]


def test_ctrl_c_ends_following_with_a_sentence_and_a_page_that_stays(one_round, monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_follow.time, "sleep", interrupt)
    assert call(monkeypatch, "report", str(one_round), "--follow") == 130
    said = capsys.readouterr()
    assert "Stopped following. The run goes on by itself" in said.err and "Report:" in said.out
    text = (one_round / "report.html").read_text()
    assert "data-renew" not in text and "no longer follows the run" in text


def test_following_ends_when_nobody_works_on_the_run(one_round, monkeypatch):
    slept = []
    monkeypatch.setattr(_follow.time, "sleep", slept.append)
    said = follow_report(one_round, work=NOTHING)
    assert said.startswith("No process works on the run any more; round 1 of 3 was its last.") and "sonde resume" in said
    assert (
        _follow.PATIENCE - 2 <= len(slept) <= _follow.PATIENCE and "data-renew" not in (one_round / "report.html").read_text()
    )


def test_following_waits_while_a_process_holds_the_run(one_round, monkeypatch):
    store, slept = RunStore.open(one_round), []

    def sleep(_):
        slept.append(1)
        if len(slept) > 3 * _follow.PATIENCE:
            raise KeyboardInterrupt

    monkeypatch.setattr(_follow.time, "sleep", sleep)
    with store.locked(), pytest.raises(KeyboardInterrupt):
        follow_report(one_round, work=NOTHING)
    assert len(slept) > 3 * _follow.PATIENCE


def test_following_may_start_in_the_first_round(tmp_path, monkeypatch):
    (tmp_path / ".run.draft").mkdir()
    said = []

    def first_round(_):
        if not (tmp_path / "run").exists():
            explore(replace(CONFIG, rounds=1, capacity=36), tmp_path / "run")

    monkeypatch.setattr(_follow.time, "sleep", first_round)
    assert "all 1 rounds are done" in follow_report(tmp_path / "run", work=NOTHING, say=said.append)
    assert said[0] == "waiting for the first round to end"


def test_following_ends_where_the_first_round_was_interrupted(tmp_path, monkeypatch):
    (tmp_path / ".run.draft").mkdir()
    slept = []
    monkeypatch.setattr(_follow.time, "sleep", slept.append)
    with pytest.raises(SondeError, match="its first round was not finished: start it again"):
        follow_report(tmp_path / "run", work=NOTHING)
    assert len(slept) == _follow.PATIENCE


# ---- in a browser ------------------------------------------------------------------------------------------------------------

BOXES = """
const figures = [...document.querySelectorAll("figure, figure > svg, figure > video, figure > img")];
return figures.filter((node) => !node.closest("[hidden]"))
  .map((node) => { const box = node.getBoundingClientRect(); return [box.left, box.right, box.width, box.height]; });
"""
CONTRASTS = """
const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
const light = (text) => { const [r, g, b] = parse(text); return .2126 * r + .7152 * g + .0722 * b; };
const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
const style = (selector) => getComputedStyle(document.querySelector(selector));
const paper = light(style("body").backgroundColor), card = light(style(".chart").backgroundColor);
return {
  paper,
  text: ratio(light(style("body").color), paper),
  link: ratio(light(style("nav a").color), paper),
  soft: ratio(light(style(".when").color), paper),
  ticks: ratio(light(style("svg text").fill), card),
  lines: Math.min(...[...document.querySelectorAll(".s .line")].map((n) => ratio(light(getComputedStyle(n).stroke), card))),
};
"""


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(MISSING)
    with browser() as opened_browser:
        yield opened_browser


@pytest.fixture(scope="module")
def pages(runs):
    """A page about one run, with a film, and one about two."""
    content = collect(subjects([opened(runs / "opax")]), NOTHING, lambda _: None)
    picture = _tasks._shrunk(np.full((400, 400, 3), 200, np.uint8))
    assert picture.shape == (320, 320, 3)
    content_of_film = io.BytesIO()
    Image.fromarray(picture).save(content_of_film, "gif")
    content.facts[0].solved.append(
        Solved("swing-up", (0,), {"learned": np.zeros(1)}, Film(content_of_film.getvalue(), "image/gif"))
    )
    (runs / "one-film.html").write_text(_page.write(content))
    both = write_report([runs / "opax", runs / "random"], runs / "pair.html", films=False, promises=False)
    return {"one": runs / "one-film.html", "both": both}


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["one", "both"])
def test_every_figure_is_visible_without_an_error(chromium, pages, name, width, dark):
    chromium.show(pages[name], width, dark)
    assert chromium.errors() == []
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    boxes = chromium.run(BOXES)
    assert len(boxes) > 20
    assert all(left >= 0 and right <= width and across > 100 and down > 100 for left, right, across, down in boxes)
    seen = chromium.run(CONTRASTS)
    assert (seen["paper"] < 0.05) == dark and (seen["paper"] > 0.8) == (not dark)
    assert min(seen[part] for part in ("text", "link", "soft", "ticks")) >= 4.5 and seen["lines"] >= 3
    sizes = "return [...document.querySelectorAll('button, select')].map((b) => b.getBoundingClientRect().right)"
    assert all(right <= width for right in chromium.run(sizes))
    headings = "return [...document.querySelectorAll('svg[role=img]')].every((s) => s.getAttribute('aria-label').length > 10)"
    assert chromium.run(headings) and chromium.run("return document.querySelectorAll('h1').length") == 1


@pytest.mark.slow
def test_page_is_whole_without_scripts(chromium, pages):
    chromium.show(pages["both"], 1280, scripts=False)
    boxes = chromium.run(BOXES)
    assert sum(across > 100 and down > 100 for _, _, across, down in boxes) > 20
    assert chromium.run("return document.querySelectorAll('button, select').length") == 0
    assert chromium.run("return document.querySelectorAll('table').length") > 10
    chromium.show(pages["both"], 1280)


@pytest.mark.slow
def test_values_are_shown_under_the_pointer_and_by_keys(chromium, pages, runs):
    chromium.show(pages["both"], 1280)
    move = """
const svg = document.querySelector("#chart-model_rmse svg"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width * arguments[0], clientY: box.top + 50 }));
return document.getElementById("tip").innerText;
"""
    rows = on_disk(runs / "opax")
    last, first = (number(float(of_round(rows, "model_rmse", i).mean())) for i in (3, 1))
    assert f"round 3\nopax: {last} [" in chromium.run(move, 0.98)
    key = """
const svg = document.querySelector("#chart-model_rmse svg");
for (const key of arguments[0]) svg.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
const tip = document.getElementById("tip");
return tip.hidden ? null : tip.innerText;
"""
    assert f"round 1\nopax: {first} [" in chromium.run(key, ["Home"])
    assert "round 2" in chromium.run(key, ["ArrowRight"]) and chromium.run(key, ["Escape"]) is None
    assert chromium.errors() == []


@pytest.mark.slow
def test_runs_metrics_and_dimensions_can_be_chosen(chromium, pages):
    chromium.show(pages["both"], 1280)
    shown = "return getComputedStyle(document.querySelector('#chart-model_rmse g.s0')).display"
    press = "document.querySelector('button[data-s=s0]').click(); return null"
    chromium.run(press)
    assert chromium.run(shown) == "none"
    chromium.run(press)
    assert chromium.run(shown) == "inline"
    chosen = """
const boxes = [...document.querySelectorAll(".chooser input")];
const charts = () => document.querySelectorAll("#curves .chart:not([hidden])").length;
const before = charts(), off = boxes.find((box) => !box.checked);
off.click();
return [boxes.length, before, charts()];
"""
    count, before, after = chromium.run(chosen)
    assert after == before + 1 and count > before
    axes = """
const [x, y] = document.querySelectorAll("#states-controls select"), svg = document.querySelector("svg[data-states]");
const place = () => svg.querySelector(".points circle").getAttribute("cx"), before = place();
const names = [...x.options].map((option) => option.text);
x.value = names.indexOf("thdot") < 0 ? 2 : names.indexOf("sin th");
x.dispatchEvent(new Event("change"));
return [names, before, place(), svg.querySelector(".xlabel").textContent, svg.querySelector(".field").style.display];
"""
    names, old, new, label, field = chromium.run(axes)
    assert names[:2] == ["angle [rad]", "angular velocity [rad/s]"] and {"cos th", "sin th"} <= set(names)
    assert old != new and label in ("cos th", "sin th") and field == "none"
    assert chromium.errors() == []
    chromium.run("sessionStorage.clear(); return null")


@pytest.mark.slow
def test_page_that_renews_itself_keeps_place_and_choices(chromium, runs):
    content = collect(subjects([opened(runs / "opax"), opened(runs / "random")]), NOTHING, lambda _: None)
    page = runs / "renewing.html"
    page.write_text(_page.write(content, 1.0, "Running: round 1 of 3 is done."))
    chromium.show(page, 1280)
    chromium.run("window.old = true; document.querySelector('button[data-s=s1]').click(); scrollTo(0, 700); return null")
    until = time.monotonic() + 60
    while chromium.run("return Boolean(window.old)"):
        assert time.monotonic() < until, "the page did not load itself again"
        time.sleep(0.2)
    page.write_text(_page.write(content))
    assert abs(chromium.run("return scrollY") - 700) < 50
    assert chromium.run("return document.querySelector('button[data-s=s1]').getAttribute('aria-pressed')") == "false"
    assert chromium.errors() == []
