"""Films show what happened, appear whole or not at all, and are rejected before any work where they cannot be made."""

import importlib.util
import subprocess
from dataclasses import dataclass, replace

import imageio.v3 as imageio
import jax.numpy as jnp
import numpy as np
import pytest
from imageio_ffmpeg import get_ffmpeg_exe
from PIL import Image

from command_line import call
from sonde import METHODS, SondeError, TaskSetup, evaluate
from sonde._internal.randomness import round_keys
from sonde.models import GaussianProcess
from sonde.runs._run import build_explorer, collect
from sonde.runs._store import RunStore
from sonde.runs.figures import _film
from sonde.runs.figures._film import Film, captioned, check_film, write_film
from sonde.solvers import ICEM
from sonde.worlds import HostWorld, JaxWorld, MountainCar, Pendulum, Simulators, Stepped
from tiny import TINY

BLUE = (0, 114, 178)  # of bob and car


def centre_of(picture, colour=BLUE):
    """Where the pixels of that colour are: (row, column)."""
    rows, columns = np.nonzero(np.abs(picture.astype(int) - colour).max(axis=-1) < 60)
    assert len(rows) > 50
    return rows.mean(), columns.mean()


@pytest.mark.parametrize(
    ("theta", "place"), [(0.0, (52, 200)), (np.pi, (348, 200)), (np.pi / 2, (200, 52)), (-np.pi / 2, (200, 348))]
)
def test_pendulum_shows_its_angle(theta, place):
    picture = Pendulum().render(np.array([np.cos(theta), np.sin(theta), 3.0]))
    assert picture.shape == (400, 400, 3) and picture.dtype == np.uint8
    np.testing.assert_allclose(centre_of(picture), place, atol=3)


def test_mountain_car_shows_its_position():
    valley, summit, wall = (centre_of(MountainCar().render(np.array([at, 0.0]))) for at in (-np.pi / 6, np.pi / 6, -1.2))
    unit = 400 / 2.16  # pixels; in the valley and on the summit the car stands level, above its place
    np.testing.assert_allclose(summit[1] - valley[1], np.pi / 3 * unit, atol=2)
    np.testing.assert_allclose(valley[0] - summit[0], 2 * 0.45 * unit, atol=2)  # rows count downwards
    assert wall[1] < 60 and valley[0] - 120 < wall[0] < valley[0] - 50


def decoded(film):
    """Frames of an .mp4. (imageio can read it too, but forks this process to do so, and JAX warns of that.)"""
    folder = film.parent.parent / "frames"
    folder.mkdir()
    command = [get_ffmpeg_exe(), "-i", film, "-fps_mode", "passthrough", folder / "%03d.png"]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stderr
    assert "Video: h264" in said and "yuv420p" in said and "20 fps" in said
    return np.stack([imageio.imread(path) for path in sorted(folder.iterdir())])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two seeds after one round of random actions."""
    model = GaussianProcess(hyperparameters="fixed", rank=0)
    config = replace(TINY, method=METHODS["random"], rounds=1, seeds=2, model=model)
    store, explorer = RunStore.create(tmp_path_factory.mktemp("film") / "run", config), build_explorer(config)
    _, trajectory = collect(config, explorer)
    explorer.tell(trajectory)
    store.save_data(1, trajectory)
    store.save_checkpoint(1, explorer.params)
    return store.folder


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_evaluate_films_the_episode(finished, tmp_path, monkeypatch, capsys, suffix):
    out = tmp_path / "new" / f"swing{suffix}"
    assert call(monkeypatch, "evaluate", str(finished), "--task", "swing-up", "--video", str(out)) == 0
    assert "Video:" in capsys.readouterr().out
    assert [path.name for path in out.parent.iterdir()] == [out.name]  # no temporary file is left
    frames = imageio.imread(out) if suffix == ".gif" else decoded(out)
    height, width = frames.shape[1:3]
    assert frames.shape == (TINY.evaluation_horizon + 1, height, 400, 3) and height > 400 and height % 2 == width % 2 == 0
    changes = np.abs(np.diff(frames.astype(int), axis=0)).max(axis=(1, 2, 3))
    assert (changes > 100).all()  # at least the number of the step
    band = height - 400
    start, end = centre_of(frames[0, band:]), centre_of(frames[-1, band:])
    np.testing.assert_allclose(start, (348, 200), atol=3)  # hanging
    assert abs(end[1] - start[1]) > 2


def test_frame_rate_is_that_of_the_world(finished, tmp_path, monkeypatch):
    assert Pendulum().seconds_per_step == 0.05 and MountainCar().seconds_per_step is None
    seen = []
    monkeypatch.setattr(_film, "write_film", lambda frames, out, per_second: seen.append((len(list(frames)), per_second)))
    for seconds in (0.05, 0.1, None, 0.008):
        monkeypatch.setattr(Pendulum, "seconds_per_step", seconds)
        assert call(monkeypatch, "evaluate", str(finished), "--task", "swing-up", "--video", str(tmp_path / "a.gif")) == 0
    # 125 frames in a second are more than a player shows: of 11 every third is taken, and the last
    assert seen == [(11, 20.0), (11, 10.0), (11, 20.0), (5, pytest.approx(125 / 3))]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("film.avi", r"\.mp4, \.gif"),
        ("film", r"\.mp4, \.gif"),
        ("folder.gif", "is a folder"),
        ("file/film.gif", "not a folder"),
    ],
)
def test_film_that_cannot_be_written_is_rejected_before_any_work(finished, tmp_path, monkeypatch, capsys, name, message):
    (tmp_path / "folder.gif").mkdir()
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr("sonde.runs._run.restore_explorer", lambda *_: pytest.fail("work was done"))
    assert call(monkeypatch, "evaluate", str(finished), "--task", "swing-up", "--video", str(tmp_path / name)) == 2
    with pytest.raises(SondeError, match=message):
        check_film(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.gif"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_film_that_fails_keeps_the_old_one_and_no_temporary_file(tmp_path, suffix):
    out = tmp_path / f"film{suffix}"
    out.write_bytes(b"old")

    def frames():
        for shade in (0, 90):
            yield np.full((64, 64, 3), shade, np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_film(frames(), out, 20.0)
    assert out.read_bytes() == b"old" and [path.name for path in tmp_path.iterdir()] == [out.name]


def test_error_of_the_encoder_is_reported(tmp_path):
    odd = [np.zeros((31, 31, 3), np.uint8)] * 200
    with pytest.raises(SondeError, match=r"ffmpeg could not write the film: .*not divisible by 2"):
        write_film(odd, tmp_path / "film.mp4", 20.0)
    assert not list(tmp_path.iterdir())


def test_mp4_without_its_extra_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SondeError, match=r"pip install '\.\[render\]'"):
        check_film(tmp_path / "film.mp4")
    check_film(tmp_path / "film.gif")


def test_caption_makes_height_and_width_even_and_cuts_long_titles():
    picture = np.full((61, 85, 3), 120, np.uint8)
    short, long = (captioned(picture, title, "step 1 of 2", "return 3.0") for title in ("go", "go " * 99))
    assert short.shape == long.shape and not any(side % 2 for side in short.shape[:2])
    top = short.shape[0] - 61 - (short.shape[0] - 61) % 2
    assert (short[top + 2 : top + 60, :85] == 120).all()
    assert (short != long).any() and (long[:, 84:] == short[:, 84:]).all()  # nothing runs into the edge


@dataclass(frozen=True)
class Counter(HostWorld):
    """Counts steps and terminates after three; its picture is as bright as the count, and 200 before the first."""

    state_names = ("count",)
    action_names = ("nothing",)
    tasks = {"count": lambda x, u, x_next: x_next[0]}
    seconds_per_step = 0.1

    def reachable(self):
        """Not needed here."""

    def open(self, num_copies):
        return Counting(num_copies)


class Counting(Simulators):
    def __init__(self, num_copies):
        self.count, self.memory = np.zeros((num_copies, 1)), np.zeros((40, 60, 3), np.uint8)

    def reset(self, seeds):
        self.count = np.zeros_like(self.count)
        return self.count

    def step(self, actions):
        self.count = self.count + 1
        terminated = self.count[:, 0] == 3
        return Stepped(self.count, terminated, np.zeros_like(terminated))

    def restart(self, which):
        self.count = np.where(which[:, None], 0.0, self.count)
        return self.count

    def render(self):
        self.memory[...] = 200 if self.count[0, 0] == 0 else 20 * self.count[0, 0]  # into the same memory, as renderers do
        return self.memory


def test_host_world_is_filmed_while_it_runs_until_its_first_episode_ends(tmp_path):
    world, out = Counter(), tmp_path / "count.gif"
    filming = Film(out, world)
    played = evaluate(TaskSetup.named(world, "count", ICEM(), 5), None, round_keys((0, 1), 0), on_step=filming)
    np.testing.assert_array_equal(played.rewards, [[1, 2, 3]] * 2)
    filming.save("count", played)
    frames = imageio.imread(out)
    assert len(frames) == 3
    np.testing.assert_array_equal(frames[:, -5, 30, 0], [20, 40, 60])  # the last state, not the one after the restart
    with Image.open(out) as image:
        assert image.info["duration"] == 100


class Bare(JaxWorld):
    """No picture."""

    state_names = action_names = ("x",)
    reset = lambda self, key: jnp.zeros(1)
    dynamics = lambda self, x, u: x
    step = lambda self, x, u, key: x
    reachable_points = lambda self: (np.zeros((1, 1)), np.zeros((1, 1)))


class Wrong(Bare):
    tasks = {"any": lambda x, u, x_next: x[0]}
    render = lambda self, x: np.zeros((4, 4))


def test_worlds_without_a_picture_are_rejected(tmp_path):
    with pytest.raises(SondeError, match="Bare cannot be filmed"):
        Film(tmp_path / "film.gif", Bare())
    filming = Film(tmp_path / "film.gif", Wrong())
    played = evaluate(TaskSetup.named(Wrong(), "any", ICEM(), 2), None, round_keys((0,), 0), on_step=filming)
    with pytest.raises(SondeError, match=r"uint8 \[height, width, 3\], got float64 \[4, 4\]"):
        filming.save("any", played)
    assert not list(tmp_path.iterdir())
