"""The paper's figures show the numbers of the table, whatever part of it there is."""

import itertools

import matplotlib.image
import numpy as np
import pytest
from scipy import stats

from experiments import draw
from experiments.draw import IQM, MEAN, draw_figure, draw_iqm, panel_rows, paper_figure
from experiments.paper import FETCH, FIGURES, TRAINED_ON
from sonde._internal.errors import SondeError
from sonde.methods import METHODS
from sonde.runs.sweep import Results
from sonde.runs.sweep._results import KEYS

METRICS = ("max_epistemic", "max_epistemic_common", "mean_epistemic")


def rows_of(setting, method, values, metric):
    """Rows of a metric from `values` [S, T]; rounds count from 1."""
    pairs = np.ndenumerate(np.asarray(values, float))
    return [
        {"setting": setting, "method": method, "seed": seed, "round": t + 1, metric: float(value)} for (seed, t), value in pairs
    ]


def reference(setting, method, values, metric):
    return [row | {"round": 0} for row in rows_of(setting, method, np.reshape(values, (-1, 1)), metric)]


def all_results(seeds=4, rounds=6, without=()):
    """Every panel of every figure, with curves that go up and down."""
    draws, merged = np.random.default_rng(0), {}
    panels = {(panel.setting, panel.metric) for name in FIGURES for row in panel_rows(name) for panel in row}
    for (setting, metric), method in itertools.product(sorted(panels), draw.NAMES):
        noise = draws.normal(size=(seeds, rounds))
        for row in rows_of(setting, method, 50 * noise if metric.startswith("return/") else np.exp(noise), metric):
            if setting not in without and (setting, method) not in without:
                merged.setdefault(tuple(row[key] for key in KEYS), {}).update(row)
    return Results(merged.values())


def axes_of(name, results, summary=MEAN):
    """The axes of each panel, by setting and metric."""
    figure = paper_figure(name, results, summary, "a note")
    panels = [panel for row in panel_rows(name) for panel in row]
    return {(p.setting, p.metric): ax for p, ax in zip(panels, figure.axes, strict=False)}


def line(ax, label):
    (found,) = [line for line in ax.get_lines() if line.get_label() == label]
    return found


def height(ax, label):
    (low, high) = line(ax, label).get_ydata()
    assert low == high
    return low


def band(ax, i=0):
    """Lower and upper end of the band in each round."""
    (path,) = ax.collections[i].get_paths()
    rounds = sorted(set(path.vertices[:, 0]))
    ends = [path.vertices[path.vertices[:, 0] == t, 1] for t in rounds]
    return [end.min() for end in ends], [end.max() for end in ends]


def texts(figure):
    figure.draw_without_rendering()
    return [text.get_text() for ax in figure.axes for text in ax.texts]


RETURNS = np.array([[1.0, 5, 2, 8], [2, -4, 6, 3], [30, 1, 0, 40]])


def test_return_is_drawn_best_so_far_with_two_standard_errors_and_its_current_value_thin():
    results = Results(rows_of("reacher", "opax", RETURNS, "return/reach"))
    ax = axes_of("downstream", results)["reacher", "return/reach"]
    best = np.array([[1.0, 5, 5, 8], [2, 2, 6, 6], [30, 30, 30, 40]])
    np.testing.assert_allclose(line(ax, "OpAx").get_ydata(), best.mean(axis=0))
    np.testing.assert_array_equal(line(ax, "OpAx").get_xdata(), [1, 2, 3, 4])
    np.testing.assert_allclose(line(ax, "_current OpAx").get_ydata(), RETURNS.mean(axis=0))
    assert line(ax, "OpAx").get_linewidth() > 2 * line(ax, "_current OpAx").get_linewidth()
    low, high = band(ax)
    np.testing.assert_allclose(low, best.mean(axis=0) - 2 * stats.sem(best))
    np.testing.assert_allclose(high, best.mean(axis=0) + 2 * stats.sem(best))


def test_success_rate_is_drawn_as_it_is():
    values = np.array([[0.1, 0.6, 0.2], [0.3, 0.4, 0.3]])
    results = Results(rows_of("fetch-construction", "cee-us", values, "success/flip"))
    ax = axes_of("manipulation", results)["fetch-construction", "success/flip"]
    np.testing.assert_allclose(line(ax, "CEE-US").get_ydata(), values.mean(axis=0))
    assert ax.get_yscale() == "linear" and len(ax.get_lines()) == 1
    assert [[panel.kind for panel in row] for row in panel_rows("manipulation")] == [["success"] * 3, ["interaction"] * 3]


def test_tasks_evaluated_once_are_points_side_by_side_among_all_rounds():
    rows = [
        row for method in ("cee-us", "random") for row in rows_of(FETCH, method, np.full((1, 37), 0.2), "interaction/moving")
    ]
    rows = [row | ({"success/throw": 0.0} if row["round"] == 25 else {}) for row in rows]
    axes = axes_of("manipulation", Results(rows))
    ax, play = axes[FETCH, "success/throw"], axes[FETCH, "interaction/moving"]
    (first,), (second,) = (line(ax, name).get_xdata() for name in ("CEE-US", "Random"))
    assert 24 < first < second < 26 and first + second == pytest.approx(50)
    assert ax.get_xlim() == pytest.approx(play.get_xlim(), abs=1) and ax.get_xlim()[0] < 1 and ax.get_xlim()[1] > 37
    assert "25 rounds" in ax.get_xlabel() and "37 rounds" in play.get_xlabel()
    for shown in (ax, play):  # nothing is below no success
        low, high = shown.get_ylim()
        assert -0.1 * high < low < 0
    np.testing.assert_array_equal(line(play, "CEE-US").get_xdata(), np.arange(1, 38))


@pytest.mark.slow
def test_uncertainty_is_drawn_as_it_is_on_a_logarithmic_axis():
    values = np.array([[4.0, 1, 2], [2, 3, 0.1]])
    results = Results(rows_of("pendulum-gp", "random", values, "max_epistemic"))
    ax = axes_of("uncertainty", results)["pendulum-gp", "max_epistemic"]
    np.testing.assert_allclose(line(ax, "Random").get_ydata(), values.mean(axis=0))
    assert ax.get_yscale() == "log"
    low, high = band(ax)
    np.testing.assert_allclose(high, values.mean(axis=0) + 2 * stats.sem(values))
    assert low[-1] == ax.get_ylim()[0]  # it would reach below zero


def test_figure_shows_only_its_own_methods():
    results = Results(rows_of("pendulum-gp", "random", np.ones((2, 2)), "max_epistemic"))
    ax = axes_of("rewards", results)["pendulum-gp", "max_epistemic"]
    assert [text.get_text() for text in ax.texts] == ["not run yet"] and not ax.get_lines()


def test_second_picture_shows_the_interquartile_mean_inside_its_interval():
    values = np.random.default_rng(1).normal(size=(8, 5)).cumsum(axis=1)
    results = Results(rows_of("reacher", "opax", values, "return/reach"))
    ax = axes_of("downstream", results, IQM)["reacher", "return/reach"]
    best = np.sort(np.maximum.accumulate(values, axis=1), axis=0)
    drawn = line(ax, "OpAx").get_ydata()
    np.testing.assert_allclose(drawn, best[2:6].mean(axis=0))
    low, high = band(ax)
    assert (low < drawn).all() and (drawn < high).all()
    assert (low >= best[0]).all() and (high <= best[-1]).all()


@pytest.mark.parametrize("summary", [MEAN, IQM])
def test_best_so_far_never_falls_and_lies_inside_the_panel(summary):
    for (_, metric), ax in axes_of("downstream", all_results(), summary).items():
        assert metric.startswith("return/")
        for name in ("OpAx", "Mean-AE", "PETS-AE", "H-UCRL", "Random"):
            values = line(ax, name).get_ydata()
            assert (np.diff(values) >= 0).all()
            assert ax.get_ylim()[0] < values.min() and values.max() < ax.get_ylim()[1]
            assert (line(ax, f"_current {name}").get_ydata() <= values + 1e-12).all()


def test_references_lie_at_their_means_inside_the_panel():
    rows = rows_of("mountain-car", "opax", [[10.0, 20], [30, 40]], "return/reach-goal")
    rows += reference("mountain-car", "oracle", [80.0, 100], "return/reach-goal")
    rows += reference("mountain-car", "random-actions", [-7.0, -5], "return/reach-goal")
    ax = axes_of("downstream", Results(rows))["mountain-car", "return/reach-goal"]
    assert height(ax, "oracle (true model)") == 90
    assert height(ax, "random actions") == -6
    assert ax.get_ylim()[0] < -6 and ax.get_ylim()[1] > 90
    assert line(ax, "random actions").get_linestyle() == ":"


def test_returns_that_hardly_differ_are_not_magnified():
    metric = "return/keep-down"
    rows = rows_of("pendulum-pe", "opax", [[-0.0010, -0.0009], [-0.0012, -0.0011]], metric)
    rows += rows_of("pendulum-pe", "random", [[-0.0030, -0.0020], [-0.0025, -0.0019]], metric)
    low, high = axes_of("downstream", Results(rows))["pendulum-pe", metric].get_ylim()
    assert high - low >= 1
    rows += reference("pendulum-pe", "random-actions", [-40.0], metric)
    low, high = axes_of("downstream", Results(rows))["pendulum-pe", metric].get_ylim()
    assert low < -40


def test_wide_band_does_not_squeeze_the_lines():
    values = [[0.0, 1000], [10, -1000], [20, 30]]
    rows = rows_of("reacher", "opax", values, "return/reach") + rows_of("reacher", "random", [[0.0, 20]] * 3, "return/reach")
    ax = axes_of("downstream", Results(rows))["reacher", "return/reach"]
    span = np.subtract(*ax.get_ylim()[::-1])
    drawn = np.concatenate([line(ax, name).get_ydata() for name in ("OpAx", "Random")])
    assert np.ptp(drawn) > 0.5 * span


@pytest.mark.slow
def test_panels_without_data_say_so_and_the_others_are_drawn():
    figure = paper_figure("downstream", all_results(without=("swimmer", ("cheetah", "h-ucrl"))), MEAN)
    assert texts(figure) == ["not run yet"] * 2
    cheetah = figure.axes[5]
    assert "H-UCRL" not in [line.get_label() for line in cheetah.get_lines()]
    assert texts(paper_figure("downstream", Results([]), IQM)) == ["not run yet"] * 9 + ["no scores yet"] * 3


def test_each_panel_says_how_many_seeds_and_rounds_it_has():
    rows = [row for m in ("opax", "random") for row in rows_of("reacher", m, np.ones((3, 4)), "return/reach")]
    rows += rows_of("reacher", "h-ucrl", np.ones((1, 2)), "return/reach")
    ax = axes_of("downstream", Results(rows))["reacher", "return/reach"]
    assert ax.get_xlabel() == "round (3 seeds, 4 rounds;\nH-UCRL: 1 seed, 2 rounds)"
    np.testing.assert_array_equal(line(ax, "H-UCRL").get_xdata(), [1, 2])
    assert ax.get_xlim()[1] > 4


def test_where_only_rounds_differ_their_range_is_shown():
    rows = [row for m, n in (("opax", 4), ("random", 6)) for row in rows_of("reacher", m, np.ones((3, n)), "return/reach")]
    assert axes_of("downstream", Results(rows))["reacher", "return/reach"].get_xlabel() == "round (3 seeds, 4 to 6 rounds)"


def test_rounds_without_evaluation_count_as_rounds():
    rows = [row | {"round": 3 * row["round"]} for row in rows_of("reacher", "opax", np.ones((2, 4)), "return/reach")]
    ax = axes_of("downstream", Results(rows))["reacher", "return/reach"]
    assert ax.get_xlabel() == "round (2 seeds, 12 rounds)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "drawing, name, seeds, rounds",
    [
        (draw_figure, "uncertainty", 1, 1),
        (draw_iqm, "uncertainty", 1, 3),
        (draw_figure, "downstream", 3, 1),
        (draw_iqm, "downstream", 1, 1),
        (draw_iqm, "manipulation", 1, 1),
        (draw_figure, "rewards", 1, 3),
        (draw_iqm, "rewards", 3, 1),
    ],
)
def test_one_seed_or_one_round_is_enough(drawing, name, seeds, rounds, tmp_path):
    drawing(name, all_results(seeds, rounds), tmp_path / "new" / "figure.png", "a note")
    assert matplotlib.image.imread(tmp_path / "new" / "figure.png").shape[1] > 1200


def test_one_seed_has_no_band():
    ax = axes_of("downstream", all_results(seeds=1))["reacher", "return/reach"]
    assert not any(len(path.vertices) for collection in ax.collections for path in collection.get_paths())


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_values_that_are_not_finite_leave_gaps(name):
    results = all_results()
    method = FIGURES[name].methods[0]
    for row in results.rows:
        if row["round"] == 3 and row["seed"] == 1 and row["method"] == method:
            row |= {key: np.nan for key in row if key in METRICS or "/" in key}
    for ax in axes_of(name, results).values():
        values = line(ax, draw.NAMES[method]).get_ydata()
        assert np.isfinite(values[:2]).all() and np.isnan(values[2])
        assert np.isfinite(ax.get_ylim()).all()


@pytest.mark.slow
def test_scores_are_points_between_random_actions_and_the_oracle():
    rows = rows_of("mountain-car", "opax", [[0.0, 75], [50, 75]], "return/reach-goal")
    rows += rows_of("mountain-car", "random", [[25.0, 0], [25, 10]], "return/reach-goal")
    rows += reference("mountain-car", "oracle", [100.0], "return/reach-goal")
    rows += reference("mountain-car", "random-actions", [0.0], "return/reach-goal")
    every, own, unseen = paper_figure("downstream", Results(rows), IQM).axes[9:12]
    for ax, panels in ((every, 9), (own, 6)):
        assert line(ax, "OpAx").get_xdata() == [0.75] and line(ax, "Random").get_xdata() == [0.25]
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["OpAx", "Random"]
        assert f"1 of {panels} panels" in ax.get_xlabel()
    assert [text.get_text() for text in unseen.texts] == ["no scores yet"]


@pytest.mark.slow
def test_scores_with_a_task_that_all_solve_are_hollow_beside_those_without():
    rows = rows_of("mountain-car", "opax", [[75.0], [75]], "return/reach-goal")
    rows += rows_of("mountain-car", "random", [[25.0], [25]], "return/reach-goal")
    for setting, metric in (("mountain-car", "return/reach-goal"), ("pendulum-pe", "return/keep-down")):
        rows += reference(setting, "oracle", [100.0], metric) + reference(setting, "random-actions", [0.0], metric)
    for method in ("opax", "random"):
        rows += rows_of("pendulum-pe", method, [[100.0], [100]], "return/keep-down")
    every, own, _ = paper_figure("downstream", Results(rows), IQM).axes[9:12]
    for ax in (every, own):
        for name, alone in (("OpAx", 0.75), ("Random", 0.25)):
            pooled = line(ax, f"_with all {name}")
            assert line(ax, name).get_xdata() == [alone]
            # the middle half of two runs of each panel
            assert pooled.get_xdata() == [pytest.approx((alone + 1) / 2)] and pooled.get_markerfacecolor() == "white"
        assert "1 of" in ax.get_xlabel() and "with (2), which every run solves" in ax.get_xlabel()


def test_panels_keep_the_papers_order_and_all_are_there():
    assert [len(row) for row in panel_rows("downstream")] == [3, 3, 3]
    assert [panel for row in panel_rows("downstream") for panel in row] == list(FIGURES["downstream"].panels)
    assert [panel for row in panel_rows("rewards") for panel in row] == list(FIGURES["rewards"].panels)
    assert [[(p.setting, p.metric) for p in row] for row in panel_rows("uncertainty")] == [
        [(setting, metric) for setting in ("pendulum-gp", "pendulum-pe")] for metric in METRICS
    ]
    assert {panel.task for panel in FIGURES["downstream"].panels[:6]} == set(TRAINED_ON.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_one_legend_names_every_method_and_the_note_stands_at_the_foot(name):
    figure = paper_figure(name, all_results(), MEAN, "10 seeds on two cores")
    (legend,) = [ax.get_legend() for ax in figure.axes if ax.get_legend()]
    names = [text.get_text() for text in legend.get_texts()]
    assert names[: len(FIGURES[name].methods)] == [draw.NAMES[method] for method in FIGURES[name].methods]
    assert figure.get_supxlabel() == "10 seeds on two cores"
    assert FIGURES[name].title in figure.get_suptitle() and "2 standard errors" in figure.get_suptitle()
    assert set(draw.NAMES) <= set(METHODS)


@pytest.mark.parametrize("drawing", [draw_figure, draw_iqm])
def test_what_cannot_be_drawn_is_rejected_before_any_work(drawing, tmp_path):
    with pytest.raises(SondeError, match=r"'figure\.bmp'.*\.png"):
        drawing("downstream", Results([]), tmp_path / "figure.bmp")
    with pytest.raises(SondeError, match=r"unknown figure 'figure-9'.*downstream"):
        drawing("figure-9", Results([]), tmp_path / "figure.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_full_picture_is_small_enough_for_a_readme(tmp_path):
    draw_figure("downstream", all_results(seeds=3, rounds=40), tmp_path / "figure.png", "a note " * 60)
    assert (tmp_path / "figure.png").stat().st_size < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("suffix, start", [("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_other_formats_follow_the_suffix(suffix, start, tmp_path):
    draw_figure("rewards", all_results(seeds=2, rounds=2), tmp_path / f"figure.{suffix}")
    assert (tmp_path / f"figure.{suffix}").read_bytes().startswith(start)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_overlaps(name):
    """Titles, labels, legend and note of neighbouring panels keep clear of each other."""
    rows = [row for row in all_results(rounds=12).rows if (row["method"], row["seed"]) != ("h-ucrl", 3)]
    rows += [row | {"method": "random-actions", "round": 0} for row in rows if row["round"] == 1]
    figure = paper_figure(name, Results(rows), IQM, "a note " * 60)
    assert texts(figure) == []
    figure.draw_without_rendering()
    boxes = [ax.get_tightbbox() for ax in figure.axes[:-1]] + [figure.axes[-1].get_legend().get_window_extent()]
    assert max(ax.get_tightbbox().x1 for ax in figure.axes[:-1]) > 0.98 * figure.bbox.x1  # no room is wasted
    boxes += [text.get_window_extent() for text in (figure._suptitle, figure._supxlabel)]
    for i, box in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])
