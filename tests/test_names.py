"""Where a name is expected and another one comes, the error names the one that was probably meant."""

import json
import re

import pytest

from command_line import call
from sonde import METHODS, SondeError, preset
from sonde._internal.errors import did_you_mean, nearest, one_of
from sonde.evaluation import Schema
from sonde.runs import PRESETS, RunConfig, TaskSettings
from sonde.runs._codec import from_json, to_json
from sonde.runs._store import RunStore
from sonde.solvers import ICEM
from sonde.worlds import Pendulum
from tiny import TINY

# ---- the nearest name --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("opaxx", "opax"),
        ("OPAX", "opax"),
        ("opax_sum", "opax-sum"),
        ("ucrl", "h-ucrl"),
        ("heuristic", "opax-heuristic"),
        ("plan", "plan2explore"),
        ("rnadom", "random"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_method_is_found(given, meant):
    assert nearest(given, METHODS) == meant
    assert did_you_mean(given, METHODS) == ("" if meant is None else f" did you mean {meant!r}?")


@pytest.mark.parametrize("name", PRESETS)
def test_a_slip_of_the_finger_finds_every_preset(name):
    middle = len(name) // 2
    for slip in (name[:middle] + name[middle - 1 :], name.replace("-", "_").upper(), name.replace("-", "")):
        assert slip == name or nearest(slip, PRESETS) == name


def test_a_name_that_is_expected_passes_and_another_is_rejected_with_all():
    one_of("colour", "red", ("green", "red"))
    with pytest.raises(SondeError, match=r"^unknown colour 'gren'; did you mean 'green'\? expected one of: green, red$"):
        one_of("colour", "gren", ("red", "green"))
    with pytest.raises(SondeError, match=r"^unknown colour 'x'; expected one of: green, red$"):
        one_of("colour", "x", (name for name in ("green", "red")))


# ---- the command line --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("exlpore", "explore"),
        ("analyze", "analyse"),
        ("explore pendulum-gp-lit", "pendulum-gp-lite"),
        ("explore Mountain_Car", "mountain-car"),
        ("explore fetch", "fetch-construction"),
        ("explore gym:Hoper-v5", "Hopper-v5"),
        ("explore gym:Pendulum-v9", "Pendulum-v1"),
        ("explore pendulum-gp-lite --methd opax", "--method"),
        ("explore pendulum-gp-lite --method opaxx", "opax"),
        ("explore pendulum-gp-lite --model.kernal rbf", "--model.kernel"),
        ("explore pendulum-gp-lite --model.kernel matrn52", "matern52"),
        ("explore pendulum-gp-lite --model.nose_floor 1", "--model.noise-floor"),
        ("explore pendulum-gp-lite --model.optimiser bfg", "bfgs"),
        ("explore pendulum-gp-lite --seed 3", "--seeds"),
        ("explore pendulum-gp-lite -rounds 3", "--rounds"),
        ("explore pendulum-gp-lite rounds 3", "--rounds"),
        ("explore pendulum-gp-lite --no-recalibrat", "--no-recalibrate"),
        ("explore pendulum-gp-lite --evaluation-tasks swingup", "swing-up"),
        ("explore pendulum-gp-lite --method h-ucrl --exploration-task swng-up", "swing-up"),
        ("explore pendulum-gp-lite --until uncertanty<0.3", "uncertainty<0.3"),
        ("explore pendulum-gp-lite --beta-rule heldout", "held-out"),
        ("explore pendulum-gp-lite --data lgo.csv", "log.csv"),
        ("explore mine.py:MyWrld", "MyWorld"),
        ("explore mien.py:MyWorld", "mine.py"),
        ("resume --from-rond 3 runs/a", "--from-round"),
        ("evaluate runs/a --tsak swing-up", "--task"),
        ("evaluate runs/a --task swing-up --orcale", "--oracle"),
        ("resume rnu", "run"),
        ("sweep pendulum-gp-lite --rouds 3", "--rounds"),
        ("sweep pendulum-gp-lite --set modle.rank=3", "model"),
        ("sweep pendulum-gp-lite --set model.rnak=3", "rank"),
        ("sweep pendulum-gp-lite --set solver=icm", "icem"),
        ("sweep pendulum-gp-lite --backend rya", "ray"),
        ("list kernals", "kernels"),
        ("completion bsh", "bash"),
    ],
)
def test_the_command_line_says_what_was_meant(line, meant, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from sonde.worlds import Pendulum as MyWorld\n")
    (tmp_path / "log.csv").touch()
    RunStore.create(tmp_path / "run", TINY)
    assert call(monkeypatch, *line.split()) == 2
    printed = capsys.readouterr().err
    assert f"did you mean {meant!r}?" in printed and printed.count("\n") == 1, printed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pendulum-gp-lite --model.width 3", "--model.width is an option of the model pe or relational, and this model is gp"),
        ("pendulum-gp-lite --beta-rule.delta 1", "of the beta-rule rkhs or held-out, and this beta-rule is none"),
        ("pendulum-gp-lite --world.blocks 1", "of the world fetch-construction, and this world is pendulum"),
        ("pendulum-gp-lite --method random --method.imagination.beta 1", "this method.imagination is none"),
        ("pendulum-gp-lite --rounds 3 4", "'4' belongs to no option"),
    ],
)
def test_an_option_of_another_part_is_said_to_be_one(line, message, monkeypatch, capsys):
    assert call(monkeypatch, "explore", *line.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        "--model.lengthscale-prior 1 2 --model.signal-prior 1.5 0.2",
        "--evaluation_horizon 3 --no-recalibrate --model.noise_floor=0.001",
        "--model pe --model.no-affine --model.width 8 --evaluation-tasks swing-up keep-down --evaluate-every 2",
        "--data None --capacity None --out {folder}/run",
    ],
)
def test_every_way_to_write_an_option_is_still_accepted(options, monkeypatch, capsys, tmp_path):
    started = []
    monkeypatch.setattr("sonde.cli._explore.run_and_draw", lambda store, *_, **__: started.append(store.config))
    monkeypatch.chdir(tmp_path)
    words = options.format(folder=tmp_path).split()
    assert call(monkeypatch, "explore", "pendulum-gp-lite", *words) == 0, capsys.readouterr().err
    assert len(started) == 1


def test_options_of_parts_in_a_users_file_are_left_to_the_parser(monkeypatch, capsys, tmp_path):
    fields = "@dataclass(frozen=True)\nclass Mine(ICEM):\n    depth: int = 1\n    sizes: tuple[int, int] = (1, 2)\n"
    (tmp_path / "mine.py").write_text(f"from dataclasses import dataclass\nfrom sonde.solvers import ICEM\n{fields}")
    started = []
    monkeypatch.setattr("sonde.cli._explore.run_and_draw", lambda store, *_, **__: started.append(store.config))
    monkeypatch.chdir(tmp_path)
    own = ["--solver", "mine.py:Mine", "--solver.depth", "3", "--solver.sizes", "3", "4"]
    assert call(monkeypatch, "explore", "pendulum-gp-lite", *own) == 0
    assert (started[0].solver.depth, started[0].solver.sizes) == (3, (3, 4))
    assert call(monkeypatch, "explore", "pendulum-gp-lite", "--solver", "mine.py:Mine", "--solver.deth", "3") == 2


# ---- files and Python --------------------------------------------------------------------------------------------------------


def changed(**changes):
    """A config as JSON with some fields changed: a value replaces, a name that ends in _ renames."""
    entries = json.loads(to_json(preset("pendulum-gp-lite")))
    for name, new in changes.items():
        if name.endswith("_"):
            entries[new] = entries.pop(name.removesuffix("_"))
        else:
            entries[name] = {**entries[name], **new}
    return json.dumps(entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(horizon_="horizn"), r"unknown field\(s\) horizn; did you mean 'horizon'\?"),
        (changed(model={"class": "sonde.models:GausianProcess"}), r"does not exist; did you mean 'GaussianProcess'\?"),
        (changed().replace('"gravity"', '"garvity"'), r"unknown field\(s\) garvity; did you mean 'gravity'\?"),
    ],
)
def test_a_config_on_disk_says_what_was_meant(text, message):
    with pytest.raises(SondeError, match=message):
        from_json(RunConfig, text, "config.json")


def test_keys_of_metrics_and_tasks_with_settings_are_suggested():
    with pytest.raises(SondeError, match=re.escape("did you mean 'max_epistemic'?")):
        Schema(Pendulum()).spec("max_epistmic")
    with pytest.raises(SondeError, match=re.escape("did you mean 'swing-up'?")):
        RunConfig(task_settings=(TaskSettings("swingup", 10, ICEM()),))
