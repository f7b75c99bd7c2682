"""Completion on Tab: what may come next is what the commands accept, and the real shells show it."""

import json
import os
import re
import shutil
import subprocess
import sys

import gymnasium
import pytest

from command_line import call
from sonde.cli._answers import GYM_ENVS, answer, answer_lines, split_line
from sonde.cli._completion import SHELLS, script
from sonde.cli._main import COMMANDS, USAGE
from sonde.runs import PRESETS
from sonde.runs._store import RunStore
from tiny import TINY

# ---- answers -----------------------------------------------------------------------------------------------------------------


def offered(*words):
    return set(answer(words).words)


def options_in_help(monkeypatch, capsys, *words):
    """The options that `--help` explains, as the parser prints them."""
    assert call(monkeypatch, *words, "--help") == 0
    printed = capsys.readouterr().out
    explained = re.findall(r"^(?:│ |  ?)(?:-h, )?(--[a-z][\w.-]*(?:, --[\w.-]+)*)", printed, re.MULTILINE)
    parts = re.findall(r"^  (--[\w.-]+) NAME ", printed, re.MULTILINE)
    assert len(explained) > 1, printed
    return {name for line in explained for name in line.split(", ")} | set(parts)


def test_commands_are_offered_and_are_those_of_the_usage():
    assert offered("") == {*COMMANDS, "--help", "--version"}
    assert re.findall(r"^  (\w+) ", USAGE, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("explore", "sweep")])
def test_every_option_of_a_command_is_offered(command, monkeypatch, capsys):
    explained = options_in_help(monkeypatch, capsys, command) if command not in ("list", "completion") else {"--help"}
    wanted = {name for name in explained if not name.startswith("--no-")}
    # those of parts depend on what is chosen: all are offered
    found = offered(command, "-")
    missing = {name for name in wanted - found if not name.startswith("--world.")}  # those of the system that is named
    assert not missing and (command in ("fit", "evaluate") or found == wanted)


def test_every_option_of_a_sweep_is_offered(monkeypatch, capsys):
    explained = options_in_help(monkeypatch, capsys, "sweep", "pendulum-gp")
    assert offered("sweep", "pendulum-gp", "-") == explained - {"--no-lockstep"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "pendulum-gp-lite",
        "pendulum-gp-lite --beta-rule rkhs --model.kernel matern52",
        "pendulum-pe-lite --beta-rule held-out --method opax-heuristic --evaluation-imagination optimistic",
        "pendulum-pe --method random --solver sac",
        "mountain-car-lite --model auto",
        "mountain-car --method max --solver icem --method.objective log-uncertainty",
        "reacher-h-ucrl",
        "swimmer",
        "cheetah-lite --model gp",
        "fetch-construction",
    ],
)
def test_the_options_of_the_chosen_parts_are_offered_and_no_others(words, monkeypatch, capsys):
    explained = options_in_help(monkeypatch, capsys, "explore", *words.split())
    given = set(re.findall(r"--[\w.-]+", words))
    of_a_kernel = set() if "gp" in words or "auto" in words else {"--model.kernel"}  # a model without one has no such option
    of_a_kernel |= {"--model.kernel"} if "auto" in words else set()
    assert offered("explore", *words.split(), "-") == explained - given - of_a_kernel - {"--no-overwrite"}


def test_where_the_parts_are_not_known_the_options_of_all_are_offered():
    found = offered("explore", "gym:Hopper-v5", "-")
    assert {"--model.rank", "--model.members", "--world.reachable-steps"} <= found and "--world.gravity" not in found
    assert {"--model.rank", "--solver.buffer"} <= offered("explore", "own.py:World", "--solver", "own.py:Solver", "-")
    assert "--method.imagination.beta" not in offered("explore", "pendulum", "--method", "mean-ae", "-")
    assert "--method.imagination.beta" in offered("explore", "pendulum", "--method", "own.py:method", "-")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("explore pendulum-gp-lite --method ", {"opax", "random", "cee-us"}),
        ("explore pendulum-gp-lite --method=", {"--method=opax", "--method=random"}),
        ("explore pendulum-gp-lite --model ", {"gp", "pe", "auto"}),
        ("explore pendulum-gp-lite --model.kernel ", {"rbf", "linear"}),
        ("explore pendulum-gp-lite --beta-rule ", {"none", "rkhs"}),
        ("explore pendulum-gp-lite --model.optimiser ", {"bfgs", "adam"}),
        ("explore pendulum-gp-lite --evaluation-tasks ", {"swing-up", "keep-down"}),
        ("explore pendulum-gp-lite --evaluation-tasks swing-up ", {"keep-down", "--rounds"}),
        ("explore reacher --exploration-task ", {"reach"}),
        ("explore pendulum-gp-lite --until ", {"uncertainty<", "information<"}),
        ("sweep pendulum-gp-lite --method opax ", {"random", "--set"}),
        ("sweep pendulum-gp-lite --backend ", {"local", "ray"}),
        ("sweep pendulum-gp-lite --set ", {"model.noise_std=", "solver=", "confidence.holdout=", "rounds="}),
        ("sweep pendulum-gp-lite --set solver=icem,", {"solver=icem,sac"}),
        ("sweep pendulum-pe-lite --set rounds=1 --set model.affine=", {"model.affine=true", "model.affine=false"}),
        ("evaluate runs/a --task ", {"swing-up", "forward", "pick-place"}),
        ("list ", {"presets", "beta-rules"}),
        ("completion ", set(SHELLS)),
        ("explore gym:", {"gym:Hopper-v5"}),
        ("explore ", {"mountain-car", *PRESETS}),
    ],
)
def test_values_with_known_names_are_offered(words, expected):
    assert expected <= offered(*words.split(" "))


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        ("resume ", "folders"),
        ("plot runs/a ", "folders"),
        ("export runs/a --out ", "files"),
        ("evaluate runs/a --video ", "files"),
        ("explore m", "files"),
        ("explore pendulum-gp-lite --out ", "folders"),
        ("explore pendulum-gp-lite --data ", "files"),
        ("explore pendulum-gp-lite --rounds ", "none"),
        ("nothing ", "none"),
    ],
)
def test_files_and_folders_are_asked_for_where_they_belong(words, paths):
    assert answer(words.split(" ")).paths == paths


def test_an_option_is_offered_once_unless_it_may_be_repeated():
    line = ["sweep", "pendulum-gp", "--rounds", "3", "--set", "horizon=5", "--"]
    assert "--rounds" not in offered(*line) and {"--set", "--seeds"} <= offered(*line)


def test_tasks_are_those_of_the_run_in_the_folder(tmp_path):
    RunStore.create(tmp_path / "run", TINY)
    assert offered("evaluate", str(tmp_path / "run"), "--task", "") == {"swing-up", "keep-down"}
    (tmp_path / "run" / "config.json").write_text(json.dumps({"world": 3}))
    assert "forward" in offered("evaluate", str(tmp_path / "run"), "--task", "")


def test_environments_that_are_offered_exist():
    assert set(GYM_ENVS) <= set(gymnasium.registry)


@pytest.mark.parametrize(
    ("line", "raw", "words"),
    [
        ("sonde ", "", [""]),
        ("sonde exp", "exp", ["exp"]),
        ("sonde resume my\\ runs/", "my\\ runs/", ["resume", "my runs/"]),
        ("sonde resume 'my runs", "'my runs", ["resume", "my runs"]),
        ('sonde resume "my runs" --', "--", ["resume", "my runs", "--"]),
    ],
)
def test_lines_are_split_as_shells_split_them(line, raw, words):
    assert split_line(line) == (raw, words)


def test_bash_gets_what_follows_the_last_character_at_which_it_splits():
    assert list(answer_lines("bash", ["\"'=:", "sonde explore gym:Hop"]))[1:] == ["Hopper-v5"]
    assert list(answer_lines("bash", ["\"'", "sonde explore gym:Hop"]))[1:] == ["gym:Hopper-v5"]
    assert list(answer_lines("bash", ["=:", "sonde explore pendulum --until un"])) == ["none open", "uncertainty\\<"]
    assert list(answer_lines("bash", ["=:", "sonde explore pendulum --until 'un"])) == ["none open", "uncertainty<"]


# ---- shells ------------------------------------------------------------------------------------------------------------------

ASKED = {
    "sonde exp": {"explore", "export"},
    "sonde explore mountain-car-l": {"mountain-car-lite"},
    "sonde explore pendulum-pe-lite --model.wi": {"--model.width"},
    "sonde explore pendulum-gp-lite --model.wi": set(),
    "sonde explore pendulum-gp-lite --method=opax-s": {"--method=opax-sum"},
    "sonde evaluate run --task sw": {"swing-up"},
    "sonde resume ru": {"run/"},
    "sonde explore pendulum-gp-lite --data lo": {"log of today.csv"},
    "sonde list pre": {"presets"},
}
"""Lines, and what a shell must offer for them."""
BASH = """
eval "$(sonde completion bash)"
for COMP_LINE in "$@"; do
    COMP_POINT=${#COMP_LINE}; read -ra COMP_WORDS <<< "$COMP_LINE"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    word=${COMP_WORDS[COMP_CWORD]}; COMPREPLY=()
    $(complete -p sonde | sed 's/.*-F \\([^ ]*\\).*/\\1/') sonde "${word##*[:=]}" ""
    printf '%s\\n' "${COMPREPLY[@]}" ---
done
"""
ZSH = """
zmodload zsh/zpty
zpty shell "zsh -f -i"
zpty -w shell 'autoload -Uz compinit; compinit -u -D; eval "$(sonde completion zsh)"
compadd() {
    local -a hits; local -i query=0; local word
    for word in "$@"; do case $word in (-|--) break ;; (-[OAD]) query=1 ;; esac; done
    (( query )) || { builtin compadd -A hits "$@"; (( $#hits )) && print -rl -- $hits >> answers }
    builtin compadd "$@"
}
ask() { zle complete-word; print -- --- >> answers; BUFFER= }; zle -N ask; bindkey "^T" ask; print -- rea""dy > started'
until [[ -e started ]]; do sleep 0.1; done
number=0
for line in "$@"; do
    zpty -w -n shell "$line"$'\\C-T'
    (( number += 1 ))
    until [[ $(grep -c -- "^---$" answers 2> /dev/null) == $number ]]; do sleep 0.1; zpty -r -t shell shown || true; done
done
zpty -d shell; cat answers
"""
FISH = """
sonde completion fish | source
for line in $argv; complete -C $line | string replace -r '\\t.*' ''; echo ---; end
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a program `sonde`, a run, and a file whose name has spaces, which is the home folder too."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "sonde"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sonde "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    RunStore.create(tmp_path / "run", TINY)
    (tmp_path / "log of today.csv").touch()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "command"),
    [
        ("bash", ["bash", "--norc", "-c", BASH, "bash"]),
        ("zsh", ["zsh", "-f", "-c", ZSH, "zsh"]),
        ("fish", ["fish", "-c", FISH]),
    ],
)
def test_the_shell_offers_what_may_come_next(shell, command, desk):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completion is not tested")
    done = subprocess.run([*command, *ASKED], capture_output=True, text=True, timeout=120, env={**os.environ, "TERM": "dumb"})
    assert done.returncode == 0 and not done.stderr, done.stderr
    unquoted = done.stdout.replace("\\", "")  # zsh quotes the names of files
    answers = [set(filter(None, part.split("\n"))) for part in unquoted.split("---\n")[:-1]]
    expected = list(ASKED.values())
    if shell != "fish":
        # bash replaces what follows '=', and both end the names of folders themselves
        expected = [{word.rstrip("/") for word in words} for words in expected]
    if shell == "bash":
        expected = [{word.removeprefix("--method=") for word in words} for words in expected]
    assert dict(zip(ASKED, answers, strict=True)) == dict(zip(ASKED, expected, strict=True))


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_prints_the_script_and_names_another_shell_that_is_meant(shell, monkeypatch, capsys):
    assert call(monkeypatch, "completion", shell) == 0
    assert capsys.readouterr().out == script(shell)
    assert call(monkeypatch, "completion", shell[:-1]) == 2
    assert f"did you mean '{shell}'?" in capsys.readouterr().err


def test_help_says_how_to_install_the_scripts(monkeypatch, capsys):
    assert call(monkeypatch, "completion", "--help") == 0
    printed = capsys.readouterr().out
    for shell, place in (("bash", "~/.bashrc"), ("zsh", "~/.zshrc"), ("fish", "~/.config/fish/completions/sonde.fish")):
        assert re.search(rf"^ *{shell}: .*sonde completion {shell}.*> {re.escape(place)}", printed, re.MULTILINE)
