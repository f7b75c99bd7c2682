"""The progress display: what fits the terminal, sparklines, and one line for each round elsewhere."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from sonde.models import Auto
from sonde.runs import ProgressDisplay, RunConfig, preset
from sonde.runs._columns import Column, fitting_table
from sonde.runs._progress import duration
from sonde.runs._sparkline import ASCII_LEVELS, LEVELS, sparkline
from sonde.worlds import GymWorld
from tiny import TINY

LONG = "rewards.py:a_very_long_name_of_a_reward_that_somebody_wrote"
CONFIGS = {
    "gp": replace(preset("pendulum-gp-lite"), rounds=10),
    "seeds": replace(preset("pendulum-gp-lite"), rounds=10, seeds=5),
    "rule": replace(preset("pendulum-gp-lite"), rounds=30, seeds=3, until="uncertainty<0.1"),
    "auto": replace(preset("pendulum-gp-lite"), rounds=10, model=Auto()),
    "sac": preset("mountain-car-lite"),
    "many tasks": preset("fetch-construction"),
    "gym": RunConfig(world=GymWorld("HumanoidStandup-v5"), evaluation_tasks=(LONG,), rounds=12),
}


def rows_of(config: RunConfig, number: int) -> list[dict]:
    """Metrics of a round, as a run would have them; numbers are powers of the round, and tasks are solved with time."""
    row = {"round": number, "transitions": config.steps * number}
    row |= {"max_epistemic": 2 / number, "max_epistemic_common": 3 / number, "realised_information_gain": 900 / number}
    row |= {"model_rmse": 0.5 / number**2, "prediction_error": 0.3 / number, "overconfidence": 1.1, "information_rank": 0.1}
    row |= {"seconds/plan": 12.25, "seconds/fit": 3.5, "seconds/evaluate": 5.0}
    for task in config.task_names if config.evaluate_every and number % config.evaluate_every == 0 else ():
        row[f"return/{task.rsplit(':')[-1]}"] = -1200 / number
        row[f"success/{task.rsplit(':')[-1]}"] = 1 - 1 / number
    if isinstance(config.model, Auto):
        row |= {"model_choice": 1, **{f"simulation_error/{label}": 0.1 for label in config.model.labels}}
    return [{"seed": seed, **row} for seed in config.seed_list]


def shown(config: RunConfig, rounds: int, width: int, height: int = 40, running: bool = True, **console) -> list[str]:
    """What a terminal shows after some rounds, line by line."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None, **console)
    display = ProgressDisplay(terminal, Path.cwd() / "runs" / "a b")
    display.on_run_start(config, [row for number in range(1, rounds + 1) for row in rows_of(config, number)])
    display.on_phase(rounds + 1, "plan", "")
    display.on_phase(rounds + 1, "plan", "step 3 of 100")
    live, display._live = display._live, None
    assert live is not None
    live.stop()
    if not running:
        display.on_run_end()
        display.doing = ""
    page = Console(file=(text := io.StringIO()), force_terminal=True, width=width, height=height, color_system=None, **console)
    page.print(display)
    return text.getvalue().splitlines()


# ---- the table ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("name", CONFIGS)
def test_no_line_is_wider_than_the_terminal_and_the_page_not_higher(name, width):
    lines = shown(CONFIGS[name], 9, width, 24)
    assert max(map(cell_len, lines)) <= width and len(lines) <= 24
    cells = [line.split() for line in lines if line.split()[:1] == ["9"]]
    assert len(cells) == 1, "the newest round has one line"
    headings = " ".join(lines[: lines.index(next(line for line in lines if line.split()[:1] == ["9"]))])
    assert "round" in headings and "uncertainty" in headings


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in ("rule", "many tasks", "gym")])
def test_at_80_columns_the_table_has_uncertainty_error_and_the_return_of_each_task(name):
    lines = shown(CONFIGS[name], 4, 80)
    heading = next(line for line in lines if line.split()[:1] == ["round"])
    tasks = CONFIGS[name].task_names
    assert {"uncertainty", *" ".join(["model error", *tasks]).split()} <= set(heading.split())
    assert "-300" in next(line for line in lines if line.split()[:1] == ["4"])


def test_a_wide_terminal_shows_everything():
    heading = next(line for line in shown(CONFIGS["gp"], 2, 200) if line.split()[:1] == ["round"])
    assert all(f"{phase} s" in heading for phase in ("plan", "fit", "evaluate")) and "transitions" in heading
    assert heading.split()[-1] == "s" and not heading.endswith("  s"), "the sum of the phases is for narrow terminals"


def test_columns_are_given_up_in_their_order_and_values_stay_in_their_columns():
    columns = [Column("round"), Column("second", 8), Column("first", 3), Column("sum", comes=2), Column("long heading of it")]
    for column in columns:
        column.add(column.title[:2], "s")
    headings = lambda width: [str(line) for line in fitting_table(columns, width)][:-1]
    assert headings(80) == ["  round  second  first  long heading of it"]
    assert headings(38) == ["                        long heading", "  round  second  first         of it"]
    assert headings(35) == [f"{'':22}long heading", "  round  second  sum         of it"]
    assert headings(27) == [f"{'':14}long heading", "  round  sum         of it"]
    for width in range(5, 60):
        assert all(len(str(line)) <= width for line in fitting_table(columns, width))


def test_old_rounds_make_room_for_new_ones_while_it_runs_and_come_back_at_the_end():
    config = replace(CONFIGS["gp"], rounds=60)
    lines = shown(config, 50, 80, 24)
    assert len(lines) <= 24 and any("earlier rounds" in line for line in lines)
    numbers = [line.split()[0] for line in shown(config, 50, 80, 24, running=False) if line.split()[:1]]
    assert [number for number in numbers if number.isdigit()] == [str(number) for number in range(1, 51)]


# ---- sparklines --------------------------------------------------------------------------------------------------------------


def test_sparkline_rises_with_the_values():
    assert sparkline({n: float(n) for n in range(1, 9)}, 8, 40) == LEVELS
    assert sparkline({n: 2.0**-n for n in range(1, 9)}, 8, 40, log=True) == LEVELS[::-1]
    assert sparkline({n: float(n) for n in range(1, 9)}, 8, 40, ascii_only=True) == ASCII_LEVELS
    assert sparkline({1: 3.0, 2: 3.0}, 2, 40) == LEVELS[4] * 2, "equal values are in the middle"


def test_sparkline_shows_rounds_to_come_and_repeats_where_nothing_was_measured():
    assert sparkline({1: 0.0, 3: 1.0}, 6, 40) == f"{LEVELS[0]}{LEVELS[0]}{LEVELS[-1]}···"
    assert sparkline({2: 0.0, 3: 1.0}, 4, 40) == f" {LEVELS[0]}{LEVELS[-1]}·"
    assert sparkline({1: math.nan}, 4, 40) == sparkline({}, 4, 40) == sparkline({1: 1.0}, 4, 0) == ""


def test_more_rounds_than_characters_are_averaged():
    drawn = sparkline({n: float((n - 1) // 100) for n in range(1, 801)}, 800, 8)
    assert drawn == LEVELS
    assert sparkline({1: 0.0, 2: 2.0, 3: 1.0, 4: 1.0}, 4, 2) == LEVELS[4] * 2, "means of two rounds are equal"


def test_uncertainty_returns_and_error_have_sparklines_with_first_and_newest_value():
    lines = shown(CONFIGS["gp"], 4, 80)
    uncertainty = next(line for line in lines if line.startswith("  uncertainty  "))
    assert uncertainty.endswith("2.0000 -> 0.5000") and f"{LEVELS[-1]}" in uncertainty and "······" in uncertainty
    assert any(line.startswith("  swing-up ") and line.endswith("-1200 -> -300 (success 0.75)") for line in lines)
    assert any(line.startswith("  model error  ") and line.endswith("0.5000 -> 0.0312") for line in lines)
    assert not any("->" in line for line in shown(CONFIGS["gp"], 1, 80)), "one value has no course"


def test_a_world_whose_reachable_set_is_not_known_has_no_sparkline_of_the_uncertainty():
    config = replace(TINY, evaluate_every=0)
    display = ProgressDisplay(Console(file=io.StringIO(), width=80))
    display.on_run_start(config, [{"seed": 0, "round": n, "realised_information_gain": 3.0} for n in (1, 2)])
    assert display._curve_lines(80, False) == []


# ---- around the table --------------------------------------------------------------------------------------------------------


def test_the_report_is_named_once_there_is_a_folder_and_not_after_the_end():
    assert "report: sonde report 'runs/a b'" in shown(CONFIGS["gp"], 1, 80)
    assert not any("report" in line for line in shown(CONFIGS["gp"], 0, 80))
    assert not any("report" in line for line in shown(CONFIGS["gp"], 2, 80, running=False))


def test_a_terminal_with_ascii_only_gets_nothing_else():
    class Ascii(io.StringIO):
        encoding = "ascii"

    terminal = Console(file=Ascii(), force_terminal=True, width=80, height=24, color_system=None)
    display = ProgressDisplay(terminal)
    config = CONFIGS["gp"]
    display.on_run_start(config, [row for number in (1, 2, 3) for row in rows_of(config, number)])
    display.on_phase(4, "fit", "")
    with terminal.capture() as captured:
        terminal.print(display)
    display.on_run_end()
    assert captured.get().isascii() and "2.0000 -> 0.6667" in captured.get()


def test_a_log_has_one_line_for_each_round_with_everything():
    config = CONFIGS["gp"]
    display = ProgressDisplay(Console(file=(text := io.StringIO()), width=40), Path("runs/a"))
    display.on_run_start(config, rows_of(config, 1))
    for number in (2, 3):
        display.on_phase(number, "plan", "")
        display.on_round_end(number, rows_of(config, number))
    display.on_run_end()
    title, *lines = text.getvalue().splitlines()
    assert title == "opax: 10 rounds of 100 steps" and len(lines) == 2
    assert lines[0] == (
        "round 2, transitions 200, information 450, uncertainty 1.0000, common kernel 1.5000, model error 0.1250, "
        "swing-up -600 (success 0.50), keep-down -600 (success 0.50), plan s 12.2, fit s 3.5, evaluate s 5.0"
    )


@pytest.mark.parametrize(("seconds", "text"), [(4.4, "4 s"), (89.0, "89 s"), (600.0, "10 min"), (9000.0, "2.5 h")])
def test_durations_are_in_the_unit_that_suits_them(seconds, text):
    assert duration(seconds) == text
