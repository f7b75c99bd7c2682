"""The boundary of the program: odd options, signals, pipes, locales and arrays give one sentence and never a traceback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from command_line import call
from sonde._internal.errors import SondeError
from sonde._internal.reading import MAX_DIGITS, check_text, parse_json, read_limited
from sonde.cli import _explore, _interrupts, _main
from sonde.control import Controller, rollout
from sonde.data import SystemSpec, Trajectory
from sonde.methods import METHODS
from sonde.runs import PRESETS, RunConfig, read_measurements
from sonde.runs._codec import from_json, to_json
from sonde.runs._store import RunStore
from sonde.worlds import GymWorld, Pendulum, Simulators, Stepped
from tiny import TINY

RANDOM = replace(TINY, method=METHODS["random"])
SPEC = SystemSpec.of_size(2, 1)


# ---- what tell accepts -------------------------------------------------------------------------------------------------------


def told(**changed) -> Trajectory:
    arrays = {"states": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "next_states": np.zeros((4, 2))}
    return Trajectory(**arrays | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"states": np.ma.array(np.zeros((4, 2)), mask=np.eye(4, 2))}, "states has masked values"),
        ({"states": [np.ma.array([1.0, 2.0], mask=[False, True])] * 4}, "states has masked values"),
        ({"states": np.zeros((4, 2), complex)}, "real numbers, got one of type complex128"),
        ({"states": np.zeros((4, 2), "datetime64[s]")}, "real numbers, got one of type datetime64"),
        ({"states": np.zeros((4, 2), "timedelta64[s]")}, "real numbers, got one of type timedelta64"),
        ({"states": np.zeros((4, 2), object)}, "real numbers, got one of type object"),
        ({"states": np.full((4, 2), "1.0")}, "real numbers, got one of type <U3"),
        ({"states": np.zeros((4, 2), bool)}, "real numbers, got one of type bool"),
        ({"states": [[10**400, 0]] * 4}, "real numbers"),
        ({"states": [[0, 1], [0]]}, "array of numbers"),
        (
            {"next_states": np.full((4, 2), 1.1e15)},
            r"next_states must be at most 1e\+15, got 1.1e\+15 at seed 0, step 0, column 0",
        ),
        ({"next_states": np.full((4, 2), -1e300)}, "must be at most"),
        ({"terminated": np.array(["False"] * 4)}, "terminated must be an array of real numbers"),
        ({"truncated": np.full(4, np.nan)}, "truncated must be true or false at each step"),
        ({"planned_information": np.zeros(4, complex)}, "planned_information must be an array of real numbers"),
    ],
)
def test_what_is_no_measurement_is_rejected(changed, message):
    given = told()
    for name, value in changed.items():  # past the type checks of the tests
        object.__setattr__(given, name, value)
    with pytest.raises(SondeError, match=message):
        given.checked(1, SPEC)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8, np.uint64, np.longdouble, jnp.bfloat16])
def test_any_real_numbers_are_measurements(kind):
    given = told()
    object.__setattr__(given, "states", np.ones((4, 2)).astype(kind))
    assert given.checked(1, SPEC).states.dtype == np.float64
    object.__setattr__(given, "states", np.ma.array(np.ones((4, 2)), mask=False))
    object.__setattr__(given, "terminated", np.array([0, 1, 0, 0]))
    checked = given.checked(1, SPEC)
    assert type(checked.states) is np.ndarray and checked.terminated.tolist() == [[False, True, False, False]]


# ---- actions -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_actions_and_trajectories_can_be_written_to():
    from sonde.runs._run import build_explorer

    explorer = build_explorer(RANDOM)
    controller = explorer.ask()
    action = controller(np.zeros(3))
    first = action.copy()
    action[:] = 7.0
    controller.reset()
    assert (controller(np.zeros(3)) == first).all(), "a caller's change reaches nothing inside"
    trajectory = rollout(Pendulum(), explorer.ask(), 12)
    trajectory.states[:] = trajectory.actions[:] = trajectory.next_states[:] = 0.0


class _Scribbling(Simulators):
    """Copies of a system that reuse the array of their states, and scribble over their actions."""

    def __init__(self):
        self.states = np.zeros((1, 3))

    def reset(self, seeds):
        self.states[:] = 0.0
        return self.states

    def step(self, actions):
        self.states += 1.0
        actions[:] = 99.0
        return Stepped(self.states, np.zeros(1, bool), np.zeros(1, bool))

    def restart(self, which):
        return self.states


@pytest.mark.slow
def test_a_system_may_change_its_actions_and_reuse_its_states(monkeypatch):
    from sonde.runs._run import build_explorer

    monkeypatch.setattr(GymWorld, "open", lambda self, copies: _Scribbling())
    controller: Controller = build_explorer(RANDOM).ask()
    trajectory = rollout(GymWorld("Pendulum-v1"), controller, 3)
    assert np.abs(trajectory.actions).max() <= 1
    assert trajectory.states[0, :, 0].tolist() == [0, 1, 2] and trajectory.next_states[0, :, 0].tolist() == [1, 2, 3]


# ---- files -------------------------------------------------------------------------------------------------------------------


def test_long_header_is_rejected_at_once(tmp_path):
    path = tmp_path / "log.csv"
    with open(path, "w") as file:
        for _ in range(100):
            file.write("some column," * 80_000)  # 96 MB without a line's end
    began = time.perf_counter()
    with pytest.raises(SondeError, match="a line has more than 1,000,000 characters"):
        read_measurements(str(path), Pendulum())
    assert time.process_time() - began < 5.0, "longer than in proportion to the columns"


def test_many_columns_are_rejected_in_a_short_message(tmp_path):
    (tmp_path / "log.csv").write_text(",".join(f"c{i}" for i in range(100_000)) + "\n")
    with pytest.raises(SondeError, match="at most 10,000 columns, got 100,000"):
        read_measurements(str(tmp_path / "log.csv"), Pendulum())
    (tmp_path / "log.csv").write_text(",".join(f"column {i}" for i in range(9_000)) + "\n")
    began = time.process_time()
    with pytest.raises(SondeError, match="and 8,980 more") as error:
        read_measurements(str(tmp_path / "log.csv"), Pendulum())
    assert len(str(error.value)) < 2000 and time.process_time() - began < 5.0, "longer than in proportion to the columns"


@pytest.mark.parametrize(
    "text", ["[" * 60 + "]" * 60, "1" * (MAX_DIGITS + 1), '"\\u0000"', '"\\ud800"', '{"\\u001b": 1}', "", "nul"]
)
def test_json_beyond_limits_is_rejected(text):
    with pytest.raises(SondeError, match="document"):
        parse_json(text, "document")


def test_json_within_limits_is_read():
    assert parse_json('{"a": [1, -123456789012345678, 1.5, "é\\n\\t"]}'.encode(), "document") == {
        "a": [1, -123456789012345678, 1.5, "é\n\t"]
    }
    check_text(os.fsdecode(b"caf\xe9"), "a path whose bytes are not UTF-8")


def test_only_regular_files_of_limited_size_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_limited(tmp_path / "file", 5) == b"12345"
    os.mkfifo(tmp_path / "pipe")
    for path, limit, message in ((tmp_path / "file", 4, "too large"), (tmp_path / "pipe", 9, "not a regular file")):
        with pytest.raises(SondeError, match=message):
            read_limited(path, limit)
    for path in (Path("/dev/zero"), Path("a\0b"), tmp_path):
        with pytest.raises((SondeError, OSError)):
            read_limited(path, 9)


def test_reading_takes_the_memory_of_the_file_and_not_of_the_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_limited(tmp_path / "file", 2**28) == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_nul_in_a_folder_is_rejected():
    for use in (lambda: RunStore.create(Path("a\0b"), TINY), lambda: RunStore.open(Path("a\0b"))):
        with pytest.raises(SondeError):
            use()


# ---- options and configs, at random ------------------------------------------------------------------------------------------


def fields(entries: dict, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    own = [(*above, key) for key in entries if key not in ("class", "format")]
    return own + [path for key, value in entries.items() if isinstance(value, dict) for path in fields(value, (*above, key))]


ENTRIES = {name: json.loads(to_json(PRESETS[name])) for name in ("pendulum-gp-lite", "pendulum-pe-lite", "mountain-car-lite")}
PLACES = [(name, path) for name, entries in ENTRIES.items() for path in fields(entries)]
ODD_WORDS = [
    "",
    "-1",
    "0",
    "9" * 17,
    "9" * 5000,
    "1e999",
    "-1e999",
    "nan",
    "1e-320",
    "²³",
    "a.py:b",
    "a:b",
    "None",
    "\0",
    "[",
    "--",
]
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(
    place=st.sampled_from(PLACES), word=st.sampled_from(ODD_WORDS) | st.integers().map(str) | st.floats().map(str) | st.text()
)
def test_any_value_of_an_option_is_taken_or_rejected(place, word, monkeypatch, capsys, tmp_path_factory):
    name, path = place
    option = f"--{'.'.join(path).replace('_', '-').removeprefix('confidence.')}"
    monkeypatch.setattr(_explore, "run_and_draw", lambda *_, **__: None)
    out = tmp_path_factory.mktemp("option") / "run"
    assert call(monkeypatch, "explore", name, option, word, "--out", str(out)) in (0, 2)
    assert "Traceback" not in "".join(capsys.readouterr())


ODD_VALUES = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**31 - 1,
        2**31,
        10**17,
        10**400,
        1e308,
        1e-320,
        float("inf"),
        float("nan"),
        "²³",
        "\0",
        "a.py:b",
        [],
        {},
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@QUICK
@given(place=st.sampled_from(PLACES), value=ODD_VALUES | JSON)
def test_any_value_in_a_config_is_taken_or_rejected(place, value):
    name, path = place
    entries = json.loads(json.dumps(ENTRIES[name]))
    owner = entries
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    with contextlib.suppress(SondeError):
        from_json(RunConfig, json.dumps(entries), "config.json")


@QUICK
@given(text=st.binary() | st.text().map(str.encode), data=st.data())
def test_any_damage_to_a_config_is_taken_or_rejected(text, data):
    whole = to_json(TINY).encode()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 8)))
    with contextlib.suppress(SondeError):
        from_json(RunConfig, whole[:start] + text + whole[end:], "config.json")


@pytest.mark.parametrize(
    "args",
    [
        ("resume", "a\0b"),
        ("plot", "9" * 5000),
        ("analyse", "runs", "--seed", "9" * 30),
        ("evaluate", "runs", "--task", "x", "--rollouts", "9" * 400),
        ("sweep", "pendulum-gp-lite", "--set", "horizon=" + "9" * 5000),
        ("sweep", "pendulum-gp-lite", "--seeds", "999999999999"),
        ("explore", "gym:Pendulum-v1", "--world.options", "[" * 100_000),
        ("explore", "gym:Pendulum-v1", "--world.options", '{"g": ' + "9" * 5000 + "}"),
        ("explore", "gym:\0"),
        ("explore", "pendulum-gp-lite", "--rounds", "2147483647", "--horizon", "2147483647"),
        ("explore", "pendulum-gp-lite", "--data", "/dev/zero.csv"),
        ("explore", "pendulum-gp-lite", "--model.noise-std", "1e308"),
        ("explore", "pendulum-gp-lite", "--model.signal-std", "1e-320"),
    ],
)
def test_odd_words_are_rejected(args, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *args) == 2
    said = "".join(capsys.readouterr())
    assert "rror" in said and "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [MemoryError(), MemoryError("Unable to allocate 9 PiB"), RuntimeError("RESOURCE_EXHAUSTED: x")]
)
def test_lack_of_memory_is_one_sentence(error, monkeypatch, capsys):
    def fail(*_):
        raise error

    monkeypatch.setattr(_explore, "main", fail)
    assert call(monkeypatch, "explore", "pendulum-gp-lite") == 2
    assert "not enough memory" in capsys.readouterr().err


def test_fault_of_ours_keeps_its_traceback(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(_explore, "main", fail)
    with pytest.raises(ZeroDivisionError):
        call(monkeypatch, "explore", "pendulum-gp-lite")


# ---- the process: pipes, locales, signals ------------------------------------------------------------------------------------


def sonde(*args: str) -> list[str]:
    return [sys.executable, "-m", "sonde", *args]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", pytest.param("list", marks=pytest.mark.slow)])
def test_reader_that_leaves_early_is_no_error(command, unbuffered):
    """As in `sonde list | head -1`."""
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(sonde(command), env=environment, **pipes) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == _interrupts.PIPE_CLOSED


def test_output_that_cannot_be_written_is_one_sentence():
    for unbuffered in ("", "1"):
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        with open("/dev/full", "w") as full:
            done = subprocess.run(sonde("--help"), stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("sonde: error: ") and "No space left on device" in done.stderr


@pytest.mark.slow
def test_ascii_locale_and_closed_streams_are_no_problem(tmp_path):
    """Names in a folder's path that the terminal cannot show are escaped."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    folder = tmp_path / "Läufe → 1"
    RunStore.create(folder, TINY)
    for args in (["export", str(folder), "--out", "x.npz"], ["explore", "pöndulum"]):
        done = subprocess.run(sonde(*args), capture_output=True, env=os.environ | ascii_only, check=False)
        said = (done.stdout + done.stderr).decode("ascii")
        assert done.returncode in (0, 2) and "Traceback" not in said and "UnicodeEncodeError" not in said, said
    closed = subprocess.run(f"{sys.executable} -m sonde explore --help >&- 2>&-", shell=True, check=False)
    assert closed.returncode == 0


def test_texts_are_printed_without_markup(monkeypatch, capsys, tmp_path):
    from sonde.cli._console import plain_console

    plain_console().print("Run: runs/[bold]x[/bold]:cat:[/]", soft_wrap=True)
    assert capsys.readouterr().out == "Run: runs/[bold]x[/bold]:cat:[/]\n"


@pytest.fixture(autouse=True)
def children_hear_interrupts():
    """The background jobs of a shell, in which tests may run, ignore the signal, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


WHEN_READY = -1.0


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def wait_until_begun(process: subprocess.Popen, seconds: float) -> None:
    """On a busy machine a process may not have begun; before its first lines nothing of ours can answer Ctrl-C."""
    used, end = Path(f"/proc/{process.pid}/stat"), time.monotonic() + 10
    while used.exists() and time.monotonic() < end:  # also of a process that has ended, which is asked for its exit code later
        state, *numbers = used.read_text().rpartition(")")[2].split()
        if state == "Z" or sum(map(int, numbers[10:12])) >= seconds * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.01)


def interrupted(command: list[str], after: float, tmp_path: Path, **environment: str) -> tuple[int, str, float]:
    """Press Ctrl-C after some seconds, or when the process is ready; the exit code, what was said, and how long it took."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=os.environ | environment,
        start_new_session=True,
    )
    if after == WHEN_READY:
        wait_for(tmp_path / "ready")
        after = 0.3
    else:
        wait_until_begun(process, 0.1)
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all processes of a command
    began = time.perf_counter()
    said = process.communicate(timeout=60)[0]
    return process.returncode, said, time.perf_counter() - began


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.15, 0.3, 0.6, 1.0, 2.0, 4.0, 7.0, 10.0])
def test_interrupt_gives_one_sentence_and_130_in_every_phase(after, tmp_path):
    """During imports, which crashed, and while the first programs compile, after which the process crashed at its end."""
    command = sonde("explore", "pendulum-gp-lite", "--out", "run")
    code, said, took = interrupted(command, after, tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
    assert code == 130 and said.count("Stopped") == 1 and "Traceback" not in said and "Exception" not in said, said
    assert took < _interrupts.GRACE + 5


@pytest.mark.slow
@pytest.mark.parametrize("after", [3.0, 3.5, 4.0, 5.0, 8.0])
def test_interrupt_of_several_processes_gives_one_sentence(after, tmp_path):
    command = sonde("explore", "gym:Pendulum-v1", "--world.processes", "--seeds", "2", "--out", "run")
    code, said, _ = interrupted(command, after, tmp_path)
    assert code == 130 and said.count("Stopped") == 1 and said.count("\n") <= 2, said


@pytest.mark.slow
@pytest.mark.parametrize("after", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("command", ["resume", "plot", "analyse", "evaluate", "export"])
def test_interrupt_of_a_command_on_a_run_gives_one_sentence(command, after, tmp_path):
    RunStore.create(tmp_path / "run", replace(TINY, rounds=200))
    options = {"evaluate": ["--task", "swing-up"], "export": ["--out", "x.npz"]}
    if command != "resume":
        from sonde.runs._run import run

        run(RunStore.create(tmp_path / "done", TINY))
    folder = "run" if command == "resume" else "done"
    code, said, _ = interrupted(sonde(command, folder, *options.get(command, [])), after, tmp_path)
    assert code in (0, 130) and "Traceback" not in said and "Exception" not in said, said  # 0 if it was done before
    assert code == 0 or said.count("Stopped") == 1


CHILD = """
import sys, time
from sonde.cli import _interrupts, _main
import sonde.cli
_interrupts.GRACE = 0.5
{body}
def ready_main():
    open("ready", "w").close()
    main()
_main.main = ready_main
sonde.cli.main()
"""


LOSING = {
    "code of others that swallows everything": """
def main():
    while True:
        try:
            time.sleep(9)
        except BaseException:
            pass
""",
    "a finaliser, which cannot raise": """
class Odd:
    def __del__(self):
        time.sleep(2)
def main():
    odd = Odd()
    del odd
    time.sleep(60)
""",
    "compiled code that does not return": """
import ctypes
def main():
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
""",
    "an exception in its place": """
def main():
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise ImportError("half imported")
""",
    "an end as if nothing had happened": """
def main():
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        pass
""",
    "an import": """
def main():
    import slow_module
""",
}
LINGERING = """
def main():
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        _interrupts.stopped()
        time.sleep(60)
"""


LATE = """
import os, signal
class Last:
    def __del__(self, kill=os.kill, own=os.getpid(), number=signal.SIGINT):
        kill(own, number)
def main():
    sys.last = Last()  # the interpreter drops it after it has given up its signal handlers
    print("done")
"""


def test_interrupt_of_a_command_that_is_done_changes_nothing(tmp_path):
    program = [sys.executable, "-c", CHILD.format(body=LATE)]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("to", LOSING)
def test_interrupt_cannot_be_lost_to(to, tmp_path):
    (tmp_path / "slow_module.py").write_text(
        "import time\ntry:\n    time.sleep(60)\nexcept BaseException:\n    raise ImportError"
    )
    path, program = os.pathsep.join([str(tmp_path), *sys.path]), CHILD.format(body=LOSING[to])
    code, said, took = interrupted([sys.executable, "-c", program], WHEN_READY, tmp_path, PYTHONPATH=path)
    assert code == 130 and said == _interrupts.SENTENCE + "\n", said
    assert took < 5


def test_second_interrupt_ends_the_process_at_once(tmp_path):
    program = CHILD.format(body=LINGERING)
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_for(tmp_path / "ready")
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        assert process.wait(5) == 130
        assert process.stderr is not None and process.stderr.read() == _interrupts.SENTENCE + "\n"


@pytest.mark.parametrize("command", _main.COMMANDS)
def test_interrupt_of_a_command_is_one_sentence(command, monkeypatch, capsys):
    import importlib

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module(f"sonde.cli._{command}"), "main", stop)
    assert call(monkeypatch, command) == 130
    assert capsys.readouterr().err == _interrupts.SENTENCE + "\n"


# ---- processes of Gymnasium --------------------------------------------------------------------------------------------------

DYING = """
import os
from gymnasium.envs.classic_control import PendulumEnv

class Dies(PendulumEnv):
    def __init__(self, when="never", parent=None, **options):
        super().__init__(**options)
        self.when, self.child = when, parent != os.getpid()
        self._die("init")
    def _die(self, now):
        if self.child and self.when == now:
            os._exit(3)
    def reset(self, **options):
        self._die("reset")
        return super().reset(**options)
    def step(self, action):
        self._die("step")
        return super().step(action)
    def close(self):
        self._die("close")
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["init", "reset", "step", "close"])
def test_process_that_dies_is_one_sentence(when, tmp_path, capfd):
    (tmp_path / "dying.py").write_text(DYING)
    options = json.dumps({"when": when, "parent": os.getpid()})
    world = GymWorld(f"{tmp_path}/dying.py:Dies", options=options, processes=True)
    with contextlib.ExitStack() as stack:
        warned = stack.enter_context(warnings.catch_warnings(record=True, action="always"))
        if when != "close":
            stack.enter_context(pytest.raises(SondeError, match="its process ended"))
        copies = world.open(2)
        stack.callback(copies.close)
        copies.reset([0, 1])
        copies.step(np.zeros((2, 1)))
    import gc

    gc.collect()
    assert not [warning for warning in warned if "Calling `close`" in str(warning.message)]
    assert "Traceback" not in "".join(capfd.readouterr())


# ---- worlds in JAX -----------------------------------------------------------------------------------------------------------

FAILING = """
import jax.numpy as jnp
from sonde.worlds import Pendulum

class Raises(Pendulum):
    def step(self, x, u, key):
        raise RuntimeError("no such thing\\nat all")

class Shape(Pendulum):
    def step(self, x, u, key):
        return jnp.zeros(5)

class Start(Pendulum):
    def reset(self, key):
        return None
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "Raises: its step failed: RuntimeError: no such thing"),
        ("Shape", "Shape: its step must return a state [3], got"),
        ("Start", "Start: its reset must return a state [3], got None"),
    ],
)
def test_world_in_jax_that_fails_is_one_sentence_and_leaves_no_folder(name, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert call(monkeypatch, "explore", f"{tmp_path / 'failing.py'}:{name}", "--out", str(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"sonde: error: {message}") and said.count("\n") == 1
    assert not (tmp_path / "run").exists()
