"""The gallery: its page follows from its numbers, its files are there and small, and its films show what was run."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from experiments.scripts import gallery
from experiments.scripts.gallery import EXHIBITS, EXPLORED, FOLDER, PAGE, Gallery, Recorder, first_seed, page
from sonde import Trajectory, explore
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.worlds import WORLDS, Pendulum
from tiny import TINY


def films() -> dict:
    return json.loads((FOLDER / "films.json").read_text())


def test_every_world_is_shown():
    shown = {type(exhibit.config.world) for exhibit in EXHIBITS}
    not_of_ours = ("own", "fmu", "delayed", "observed")  # a user's, and what is put around another world
    assert shown == {world for name, world in WORLDS.items() if name not in not_of_ours}


def test_the_page_is_made_from_the_films():
    assert PAGE.read_text() == page(films()), "run python -m experiments.scripts.gallery"


def test_every_film_of_the_page_is_kept_and_the_whole_is_small():
    known = {f"{exhibit.world}-{name}" for exhibit in EXHIBITS for name in (EXPLORED, *exhibit.tasks)}
    assert films().keys() <= known
    kept = {path.stem for path in FOLDER.glob("*.gif")}
    assert kept == films().keys()
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 6e6


def test_an_unsolved_task_is_called_that():
    row = {"preset": "p", "rounds": 1, "seed": 0, "method": "opax", "transitions": 5, "steps": 5, "faster": 1.0}
    task = row | {"task": "swing-up", "return": -1.0, "random": -2.0, "solved": False, "criterion": "upright"}
    shown = page({f"pendulum-{EXPLORED}": row, "pendulum-swing-up": task})
    assert "return -1.0, random actions -2.0. **Not solved** (upright)." in shown
    assert "**Solved**" not in shown


def test_a_film_has_few_frames_and_says_how_fast_it_is(tmp_path):
    world = Pendulum()
    states = np.tile([1.0, 0.0, 0.0], (1, 200, 1))
    recorder = Recorder(world, steps=200)
    faster = recorder.save(tmp_path / "film.gif", "swing-up", Trajectory(states, states[..., :1], states), np.ones(200))
    with Image.open(tmp_path / "film.gif") as film:
        frames, milliseconds = getattr(film, "n_frames", 1), film.info["duration"]
    # pictures that equal the one before may be merged into a longer one, but the captions differ
    assert frames == len(range(0, 200, recorder.every)) <= gallery.FRAMES
    assert faster == pytest.approx(world.time_step * recorder.every / (milliseconds / 1000))


def test_numbers_of_a_film_are_kept_beside_those_of_another_process(tmp_path):
    one, other = Gallery(tmp_path), Gallery(tmp_path)
    one.add("a", {"rounds": 1})
    other.add("b", {"rounds": 2})
    assert Gallery(tmp_path).films == {"a": {"rounds": 1}, "b": {"rounds": 2}}


@pytest.mark.slow
def test_the_first_seed_of_a_run_predicts_as_it_did_among_the_others(tmp_path):
    explore(replace(TINY, seeds=2, rounds=2, evaluate_every=0), tmp_path / "run")
    store = RunStore.open(tmp_path / "run")
    together, alone = restore_explorer(store), first_seed(store)
    x, u = np.array([0.6, 0.8, 3.0]), np.array([0.3])
    expected = together.predict(np.stack([x, x]), np.stack([u, u]))
    found = alone.predict(x, u)
    assert alone.seeds == (0,) and alone.round == 2
    np.testing.assert_allclose(found.mean, expected.mean[0], rtol=1e-6)
    np.testing.assert_allclose(found.epistemic_std, expected.epistemic_std[0], rtol=1e-5)
