"""A folder that a stranger made: no command runs its code, reads without end, or changes anything outside of it."""

import io
import json
import os
import pickle
import shutil
import sys
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import sonde
from command_line import call
from fmu_plants import build_fmu
from sonde._internal import user_code
from sonde._internal.consent import allow_code
from sonde._internal.errors import SondeError
from sonde.runs._codec import from_json
from sonde.runs._store import RunStore
from sonde.worlds import FmuWorld
from tiny import TINY

COMMANDS = {
    "resume": (),
    "plot": ("--out", "figure.png"),
    "analyse": (),
    "evaluate": ("--task", "swing-up"),
    "export": ("--out", "measured.npz"),
}
EVIL = """
import pathlib
pathlib.Path({canary!r}).write_text("it ran")
from sonde.worlds import Pendulum as World
from sonde.models import RBF as Kernel
from gymnasium.envs.classic_control import PendulumEnv as Env
def reward(x, u, x_next):
    return x_next[0]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    sonde.explore(TINY, folder)
    return folder


class Stranger:
    """A copy of a finished run, which somebody else has changed, among other files."""

    def __init__(self, root: Path, finished: Path):
        self.root, self.folder = root, root / "stranger" / "run"
        shutil.copytree(finished, self.folder)
        self.canary, self.evil = root / "canary", root / "stranger" / "evil.py"
        self.evil.write_text(EVIL.format(canary=str(self.canary)))
        (root / "mine").mkdir()
        (root / "mine" / "thesis.txt").write_text("years of work")
        os.chdir(root / "mine")

    def change(self, change) -> None:
        """Change the config, and make all checksums fit again, as an attacker would."""
        path = self.folder / "config.json"
        entries = json.loads(path.read_text())
        change(entries)
        path.write_text(json.dumps(entries))
        self.sign()

    def sign(self) -> None:
        digest = lambda path: sha256(path.read_bytes()).hexdigest()
        for note in (self.folder / "checkpoints").glob("[0-9]*.json"):
            facts = json.loads(note.read_text())
            rounds = range(1, facts["round"] + 1)
            facts |= {"config": digest(self.folder / "config.json"), "arrays": digest(note.with_suffix(".safetensors"))}
            facts["data"] = [digest(self.folder / "data" / f"{number:04d}.safetensors") for number in rounds]
            note.write_text(json.dumps(facts))
        lines = [line for line in (self.folder / "metrics.jsonl").read_bytes().splitlines(keepends=True) if b'"round"' in line]
        of_round = lambda n: b"".join(line for line in lines if f'"round": {n},'.encode() in line)
        sums = "".join(f"{sha256(of_round(n)).hexdigest()}  {n:04d}\n" for n in (1, 2, 3))
        (self.folder / "metrics.sha256").write_text(sums)

    def outside(self) -> dict[str, bytes]:
        """Everything that is not in the run's folder."""
        found = (path for path in sorted(self.root.rglob("*")) if not path.is_relative_to(self.folder))
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found if path.is_file()}


@pytest.fixture
def stranger(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # and back at the end
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Stranger(tmp_path, finished)


def refused(stranger, monkeypatch, capfd, *words: str) -> str:
    """Run every command on the folder: each says no and changes nothing; what the last one said."""
    before, said = stranger.outside(), ""
    for command, options in COMMANDS.items():
        code = call(monkeypatch, command, str(stranger.folder), *options)
        said = "".join(capfd.readouterr())
        assert code == 2 and "sonde: error" in said and "Traceback" not in said and "\x1b]" not in said, (command, said)
        assert all(word in said for word in words), (command, said)
        assert stranger.outside() == before, command
    assert not stranger.canary.exists()
    return said


# ---- code --------------------------------------------------------------------------------------------------------------------


def gym_world(env: str) -> dict:
    return {"class": "sonde.worlds:GymWorld", "env": env, "options": "{}", "reachable_steps": 0, "processes": False}


NAMING = {
    "world": lambda c, file: c["world"].update({"class": f"{file}:World"}),
    "kernel": lambda c, file: c["model"]["kernel"].update({"class": f"{file}:Kernel"}),
    "module": lambda c, file: c["world"].update({"class": "evil:World"}),
    "package": lambda c, file: c["world"].update({"class": "evil_package.part:World"}),
    "missing module": lambda c, file: c["world"].update({"class": "evil_package.nothing:World"}),
    "evaluation task": lambda c, file: c.update(evaluation_tasks=[f"{file}:reward"]),
    "exploration task": lambda c, file: c.update(exploration_task=f"{file}:reward"),
    "environment": lambda c, file: c.update(world=gym_world(f"{file}:Env")),
    "environment of a module": lambda c, file: c.update(world=gym_world("evil:Env-v0")),
    "compatibility environment": lambda c, file: c.update(world=gym_world("GymV26Environment-v0")),
    "relative path": lambda c, file: c["world"].update({"class": "../stranger/evil.py:World"}),
}


@pytest.mark.parametrize("naming", NAMING)
def test_code_that_a_folder_names_does_not_run(naming, stranger, monkeypatch, capfd):
    package = stranger.evil.parent / "evil_package"
    package.mkdir()
    for name in ("__init__", "part"):
        shutil.copy(stranger.evil, package / f"{name}.py")
    monkeypatch.syspath_prepend(str(stranger.evil.parent))
    stranger.change(lambda c: NAMING[naming](c, stranger.evil))
    said = refused(stranger, monkeypatch, capfd, "names code that would run", "--allow-code")
    if "module" not in naming and naming not in ("package", "compatibility environment"):
        assert str(stranger.evil) in said and sha256(stranger.evil.read_bytes()).hexdigest() in said


EVIL_SLAVE = """
import pathlib
from pythonfmu import Fmi2Causality, Fmi2Slave, Real


class Evil(Fmi2Slave):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.u, self.x = 0.0, 0.0
        self.register_variable(Real("u", causality=Fmi2Causality.input))
        self.register_variable(Real("x", causality=Fmi2Causality.output))
        pathlib.Path({canary!r}).write_text("it ran")

    def do_step(self, current_time, step_size):
        return True
"""


def test_native_code_of_an_fmu_that_a_folder_names_does_not_run(stranger, monkeypatch, capfd):
    pytest.importorskip("fmpy")
    place = stranger.evil.parent
    (place / "slave.py").write_text(EVIL_SLAVE.format(canary=str(stranger.canary)))
    build_fmu(place, "slave.py")
    stranger.canary.unlink()  # building an FMU runs it
    world = FmuWorld(str(place / "Evil.fmu"), dt=0.1, ranges=("u=-1:1",))
    stranger.change(lambda c: c.update(world={"class": "sonde.worlds:FmuWorld", **asdict(world)}))
    said = refused(stranger, monkeypatch, capfd, "names code that would run", "--allow-code", world.file)
    assert sha256(Path(world.file).read_bytes()).hexdigest() in said
    copies = world.open(1)
    copies.reset([0])
    copies.close()
    assert stranger.canary.exists(), "the code is evil indeed"


def test_modules_of_sonde_are_no_commands_and_no_gadgets(stranger, monkeypatch, capfd):
    for name in ("sonde.__main__:main", "sonde.runs:explore", "sonde.cli:main", "builtins:eval", "os:system"):
        stranger.change(lambda c, name=name: c["world"].update({"class": name}))
        refused(stranger, monkeypatch, capfd)


def test_allowed_code_runs_and_is_remembered_until_it_changes(stranger, monkeypatch, capfd):
    stranger.change(lambda c: c["world"].update({"class": f"{stranger.evil}:World"}))
    export = ("export", str(stranger.folder), "--overwrite", "--out", "measured.npz")
    assert call(monkeypatch, *export) == 2 and not stranger.canary.exists()
    assert call(monkeypatch, *export, "--allow-code") == 0 and stranger.canary.read_text() == "it ran"
    assert call(monkeypatch, *export) == 0
    unload()
    assert call(monkeypatch, *export) == 0
    unload()
    stranger.evil.write_text(stranger.evil.read_text() + "\n# changed\n")
    assert "has changed" in said_by(lambda: RunStore.open(stranger.folder))
    with allow_code([f"{stranger.evil}:World"]):
        RunStore.open(stranger.folder)
    unload()
    assert RunStore.open(stranger.folder).config.horizon == TINY.horizon


def unload() -> None:
    """Forget the code that was loaded, as another process does."""
    user_code._module.cache_clear()
    for name in [name for name in sys.modules if name.startswith("sonde_user_")]:
        del sys.modules[name]


def said_by(attempt) -> str:
    with pytest.raises(SondeError) as error:
        attempt()
    return str(error.value)


def test_copy_of_an_allowed_file_is_not_allowed_among_other_modules(stranger, monkeypatch):
    mine = stranger.root / "mine" / "parts.py"
    mine.write_text("from sonde.worlds import Pendulum as World\n")
    stranger.change(lambda c: c["world"].update({"class": f"{mine}:World"}))
    RunStore.open(stranger.folder, allow_code=True)
    unload()
    RunStore.open(stranger.folder)
    theirs = shutil.copy(mine, stranger.evil.parent / "parts.py")
    stranger.change(lambda c: c["world"].update({"class": f"{theirs}:World"}))
    assert "would run" in said_by(lambda: RunStore.open(stranger.folder))


def test_source_runs_and_not_a_compiled_file_beside_it(tmp_path, monkeypatch):
    """A compiled file that Python does not compare with its source may hold anything."""
    import importlib.util
    import py_compile

    from sonde._internal.user_code import load_from_file

    file = tmp_path / "parts.py"
    file.write_text("value = 'other code'\n")
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert Path(importlib.util.cache_from_source(str(file))).exists()
    file.write_text("value = 'what was read'\n")
    assert load_from_file(f"{file}:value") == "what was read"


def test_own_code_needs_no_permission(tmp_path, monkeypatch):
    """Code that is given on the command line, or as an object, may run again when the same user opens the run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tasks = tmp_path / "tasks.py"
    tasks.write_text("def lift(x, u, x_next):\n    return x_next[0]\n")
    config = replace(TINY, evaluation_tasks=(f"{tasks}:lift",))
    RunStore.create(tmp_path / "run", config)
    unload()
    assert RunStore.open(tmp_path / "run").config == config
    unload()
    (note,) = (tmp_path / "state" / "sonde" / "allowed-code").iterdir()
    assert json.loads(note.read_text()) == {"file": str(tasks), "sha256": sha256(tasks.read_bytes()).hexdigest()}
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")  # not even where nothing can be remembered
    with pytest.raises(SondeError, match="names code"):
        RunStore.open(tmp_path / "run")
    sonde.runs._run.open_or_create(tmp_path / "run", config)


# ---- pickles -----------------------------------------------------------------------------------------------------------------


class Bomb:
    """What a pickle would call."""

    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self):
        return Path.write_text, (self.canary, "it ran")


@pytest.mark.parametrize("name", ["data/0001.safetensors", "checkpoints/0003.safetensors", "config.json"])
def test_pickles_are_not_read(name, stranger, monkeypatch, capfd):
    bomb = pickle.dumps(Bomb(stranger.canary))
    (stranger.folder / name).write_bytes(bomb)
    stranger.sign()
    before = stranger.outside()
    for command in ("analyse", "export") if name.startswith("data") else ("analyse", "resume"):
        assert call(monkeypatch, command, str(stranger.folder), *COMMANDS[command]) == 2
        assert "Traceback" not in "".join(capfd.readouterr())
    assert stranger.outside() == before and not stranger.canary.exists()
    pickle.loads(bomb)  # noqa: S301
    assert stranger.canary.exists(), "the bomb is a good one"


def test_pickles_in_data_files_are_not_read(stranger, monkeypatch, capfd):
    arrays = {name: np.array([[Bomb(stranger.canary)]], object) for name in ("states", "actions", "next_states")}
    np.savez("log.npz", **arrays)
    assert call(monkeypatch, "explore", "pendulum-gp-lite", "--data", "log.npz", "--out", "new") == 2
    assert not stranger.canary.exists() and not Path("new").exists()


# ---- paths and texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda c: c.update(evaluation_tasks=["../../../mine/thesis"]), "unknown task"),
        (lambda c: c.update(exploration_task="/etc/passwd"), "exploration_task"),
        (lambda c: c["method"].update(label="\x1b]0;owned\x07"), "control character"),
        (lambda c: c.update(data="log\x00.npz"), "control character"),
        (lambda c: c["method"].update(label="\ud800"), "control character"),
        (lambda c: c.update({"\x1b[2J": 1}), "control character"),
    ],
)
def test_texts_that_are_no_names_are_rejected(change, word, stranger, monkeypatch, capfd):
    stranger.change(change)
    refused(stranger, monkeypatch, capfd, word)


def test_initial_data_outside_of_the_folder_are_not_read(stranger, monkeypatch, capfd):
    stranger.change(lambda c: c.update(data=str(stranger.root / "mine" / "thesis.txt")))
    before = stranger.outside()
    for command in ("analyse", "resume", "evaluate"):
        assert call(monkeypatch, command, str(stranger.folder), *COMMANDS[command]) == 2
        said = "".join(capfd.readouterr())
        assert "initial.safetensors is missing or damaged" in said and "years of work" not in said
    assert stranger.outside() == before


@pytest.mark.parametrize("label", ["../../../mine/thesis.txt", "[bold]loud[/bold]", "/etc/passwd"])
def test_label_is_only_text(label, stranger, monkeypatch, capfd):
    stranger.change(lambda c: c["method"].update(label=label))
    before = stranger.outside()
    assert call(monkeypatch, "plot", str(stranger.folder), stranger.folder.as_posix(), "--out", "figure.png") == 0
    after = stranger.outside()
    assert {name: after[name] for name in before} == before and after.keys() - before.keys() == {"mine/figure.png"}


# ---- bombs -------------------------------------------------------------------------------------------------------------------


def deep_config(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000 + "]" * 100_000)


def deep_object(folder: Path) -> None:
    text = '{"class": "sonde.worlds:Pendulum", "process_noise": ' * 900 + "0" + "}" * 900
    entries = (folder / "config.json").read_text().replace('"process_noise": 0.0', f'"process_noise": {text}')
    (folder / "config.json").write_text(entries)


def many_digits(folder: Path) -> None:
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace('"horizon": 12', f'"horizon": {"9" * 5000}')
    )


def huge_config(folder: Path) -> None:
    os.truncate(folder / "config.json", 2**40)


def pipe(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def endless(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")


@pytest.mark.parametrize("bomb", [deep_config, deep_object, many_digits, huge_config, pipe, endless])
def test_config_cannot_exhaust_the_reader(bomb, stranger, monkeypatch, capfd):
    bomb(stranger.folder)
    refused(stranger, monkeypatch, capfd, "config.json")


SIZES = {
    "seeds": lambda c: c.update(seeds=2**31 - 1),
    "rounds": lambda c: c.update(rounds=2**31 - 1, horizon=2**31 - 1),
    "rank": lambda c: c["model"].update(rank=10**17),
    "noise": lambda c: c["world"].update(process_noise=1e999),
    "samples": lambda c: c["solver"].update(samples=10**18 - 1),
}


@pytest.mark.parametrize("size", SIZES)
def test_sizes_that_no_computer_has_are_rejected(size, stranger, monkeypatch, capfd):
    stranger.change(SIZES[size])
    refused(stranger, monkeypatch, capfd, "must")


def test_sparse_measurements_are_not_read(stranger, monkeypatch, capfd):
    os.truncate(stranger.folder / "data" / "0001.safetensors", 2**40)
    for command in ("export", "analyse", "resume"):
        assert call(monkeypatch, command, str(stranger.folder), *COMMANDS[command]) == 2
        assert "too large" in "".join(capfd.readouterr())


def test_names_that_look_like_checkpoints_are_ignored(stranger):
    for name in ("²³", "٠٠٠٩", "9" * 40, "12", "-001", "0004 "):
        (stranger.folder / "checkpoints" / f"{name}.json").write_text("{}")
    assert RunStore.open(stranger.folder).checkpoints() == [2, 3]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"seed": 0, "round": 1, "transitions": 12, "max_epistemic": "\\u001b]0;owned"}', 2),
        ('{"seed": 0, "round": 1, "transitions": 12, "max_epistemic": [1]}', 2),
        ('{"seed": "0", "round": 1, "transitions": 12}', 2),
        # what belongs to no round is not read
        ("[" * 100_000, 0),
        ('{"seed": 0, "round": 1e400, "transitions": 12}', 0),
        (f'{{"seed": 0, "round": {"9" * 5000}, "transitions": 12}}', 0),
        ('{"seed": 0, "roumd": 1, "transitions": 12}', 0),
        ("3", 0),
    ],
)
def test_lines_that_are_no_metrics_are_rejected_or_not_read(line, code, stranger, monkeypatch, capfd):
    before, path = RunStore.open(stranger.folder).load_metrics(), stranger.folder / "metrics.jsonl"
    path.write_text(line + "\n" + path.read_text())
    stranger.sign()
    assert call(monkeypatch, "plot", str(stranger.folder), "--out", "figure.png") == code
    said = "".join(capfd.readouterr())
    assert ("metrics.jsonl" in said) == (code == 2) == (not Path("figure.png").exists()) and "\x1b" not in said
    if code == 0:
        assert RunStore.open(stranger.folder).load_metrics() == before


def npz(members: dict[str, bytes]) -> bytes:
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "array",
    [
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000, 3), }\n"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999999, 3), }\n"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3), }\n"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3), }\n", b"\x09\x07"),
        header("(" * 3000),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (1, 3), }\n"),
        header("{'descr': 3, 'fortran_order': False, 'shape': (1, 3), }\n"),
        header('"""'),
        b"\x93NUMPY",
        b"",
    ],
)
def test_arrays_with_odd_headers_are_rejected(array, tmp_path, monkeypatch, capfd):
    names = ("states", "actions", "next_states")
    (tmp_path / "log.npz").write_bytes(npz({f"{name}.npy": array for name in names}))
    options = ("--data", str(tmp_path / "log.npz"), "--out", str(tmp_path / "run"))
    assert call(monkeypatch, "explore", "pendulum-gp-lite", *options) == 2
    said = "".join(capfd.readouterr())
    assert "log.npz" in said and "Traceback" not in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated_archive_is_rejected(share, tmp_path, monkeypatch, capfd):
    np.savez(tmp_path / "log.npz", states=np.zeros((9, 3)), actions=np.zeros((9, 1)), next_states=np.zeros((9, 3)))
    whole = (tmp_path / "log.npz").read_bytes()
    (tmp_path / "log.npz").write_bytes(whole[: int(share * len(whole))])
    options = ("--data", str(tmp_path / "log.npz"), "--out", str(tmp_path / "run"))
    assert call(monkeypatch, "explore", "pendulum-gp-lite", *options) == 2
    assert "log.npz" in capfd.readouterr().err


def test_config_is_not_built_before_its_code_is_checked():
    """Also where the code stands last in the document, or in a list."""
    text = json.dumps({"format": 3, "rounds": -1, "metrics": [{"class": "no_such_package_of_mine:X"}]})
    with pytest.raises(SondeError, match="missing field"):
        from_json(sonde.RunConfig, text, "config.json")
    text = json.dumps({"format": 3, "metrics": [{"class": f"{__file__.replace('test_hostile', 'test_own')}:X"}]})
    with pytest.raises(SondeError):
        from_json(sonde.RunConfig, text, "config.json")
