"""A run's folder: what may be replaced and when, what a kill leaves behind, links, damage, and readers beside a writer."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_line import call
from sonde._internal import files
from sonde._internal.errors import SondeError
from sonde._internal.files import append_line, write_atomically
from sonde.methods import METHODS
from sonde.models import GaussianProcess
from sonde.runs import Callback, explore
from sonde.runs._checkpoints import Checkpoints
from sonde.runs._place import Draft, foreign_entries
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.runs.figures import draw_run
from sonde.runs.figures._film import write_film
from sonde.runs.sweep import Batch
from tiny import TINY, TINY_OPTIONS

RANDOM = replace(TINY, method=METHODS["random"], evaluate_every=0, rounds=3)
OTHER = replace(RANDOM, first_seed=5)


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too, but for locks; what is linked is not followed."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def without_times(rows):
    return [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("folder") / "finished"
    explore(RANDOM, folder)
    return folder


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "runs" / "copy")
    return tmp_path / "runs" / "copy"


class At(Callback):
    """Does something when a phase begins, or when a round has ended."""

    def __init__(self, what: str, action: Callable[[], None], round_number: int = 1):
        self.what, self.action, self.round = what, action, round_number

    def on_phase(self, round_number, phase, detail):
        if (phase, round_number) == (self.what, self.round):
            self.action()

    def on_round_end(self, round_number, rows):
        self.on_phase(round_number, "round", "")


def fail():
    raise RuntimeError("something went wrong")


# What may be replaced


@pytest.mark.parametrize(
    "foreign", ["notes.txt", ".git/HEAD", "figures/robot.png", "data/log.csv", "checkpoints/0003.bak.json", "policies/mine.txt"]
)
def test_folder_with_anything_foreign_is_not_replaced(copy, foreign):
    (copy / foreign).parent.mkdir(exist_ok=True)
    (copy / foreign).write_text("years of work")
    before = everything(copy.parent)
    with pytest.raises(SondeError, match=rf"holds what Sonde did not write.*{re.escape(foreign.removesuffix('/HEAD'))}"):
        explore(OTHER, copy, overwrite=True)
    assert everything(copy.parent) == before


def test_link_in_a_run_is_foreign_and_neither_followed_nor_deleted(copy, tmp_path):
    (tmp_path / "elsewhere").write_text("years of work")
    (copy / "data" / "0009.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SondeError, match=r"data/0009\.safetensors"):
        explore(OTHER, copy, overwrite=True)
    assert (copy / "data" / "0009.safetensors").is_symlink() and (tmp_path / "elsewhere").exists()


def test_folder_of_another_program_is_not_replaced(tmp_path):
    for content in ('{"name": "website"}', "[]", "{", ""):
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / "config.json").write_text(content)
        with pytest.raises(SondeError, match="not the folder of a run, so it is not replaced"):
            explore(OTHER, tmp_path / "site", overwrite=True)
        assert (tmp_path / "site" / "config.json").read_text() == content
    (tmp_path / "link").symlink_to(tmp_path / "site")
    with pytest.raises(SondeError, match="is a link; name the folder itself"):
        explore(OTHER, tmp_path / "link", overwrite=True)


def test_all_that_sonde_writes_into_a_run_is_its_own(copy):
    assert foreign_entries(copy) == []
    (copy / "figures" / "curves.pdf").touch()
    (copy / "data" / ".0001.safetensors.part").touch()
    for name in ("log.txt", "machines.jsonl"):
        (copy / name).touch()
    (copy / "policies").mkdir()
    (copy / "policies" / "swing-up.safetensors").touch()
    explore(OTHER, copy, overwrite=True)
    assert RunStore.open(copy).config.first_seed == 5
    assert [path.name for path in copy.parent.iterdir()] == ["copy"], "nothing is left of the old run"
    assert not (copy / "policies").exists()


# Everything is checked before anything is touched


@pytest.mark.parametrize("options", [["--model.input-scales", "1", "2"], ["--model.target-scales", "1"]])
def test_bad_input_with_overwrite_leaves_the_run_as_it_is(copy, options, monkeypatch, capsys):
    before = everything(copy.parent)
    args = ["explore", "pendulum-gp-lite", *TINY_OPTIONS, *options, "--out", str(copy), "--overwrite"]
    assert call(monkeypatch, *args) == 2
    assert "scales" in capsys.readouterr().err
    assert everything(copy.parent) == before


def test_batch_of_a_sweep_that_cannot_run_makes_no_folder(tmp_path):
    config = replace(RANDOM, model=GaussianProcess(input_scales=(1.0, 2.0)))
    with pytest.raises(SondeError, match="input_scales"):
        Batch("", "random", config, tmp_path / "runs" / "batch").create()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("phase", ["plan", "fit", "evaluate"])
@pytest.mark.parametrize("existing", [True, False])
def test_run_that_fails_in_its_first_round_changes_nothing(copy, phase, existing):
    if not existing:
        shutil.rmtree(copy.parent)
    before = everything(copy.parent)
    with pytest.raises(RuntimeError):
        explore(OTHER, copy, [At(phase, fail)], overwrite=True)
    assert everything(copy.parent) == before
    assert copy.parent.exists() == existing, "no folder is left, nor one that was made for it"


def test_old_run_is_there_until_the_first_round_of_the_new_one_is_on_disk(copy):
    before, seen = everything(copy), []

    def look():
        with pytest.raises(SondeError, match="in use by another process"):
            run(RunStore.open(copy))
        seen.append(everything(copy) == before)

    explore(OTHER, copy, [At(phase, look) for phase in ("plan", "fit", "evaluate")], overwrite=True)
    assert seen == [True] * 4, "a round is evaluated in two parts"
    with pytest.raises(RuntimeError):
        explore(replace(OTHER, first_seed=6), copy, [At("round", fail)], overwrite=True)
    assert RunStore.open(copy).checkpoints() == [1] and RunStore.open(copy).config.first_seed == 6


def test_interrupt_in_the_first_round_says_that_nothing_was_kept(copy, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = everything(copy.parent)
    monkeypatch.setattr("sonde.runs._run.collect", interrupt)
    args = ["explore", "pendulum-gp-lite", *TINY_OPTIONS, "--out", str(copy), "--overwrite"]
    assert call(monkeypatch, *args) == 130
    assert "nothing was kept or replaced" in capsys.readouterr().err
    assert everything(copy.parent) == before


# Races


def test_folder_that_appears_while_a_run_is_started_is_not_replaced(tmp_path):
    place = tmp_path / "run"
    for content in ((), ("thesis.tex",)):

        def appear(content=content):
            place.mkdir()
            for name in content:
                (place / name).touch()

        with pytest.raises(SondeError, match="run changed while the run was being started"):
            explore(OTHER, place, [At("fit", appear)])
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
        assert [path.name for path in place.iterdir()] == list(content)
        shutil.rmtree(place)


def test_file_that_appears_while_the_first_round_runs_is_not_deleted(copy):
    before = everything(copy)
    note = lambda: (copy / "notes.txt").write_text("years of work")
    with pytest.raises(SondeError, match=r"copy changed while the run was being started.*/copy holds .*notes\.txt"):
        explore(OTHER, copy, [At("evaluate", lambda: note() and None)], overwrite=True)
    assert everything(copy) == {**before, "notes.txt": b"years of work"}
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_two_processes_cannot_start_one_run(tmp_path):
    def another():
        with pytest.raises(SondeError, match="in use by another process, which is starting a run there"):
            RunStore.start(tmp_path / "run", RANDOM)

    assert explore(OTHER, tmp_path / "run", [At("plan", another)]).round == 3


# After a kill


def test_next_start_puts_in_order_what_a_kill_has_left(copy, tmp_path):
    other = tmp_path / "other"
    explore(OTHER, other)
    before = everything(copy)
    draft, old = copy.with_name(".copy.draft"), copy.with_name(".copy.old")

    shutil.copytree(other, draft)  # killed in the first round
    shutil.copytree(other, draft.with_name(".gone.draft"))
    with pytest.raises(SondeError, match=r"gone is not the folder of a run.*its first round was not finished: start it again"):
        RunStore.open(draft.with_name("gone"))
    RunStore.create(tmp_path / "runs" / "new", OTHER)
    assert draft.exists(), "that is the draft of another run"
    run(RunStore.open(copy))
    assert not draft.exists() and everything(copy) == before

    copy.rename(old)  # killed between two renames, after which the folder may be there, and empty
    shutil.copytree(other, draft)
    assert everything(RunStore.open(copy).folder) == before
    copy.rename(old)
    copy.mkdir()
    assert everything(RunStore.open(copy).folder) == before

    shutil.copytree(copy, old)  # killed before the old run was deleted
    with pytest.raises(SondeError, match="exists; choose another --out"):
        RunStore.start(copy, RANDOM)
    explore(RANDOM, copy)
    assert everything(copy) == before and not old.exists()

    shutil.copytree(copy, old)
    shutil.rmtree(copy)
    copy.mkdir()
    (copy / "thesis.tex").touch()
    with pytest.raises(SondeError, match=r"\.copy\.old is the run that was at .*move one of them away"):
        RunStore.start(copy, RANDOM, overwrite=True)
    assert everything(old) == before and (copy / "thesis.tex").exists()


KILLS = """
import json, os, shutil, sys
from pathlib import Path
from sonde.runs._place import FOLDERS, Draft, foreign_entries, tidy, wait_until_in_place

base = Path(sys.argv[1])
place, outcomes = base / "run", []


def fill(folder, name):
    for part in FOLDERS:
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints" / "0001.json").write_text(name)
    (folder / "config.json").write_text(json.dumps({"format": 3, "world": 1, "rounds": 1, "name": name}))


def killed(moment):
    calls = [0]
    for function in ("mkdir", "rename", "rmdir", "unlink", "open", "fsync", "close", "scandir"):
        def wrapper(*args, real=getattr(os, function), **kwargs):
            calls[0] += 1
            if calls[0] == moment:
                os._exit(9)
            return real(*args, **kwargs)
        setattr(os, function, wrapper)
    draft = Draft(place, overwrite=True)
    fill(draft.folder, "new")
    draft.publish()
    os._exit(0)


name_of = lambda folder: json.loads((folder / "config.json").read_text())["name"]
for moment in range(1, 1000):
    shutil.rmtree(base, ignore_errors=True)
    fill(place, "old")
    child = os.fork()
    if child == 0:
        killed(moment)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    wait_until_in_place(place)
    outcomes.append(name_of(place))
    assert (place / "checkpoints" / "0001.json").read_text() == outcomes[-1], moment
    tidy(place)
    assert name_of(place) == outcomes[-1] and foreign_entries(place) == [], moment
    assert os.listdir(base) == ["run"], (moment, os.listdir(base))
    draft = Draft(place, overwrite=True)
    fill(draft.folder, "next")
    draft.publish()
    draft.release()
    assert name_of(place) == "next" and os.listdir(base) == ["run"], moment
    if code == 0:
        break
print(len(outcomes), outcomes.count("old"), outcomes.count("new"))
"""


@pytest.mark.slow
def test_kill_at_every_system_call_of_a_replacement_leaves_the_old_run_or_the_new_one(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", KILLS, str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    moments, old, new = map(int, done.stdout.split())
    assert moments > 50 and old > 10 and new > 10 and moments == old + new


def test_temporary_files_that_a_kill_has_left_are_removed(copy, finished):
    for name in (".config.json.part", "data/.0003.safetensors.part", "checkpoints/.0003.json.part"):
        (copy / name).write_text("half")
    run(RunStore.open(copy))
    assert everything(copy).keys() == everything(finished).keys()


# Links


@pytest.fixture
def outside(tmp_path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "thesis.tex").write_text("years of work")
    return tmp_path / "outside"


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_lock_that_is_a_link_is_rejected(copy, outside, link):
    (copy / ".lock").unlink(missing_ok=True)
    if link == "symbolic":
        (copy / ".lock").symlink_to(outside / "new")
    else:
        (copy / ".lock").hardlink_to(outside / "thesis.tex")
    for use in (lambda: run(RunStore.open(copy)), lambda: explore(OTHER, copy, overwrite=True)):
        with pytest.raises(SondeError, match=r"\.lock"):
            use()
    assert everything(outside) == {"thesis.tex": b"years of work"}


@pytest.mark.parametrize("name", ["data", "checkpoints", "figures", "policies"])
def test_run_whose_folders_are_links_is_rejected(copy, outside, name):
    if (copy / name).exists():
        shutil.move(copy / name, outside / name)
    else:
        (outside / name).mkdir()
    (copy / name).symlink_to(outside / name)
    before = everything(outside)
    with pytest.raises(SondeError, match=f"{name} must be a folder, not a link"):
        run(RunStore.open(copy), from_round=2)
    assert everything(outside) == before


@pytest.mark.slow
def test_files_are_never_written_through_links(copy, outside):
    target = outside / "thesis.tex"
    (copy / "metrics.jsonl").rename(outside / "metrics.jsonl")
    (copy / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    before = everything(outside)
    for name in (
        "metrics.jsonl",
        "data/0003.safetensors",
        "checkpoints/0003.json",
        "checkpoints/0003.safetensors",
        "figures/curves.png",
    ):
        part = (copy / name).with_name(f".{Path(name).name}.part")
        part.symlink_to(target)
    (copy / "figures" / "states.png").symlink_to(target)
    (copy / "data" / "0003.safetensors").unlink()
    (copy / "data" / "0003.safetensors").symlink_to(target)
    draw_run(RunStore.open(copy), run(RunStore.open(copy), from_round=2))
    assert everything(outside) == before
    assert not any(path.is_symlink() for path in copy.rglob("*"))


def test_logs_and_films_are_not_written_through_links(tmp_path, outside):
    for make in (lambda path: path.symlink_to(outside / "thesis.tex"), lambda path: path.hardlink_to(outside / "thesis.tex")):
        make(tmp_path / "log.txt")
        with pytest.raises(SondeError, match=r"log\.txt is not a plain file but a link"):
            append_line(tmp_path / "log.txt", "a line")
        (tmp_path / "log.txt").unlink()
    (tmp_path / ".film.part.gif").symlink_to(outside / "thesis.tex")
    write_film(iter([np.zeros((4, 4, 3), np.uint8)] * 2), tmp_path / "film.gif", 10.0)
    assert (tmp_path / "film.gif").stat().st_size > 0 and not (tmp_path / ".film.part.gif").exists()
    assert everything(outside) == {"thesis.tex": b"years of work"}


# Full disks


def test_full_disk_is_named_and_leaves_no_temporary_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_atomically(tmp_path / "data", b"before")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*tmp.*data"):
        write_atomically(tmp_path / "data", b"after")
    assert everything(tmp_path) == {"data": b"before"}


def test_run_on_a_full_disk_leaves_no_folder_or_continues_after_its_last_round(finished, tmp_path, monkeypatch):
    real = files.open_new

    def explored(left: int) -> bool:
        """Explore on a disk with room for a number of files; whether it was enough."""

        def limited(path):
            nonlocal left
            left -= 1
            if left < 0:
                file = real(path)
                file.write(b"half")
                file.close()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path)

        with monkeypatch.context() as patch:
            patch.setattr(files, "open_new", limited)
            try:
                explore(RANDOM, tmp_path / "run")
            except OSError as error:
                assert "No space left on device: '/" in str(error)
                return False
        return True

    room = 0
    while not explored(room):
        room += 1
        rounds = RunStore.open(tmp_path / "run").checkpoints() if (tmp_path / "run").exists() else None
        assert rounds is None or rounds, "no folder without a finished round"
        assert [path.name for path in tmp_path.iterdir()] in ([], ["run"])
        assert not list(tmp_path.rglob("*.part"))
    assert room > 6
    ours, theirs = (everything(folder) for folder in (tmp_path / "run", finished))
    assert ours.keys() == theirs.keys()
    assert all(ours[name] == theirs[name] for name in ours if not name.startswith("metrics"))


# Damaged metrics


def changed(change: Callable[[list[str]], list[str]], name: str = "metrics.jsonl") -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(change(lines)))

    return damage


def digit(lines: list[str]) -> list[str]:
    return [
        lines[0],
        re.sub(r'("seconds/plan": \d*\.\d*)\d', lambda found: found[1] + ("1" if found[0][-1] != "1" else "2"), lines[1]),
        *lines[2:],
    ]


@pytest.mark.parametrize(
    ("damage", "rounds"),
    [
        (changed(lambda lines: lines[:-1]), "3"),
        (changed(lambda lines: lines[1:]), "1"),
        (changed(lambda lines: [lines[0], lines[2]]), "2"),
        (changed(lambda lines: [*lines, lines[1]]), "2"),
        (changed(lambda lines: [lines[0], lines[1][:40] + "\n", lines[2]]), "2"),
        (changed(lambda lines: [*lines[:2], lines[2].replace("seed", "sfed")]), "3"),
        (changed(digit), "2"),
        (changed(lambda lines: [lines[0].replace('"round": 1', '"round": 2'), *lines[1:]]), "1, 2"),
        (lambda folder: (folder / "metrics.jsonl").unlink(), "1, 2, 3"),
        (lambda folder: (folder / "metrics.sha256").unlink(), "1, 2, 3"),
        (changed(lambda lines: [*lines[:2], "f" * 64 + "  0003\n"], "metrics.sha256"), "3"),
    ],
)
def test_damaged_metrics_are_rejected_and_computed_again(copy, finished, damage, rounds, monkeypatch, capsys):
    damage(copy)
    before = everything(copy)
    message = (
        rf"lines of round {rounds} are missing or were changed; 'sonde resume .*copy --from-round (\d)' computes them again"
    )
    for args in (["plot", str(copy), "--out", str(copy / "figure.png")], ["resume", str(copy)]):
        assert call(monkeypatch, *args) == 2
        assert re.search(message, capsys.readouterr().err)
    assert everything(copy) == before
    with pytest.raises(SondeError) as error:
        run(RunStore.open(copy))
    run(RunStore.open(copy), from_round=int(re.search(message, str(error.value))[1]))
    rows = [RunStore.open(folder).load_metrics() for folder in (copy, finished)]
    assert without_times(rows[0]) == without_times(rows[1])
    assert [(row["round"], row["seed"]) for row in rows[0]] == [(1, 0), (2, 0), (3, 0)]


def test_damage_while_a_run_goes_on_is_not_made_good(copy):
    def harm():
        changed(digit)(copy)
        path = copy / "data" / "0001.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"!")

    run(RunStore.open(copy), [At("fit", harm, 3)], from_round=2)
    with pytest.raises(SondeError, match="lines of round 2 are missing or were changed"):
        RunStore.open(copy).load_metrics()
    with pytest.raises(SondeError, match=r"0001\.safetensors is missing or damaged"):
        RunStore.open(copy).load_finished()


def test_metrics_of_an_unfinished_round_are_not_read_and_no_damage(copy, finished):
    store, rows = RunStore.open(copy), RunStore.open(finished).load_metrics()
    store.append_metrics([{**rows[-1], "round": 4}])
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 0, "roun')
    assert store.load_metrics() == rows


# A reader beside a writer


def test_reader_goes_on_with_the_newest_checkpoint_if_its_own_is_deleted(copy, monkeypatch):
    store, real, calls = RunStore.open(copy), Checkpoints.load, []
    stash = copy.parent / "stash"
    stash.mkdir()
    for path in (copy / "checkpoints").glob("0003.*"):
        path.rename(stash / path.name)

    def load(self, number, like):
        calls.append(number)
        if calls == [2]:  # in this moment a writer finishes round 3 and deletes an old checkpoint
            for name in ("0003.safetensors", "0003.json"):
                (stash / name).rename(copy / "checkpoints" / name)
            for name in ("0002.json", "0002.safetensors"):
                (copy / "checkpoints" / name).unlink()
        return real(self, number, like)

    monkeypatch.setattr(Checkpoints, "load", load)
    assert restore_explorer(store).round == 3 and calls == [2, 3]


def test_reader_of_metrics_looks_again_if_a_writer_goes_back(copy, monkeypatch):
    reader, writer, real = RunStore.open(copy), RunStore.open(copy), Checkpoints.rounds
    goes_back = [lambda: writer.forget_after(2)]

    def rounds(self):
        found = real(self)
        if goes_back and self.folder == reader.folder and self is reader._checkpoints:
            goes_back.pop()()
        return found

    monkeypatch.setattr(Checkpoints, "rounds", rounds)
    assert [row["round"] for row in reader.load_metrics()] == [1, 2]


def test_damaged_checkpoint_is_still_damage(copy):
    path = copy / "checkpoints" / "0003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SondeError, match="checkpoint 0003 is damaged"):
        restore_explorer(RunStore.open(copy))


def test_run_is_found_while_another_one_replaces_it(copy, monkeypatch):
    draft = Draft(copy, overwrite=True)
    (draft.folder / "config.json").write_bytes((copy / "config.json").read_bytes())
    for name in ("data", "checkpoints", "figures"):
        (draft.folder / name).mkdir()
    copy.rename(copy.with_name(".copy.old"))  # the moment between the two renames of `publish`
    waited = []

    def sleep(_):
        waited.append(1)
        if len(waited) == 3:
            draft.folder.rename(copy)

    monkeypatch.setattr("sonde.runs._place.time.sleep", sleep)
    assert RunStore.open(copy).checkpoints() == [] and len(waited) == 3
    draft.release()
