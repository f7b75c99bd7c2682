"""Figures exist, show what they should, and are rejected where there is nothing to show."""

import sys

import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from sonde import Confidence, Explorer, Method, SondeError, Trajectory
from sonde.evaluation import SCHEMA
from sonde.imagination import Optimistic
from sonde.methods import METHODS
from sonde.models import GaussianProcess, ProbabilisticEnsemble
from sonde.models._calibration import LEVELS
from sonde.objectives import InformationGain
from sonde.runs import RunConfig
from sonde.runs._store import RunStore
from sonde.runs.figures import draw_calibration, draw_curves, draw_run, draw_states
from sonde.runs.figures._calibration import AFTER, BEFORE, calibration_figure
from sonde.runs.figures._curves import curve, draw_panel, drawn_metrics, grouped, labels
from sonde.runs.figures._states import _draw_points, round_of, states_figure, uncertainty_field
from sonde.runs.figures._style import LOOKS, OTHER_LOOK, STYLE
from sonde.solvers import ICEM
from sonde.worlds import Pendulum, Plane, World

METRICS = [spec.key for spec in SCHEMA if spec.drawn and not spec.key.endswith("/*")]


def row(seed, round_number, **metrics):
    values = dict.fromkeys(METRICS, 1.0 / round_number + 0.1 * seed)
    return {"seed": seed, "round": round_number, **values, "return/swing-up": -100.0 / round_number, **metrics}


def fake_run(folder, method="opax", rows=None, **settings):
    store = RunStore.create(folder, RunConfig(method=METHODS[method] if isinstance(method, str) else method, **settings))
    seeds, rounds = store.config.seed_list, range(1, store.config.rounds + 1)
    rows = [row(s, e) for e in rounds for s in seeds] if rows is None else rows
    for number in sorted({row["round"] for row in rows}):
        store.append_metrics([row for row in rows if row["round"] == number])
        (store.folder / "checkpoints" / f"{number:04d}.json").touch()
    return store


def picture(path):
    """Pixels [height, width, 3] of a PNG that is not blank."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = matplotlib.image.imread(path)[..., :3]
    assert pixels.shape[0] > 400 and pixels.shape[1] > 600
    assert len(np.unique(np.rint(255 * pixels).astype(int) @ [1, 256, 65536])) > 20
    return pixels


def shows(pixels, colour):
    return bool((np.abs(pixels - to_rgb(colour)).max(axis=-1) < 0.01).any())


def small_explorer(holdout=0.0, steps=6):
    """Two seeds of a small model that was told two rounds; the seeds visited different places."""
    explorer = Explorer(
        METHODS["random"],
        GaussianProcess(hyperparameters="fixed", rank=0),
        ICEM(),
        Pendulum().spec,
        capacity=max(20, 2 * steps),
        seeds=(5, 6),
        confidence=Confidence(holdout=holdout),
    )
    plane = Pendulum().plane()
    angles = np.stack([np.linspace(-3.0, -2.0, steps), np.linspace(1.0, 2.0, steps)])
    for speed in (-1.0, 1.0):
        states = plane.to_state(angles, np.full_like(angles, speed))
        explorer.tell(Trajectory(states, np.zeros((2, steps, 1)), states))
    return explorer


@pytest.fixture(scope="module")
def explorer():
    return small_explorer()


@pytest.fixture(scope="module")
def explorer_with_holdout():
    """The same with longer rounds, of which the second block is held out."""
    return small_explorer(holdout=0.5, steps=20)


def test_curve_is_the_mean_over_seeds_with_two_standard_errors():
    rows = [row(s, e, m=value) for e, values in ((1, (1.0, 2.0, 6.0)), (2, (4.0, 4.0, 4.0))) for s, value in enumerate(values)]
    rounds, mean, band = curve(rows, "m")
    np.testing.assert_array_equal(rounds, [1, 2])
    np.testing.assert_allclose(mean, [3.0, 4.0])
    # variance (4 + 1 + 9) / 2 = 7, standard error sqrt(7 / 3)
    np.testing.assert_allclose(band, [2 * np.sqrt(7 / 3), 0.0])


def test_curve_leaves_out_missing_values():
    rows = [row(0, 2, m=1.0), row(1, 2, m=3.0), row(0, 1, m=None), row(1, 1, m=5.0), row(0, 3), row(1, 3, m=float("nan"))]
    rounds, mean, band = curve(rows, "m")
    np.testing.assert_array_equal(rounds, [1, 2])
    np.testing.assert_allclose(mean, [5.0, 2.0])
    np.testing.assert_allclose(band, [np.nan, 2.0])  # one seed says nothing about the spread
    assert all(part.size == 0 for part in curve(rows, "unheard of"))


def test_seeds_of_runs_with_the_same_config_are_pooled(tmp_path):
    stores = [
        fake_run(tmp_path / "a", seeds=2),
        fake_run(tmp_path / "b", seeds=3, first_seed=2, rounds=4),
        fake_run(tmp_path / "wide", Method(Optimistic(beta=5.0), InformationGain())),
        fake_run(tmp_path / "again", seeds=2),
        fake_run(tmp_path / "random", method="random"),
    ]
    groups = grouped(stores)
    assert [group.seeds for group in groups] == [{0, 1, 2, 3, 4}, {0}, {0, 1}, {0}]
    assert labels(groups) == [
        "opax in a and 1 more (5 seeds)",
        "opax in wide (1 seed)",
        "opax in again (2 seeds)",
        "random (1 seed)",
    ]


def test_legend_distinguishes_folders_of_the_same_name(tmp_path):
    stores = [fake_run(tmp_path / parent / "run") for parent in ("x", "y")]
    stores.append(fake_run(tmp_path / "task", method="h-ucrl", exploration_task="swing-up"))
    assert labels(grouped(stores)) == ["opax in x/run (1 seed)", "opax in y/run (1 seed)", "h-ucrl for swing-up (1 seed)"]


def test_colours_and_markers_are_all_different():
    looks = [*LOOKS.values(), OTHER_LOOK]
    assert LOOKS.keys() <= METHODS.keys()  # other methods have the last look
    assert all(len(set(part)) == len(looks) for part in zip(*looks, strict=True))


@pytest.mark.slow
def test_curves_show_every_method_in_its_colour(tmp_path):
    stores, model = [], ProbabilisticEnsemble()  # the one that all methods can use
    for place, method in enumerate(LOOKS):
        rows = [row(seed, round_number, model_rmse=1.0 + place) for seed in (0, 1) for round_number in (1, 2, 3)]
        task = "swing-up" if method == "h-ucrl" else None
        stores.append(fake_run(tmp_path / method, method, rows, exploration_task=task, model=model))
    out = tmp_path / "new" / "curves.png"
    draw_curves(stores, out)
    pixels = picture(out)
    assert all(shows(pixels, colour) for colour, _ in LOOKS.values())
    assert [path.name for path in out.parent.iterdir()] == ["curves.png"]  # no temporary file is left
    draw_curves(stores[:1], out)  # replaces
    pixels = picture(out)
    assert shows(pixels, LOOKS["opax"][0]) and not shows(pixels, LOOKS["pets-ae"][0])


def test_run_without_a_metric_is_drawn_beside_others(tmp_path):
    silent = [
        {key: value for key, value in row(0, round_number).items() if not key.startswith("return/")} for round_number in (1, 2)
    ]
    draw_curves([fake_run(tmp_path / "a"), fake_run(tmp_path / "b", "random", silent)], tmp_path / "curves.png")
    assert shows(picture(tmp_path / "curves.png"), LOOKS["random"][0])


@pytest.mark.parametrize("rounds", [1, 12, 13, 60])
def test_at_most_twelve_markers_per_line_and_none_at_the_same_round(tmp_path, rounds):
    folders = [fake_run(tmp_path / method, method, rounds=rounds) for method in ("opax", "mean-ae")]
    ax = Figure().subplots()
    groups = grouped(folders)
    key, spec = list(drawn_metrics(groups).items())[-1]
    draw_panel(ax, key, spec, groups)
    marked = [set(line.get_xdata()[start::every]) for line in ax.lines for start, every in [line.get_markevery()]]
    assert all(1 <= len(places) <= 12 for places in marked)
    assert marked[0] == marked[1] if rounds <= 12 else marked[0].isdisjoint(marked[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"max_epistemic": None},
        {"max_epistemic": 0.0, "mean_epistemic": 0.0},
        {"model_rmse": 1e-9},
        {"return/swing-up": -3e-28},
        {key: None for key in (*METRICS, "return/swing-up") if key != "model_rmse"},
    ],
)
def test_curves_with_missing_zero_and_tiny_values_are_drawn(tmp_path, change):
    rows = [row(s, e, **(change if e > 1 or len(change) > 2 else {})) for e in (1, 2, 3) for s in (0, 1)]
    store = fake_run(tmp_path / "run", rows=rows)
    draw_curves([store], tmp_path / "curves.png")
    picture(tmp_path / "curves.png")


def test_curves_of_one_round_without_evaluation_show_all_other_metrics(tmp_path):
    plain = {key: value for key, value in row(0, 1).items() if not key.startswith("return/")}
    store = fake_run(tmp_path / "run", rows=[plain])
    assert list(drawn_metrics(grouped([store]))) == METRICS
    draw_curves([store], tmp_path / "curves.png")
    picture(tmp_path / "curves.png")


def test_band_that_reaches_below_zero_is_drawn(tmp_path):
    rows = [row(s, e, model_rmse=value) for e in (1, 2) for s, value in ((0, 1e-3), (1, 10.0))]
    draw_curves([fake_run(tmp_path / "run", rows=rows)], tmp_path / "curves.png")
    picture(tmp_path / "curves.png")


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "start"), [(".pdf", b"%PDF"), (".svg", b"<?xml"), (".PNG", b"\x89PNG")])
def test_format_follows_the_suffix(tmp_path, suffix, start):
    out = tmp_path / f"curves{suffix}"
    draw_curves([fake_run(tmp_path / "run")], out)
    assert out.read_bytes().startswith(start)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["curves.bmp", "curves"])
def test_unknown_suffix_is_rejected(tmp_path, explorer, explorer_with_holdout, name):
    for draw in (
        lambda: draw_curves([fake_run(tmp_path / "run")], tmp_path / name),
        lambda: draw_states(explorer, Pendulum(), tmp_path / name),
        lambda: draw_calibration(explorer_with_holdout, Pendulum(), tmp_path / name),
    ):
        with pytest.raises(SondeError, match=r"\.pdf, \.png, \.svg"):
            draw()
    assert not (tmp_path / name).exists()


def test_run_without_a_round_is_rejected(tmp_path):
    with pytest.raises(SondeError, match=r"new has no finished round"):
        draw_curves([fake_run(tmp_path / "run"), fake_run(tmp_path / "new", rows=[])], tmp_path / "curves.png")
    with pytest.raises(SondeError, match="none of the metrics"):
        draw_curves([fake_run(tmp_path / "odd", rows=[{"seed": 0, "round": 1}])], tmp_path / "curves.png")
    with pytest.raises(SondeError, match="no run"):
        draw_curves([], tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.slow
def test_field_is_the_uncertainty_of_the_first_seed(explorer):
    plane = Pendulum().plane()
    # rows: where the first seed went, where the second went; a third axis shows that any shape works
    states = plane.to_state(np.array([[[-2.6]], [[1.4]]]), np.full((2, 1, 1), 1.0))
    field = uncertainty_field(explorer.posterior, states, 1)
    assert field.shape == (2, 1, 1) and field.dtype == np.float64
    assert field[0] < 0.1 * field[1]
    with jax.enable_x64(True):
        first = jax.tree.map(lambda leaf: leaf[0], explorer.posterior)
        direct = [jnp.linalg.norm(first.predict(x, jnp.zeros(1)).epistemic_std) for x in jnp.asarray(states.reshape(2, 3))]
    np.testing.assert_allclose(field.ravel(), direct, rtol=1e-6)


@pytest.mark.slow
def test_draw_run_writes_curves_and_states(tmp_path, explorer):
    store = fake_run(tmp_path / "run", seeds=2, rounds=2)
    paths = draw_run(store, explorer)
    assert paths == [store.folder / "figures" / name for name in ("curves.png", "states.png")]
    for path in paths:
        picture(path)
    first, last = matplotlib.colormaps["plasma"]([0.0, 1.0])[:, :3]
    states = picture(paths[1])
    assert shows(states, first) and shows(states, last)


@pytest.mark.slow
def test_states_of_rounds_of_unequal_length_are_drawn(tmp_path):
    explorer = Explorer(METHODS["random"], GaussianProcess(hyperparameters="fixed"), ICEM(), Pendulum().spec, capacity=9)
    with pytest.raises(SondeError, match="no finished round"):
        draw_states(explorer, Pendulum(), tmp_path / "states.png")
    for steps in (2, 3):
        states = np.tile([-1.0, 0.0, 0.0], (steps, 1))
        explorer.tell(Trajectory(states, np.zeros((steps, 1)), states))
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    draw_states(explorer, Pendulum(), tmp_path / "states.png")
    picture(tmp_path / "states.png")
    before = len(compiled)
    draw_states(explorer, Pendulum(), tmp_path / "states.png")
    assert 0 < before == len(compiled), "programs that pile up use up the memory maps of a process"


@pytest.mark.slow
def test_initial_data_belong_to_no_round(tmp_path):
    rng = np.random.default_rng(0)

    def measured(steps, place):
        states = rng.normal(place, 0.1, (steps, 3))
        return Trajectory(states, rng.uniform(-1, 1, (steps, 1)), states)

    initial, told = measured(5, 3.0), [measured(4, 1.0), measured(4, 2.0)]  # for example two rollouts of two steps each
    model = GaussianProcess(hyperparameters="fixed")
    fresh = lambda: Explorer(METHODS["random"], model, ICEM(), Pendulum().spec, capacity=13)
    explorer, restored = fresh(), fresh()
    explorer.start_from(initial)
    with pytest.raises(SondeError, match="no finished round"):
        draw_states(explorer, Pendulum(), tmp_path / "states.png")
    for trajectory in told:
        explorer.tell(trajectory)
    restored.restore(told, explorer.params, initial)
    # two of the three numbers, which do not determine a state; the ranges are those of the visited states
    plane = Plane("a", "b", from_state=lambda states: (states[..., 0], states[..., 2]))
    for case in (explorer, restored):
        np.testing.assert_array_equal(round_of(case), [0] * 5 + [1] * 4 + [2] * 4)
        figure = states_figure(case, plane)
        ax = figure.axes[0]
        before, rounds = ax.collections
        np.testing.assert_allclose(before.get_offsets(), initial.states[:, [0, 2]])
        np.testing.assert_allclose(rounds.get_offsets(), np.concatenate([t.states for t in told])[:, [0, 2]])
        np.testing.assert_array_equal(rounds.get_array(), [1] * 4 + [2] * 4)
        assert len(figure.axes) == 2 and "uncertainty" not in ax.get_title()  # of the colour bars, only that of rounds
        for limits, column in ((ax.get_xlim(), 0), (ax.get_ylim(), 2)):
            visited = np.concatenate([initial.states, *(t.states for t in told)])[:, column]
            assert visited.min() - 0.3 < limits[0] < visited.min() and visited.max() < limits[1] < visited.max() + 0.3
    over_field = states_figure(explorer, Pendulum().plane())
    assert len(over_field.axes) == 3 and "uncertainty" in over_field.axes[0].get_title()


@pytest.mark.slow
def test_world_without_a_plane_has_no_figure_of_states(tmp_path, explorer, monkeypatch):
    monkeypatch.setattr(Pendulum, "plane", World.plane)
    with pytest.raises(SondeError, match="cannot be drawn in two dimensions"):
        draw_states(explorer, Pendulum(), tmp_path / "states.png")
    store = fake_run(tmp_path / "run")
    assert draw_run(store, explorer) == [store.folder / "figures" / "curves.png"]


def shares(*gaps):
    """Coverage [S, L, dx] that differs from the stated level by gaps [S][dx]."""
    return LEVELS[:, None] + np.asarray(gaps)[:, None, :]


def lines_of(ax, look):
    """The bold line of a look, and the thin ones."""
    label, colour, _ = look
    lines = [line for line in ax.lines if line.get_color() == colour]
    (bold,) = [line for line in lines if line.get_label() == label]
    return bold, [line for line in lines if line is not bold]


def test_calibration_shows_seeds_their_mean_and_the_error():
    before, after = shares([0.1, 0.05, -0.1], [-0.06, 0.05, -0.1]), shares([0.02, 0.0, 0.0], [0.04, 0.0, 0.0])
    figure = calibration_figure(before, after, ("a", "b", "c"))
    assert len(figure.axes) == 3
    first = figure.axes[0]
    assert first.get_title() == "a\ncalibration error 0.080 → 0.030"  # the gaps of two seeds do not cancel
    assert [ax.get_title().splitlines()[0] for ax in figure.axes] == ["a", "b", "c"]
    for look, gaps in ((BEFORE, (0.1, -0.06)), (AFTER, (0.02, 0.04))):
        bold, thin = lines_of(first, look)
        np.testing.assert_allclose(bold.get_xydata().T, (LEVELS, LEVELS + np.mean(gaps)))
        np.testing.assert_allclose([line.get_ydata() for line in thin], [LEVELS + gap for gap in gaps])
        assert all(line.get_linewidth() < bold.get_linewidth() for line in thin)
    (diagonal,) = [line for line in first.lines if line.get_label() == "stated level"]
    np.testing.assert_array_equal(*diagonal.get_data())
    bold, thin = lines_of(calibration_figure(before[:1], after[:1], ("a", "b", "c")).axes[2], BEFORE)
    assert not thin  # a single seed is its own mean
    np.testing.assert_allclose(bold.get_ydata(), LEVELS - 0.1)


@pytest.mark.parametrize(("outputs", "panels"), [(1, 1), (5, 5), (8, 8), (10, 1)])
def test_calibration_of_many_outputs_shows_their_mean(outputs, panels):
    gaps = [0.08 if i % 2 else -0.08 for i in range(outputs)]
    figure = calibration_figure(shares(gaps), shares([0.0] * outputs), [f"x{i}" for i in range(outputs)])
    drawn = [ax for ax in figure.axes if ax.lines]
    assert len(drawn) == panels
    # too wide for one output and too narrow for another do not cancel in the error, even if they do in the mean
    assert drawn[0].get_title().endswith("0.080 → 0.000")
    expected = LEVELS if panels < outputs else LEVELS - 0.08
    np.testing.assert_allclose(lines_of(drawn[0], BEFORE)[0].get_ydata(), expected)


@pytest.mark.slow
def test_draw_run_writes_calibration_if_measurements_were_held_out(tmp_path, explorer_with_holdout):
    store = fake_run(tmp_path / "run", seeds=2, rounds=2)
    path = draw_run(store, explorer_with_holdout)[-1]
    assert path == store.folder / "figures" / "calibration.png"
    pixels = picture(path)
    assert shows(pixels, BEFORE[1]) and shows(pixels, AFTER[1])


@pytest.mark.slow
def test_without_held_out_measurements_there_is_no_figure_of_calibration(tmp_path, explorer):
    few = small_explorer(holdout=0.01)  # of 12
    assert few.calibration is not None
    for case in (explorer, few):
        with pytest.raises(SondeError, match="no measurement was held out"):
            draw_calibration(case, Pendulum(), tmp_path / "calibration.png")
        store = fake_run(tmp_path / str(id(case)))
        assert [path.name for path in draw_run(store, case)] == ["curves.png", "states.png"]


def test_plane_of_the_pendulum_is_inverted_by_its_inverse():
    plane = Pendulum().plane()
    angle, speed = np.meshgrid(np.linspace(-3.1, 3.1, 7), np.linspace(*plane.y_range, 5))
    states = plane.to_state(angle, speed)
    assert states.shape == (5, 7, 3)
    np.testing.assert_allclose(plane.from_state(states), (angle, speed), atol=1e-12)
    hanging = [at for at, word in plane.x_ticks if "hanging" in word]
    start = np.asarray(Pendulum().reset(jax.random.key(0)))
    for at in hanging:
        np.testing.assert_allclose(plane.to_state(np.array(at), np.array(0.0)), start, atol=1e-7)


def test_drawing_does_not_touch_pyplot(tmp_path, monkeypatch):
    # another test may have imported it: drawing must not import it again
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    before = [matplotlib.rcParams[name] for name in STYLE]
    draw_curves([fake_run(tmp_path / "run")], tmp_path / "curves.png")
    assert "matplotlib.pyplot" not in sys.modules
    assert [matplotlib.rcParams[name] for name in STYLE] == before


def test_grouping_ignores_only_settings_that_do_not_change_a_round(tmp_path):
    base = {"seeds": 1, "rounds": 3}
    other_horizon = fake_run(tmp_path / "b", first_seed=1, horizon=50, **base)
    other_task_steps = fake_run(tmp_path / "c", first_seed=2, evaluation_horizon=50, **base)
    rarely = fake_run(tmp_path / "d", first_seed=3, evaluate_every=2, capacity=1000, **base)
    first = fake_run(tmp_path / "a", **base)
    groups = grouped([first, other_horizon, other_task_steps, rarely])
    assert [len(group.seeds) for group in groups] == [2, 1, 1]


def test_each_of_many_rounds_has_a_colour():
    rounds = np.arange(1, 301)
    points = _draw_points(Figure().subplots(), rounds * 1.0, rounds * 1.0, rounds)
    colours = points.to_rgba(rounds)
    assert len(np.unique(colours, axis=0)) > 250 and not np.array_equal(colours[254], colours[299])
