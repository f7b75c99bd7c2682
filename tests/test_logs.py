"""Logs as they come: clocks and lost samples, units, resampling, velocities, and what `sonde data check` says about them."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_line import call
from sonde import ICEM, METHODS, Explorer, GaussianProcess, RunConfig, SondeError
from sonde.runs import read_measurements
from sonde.runs._codec import from_json, to_json
from sonde.runs._config import with_absolute_paths
from sonde.runs._initial_data import load_initial_data
from sonde.runs._store import RunStore
from sonde.runs.logs import LogFormat, _check, _load, check_logs, system_of
from sonde.worlds import OwnSystem, Pendulum
from tiny import TINY

SYSTEM = OwnSystem(states=("x",), actions=("u",))
DT = 0.05


def text_of(rows, header="time,x,u") -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def write(path: Path, rows, header="time,x,u") -> str:
    path.write_text(text_of(rows, header))
    return str(path)


def ramp(count: int) -> list[tuple[float, float, float]]:
    """Rows whose state is the number of their row, and whose action is a tenth of it."""
    return [(round(DT * k, 6), float(k), k / 100) for k in range(count)]


def read(source, log: LogFormat | None = None, system=SYSTEM):
    return read_measurements(str(source), system, log)


def pairs(found) -> list[tuple[float, float]]:
    return list(zip(found.states[:, 0].tolist(), found.next_states[:, 0].tolist(), strict=True))


# Lost samples


def simulated(count: int, seed: int) -> np.ndarray:
    """Rows (time, angle, speed, action) of Gymnasium's pendulum, by its equation."""
    rng, state, torque, rows = np.random.default_rng(seed), np.array([np.pi, 0.0]), 0.0, []
    for k in range(count):
        torque = rng.uniform(-1, 1) if k % 5 == 0 else torque
        rows.append((DT * k, *state, torque))
        speed = np.clip(state[1] + (15 * np.sin(state[0]) + 6 * torque) * DT, -8, 8)
        state = np.array([state[0] + speed * DT, speed])
    return np.array(rows)


@pytest.mark.slow
def test_log_with_lost_samples_gives_as_good_a_model_as_the_whole_one(tmp_path):
    """A tenth of the samples is lost. Without the clock, as logs were read before, the error is more than five times larger."""
    system = OwnSystem(states=("angle", "speed"), actions=("torque",))
    rows, held_out = simulated(200, seed=0), simulated(200, seed=7)
    kept = np.sort([0, *(1 + np.random.default_rng(1).permutation(199)[:179])])
    header = "time,angle,speed,torque"
    whole, lossy = write(tmp_path / "whole.csv", rows, header), write(tmp_path / "lossy.csv", rows[kept], header)

    def error(source: str, log: LogFormat) -> float:
        explorer = Explorer(METHODS["opax"], GaussianProcess(steps=10, rank=32), ICEM(), system.spec, capacity=200)
        explorer.start_from(read_measurements(source, system, log))
        mean = explorer.predict(held_out[None, :-1, 1:3], held_out[None, :-1, 3:]).mean[0]
        size = np.std(np.diff(held_out[:, 1:3], axis=0), axis=0)
        return float(np.sqrt(np.mean(((mean - held_out[1:, 1:3]) / size) ** 2)))

    complete, ignored = error(whole, LogFormat()), error(lossy, LogFormat(time_column="none"))
    with pytest.warns(UserWarning, match="lossy.csv: about 20 samples lost or late before lines"):
        cut = error(lossy, LogFormat())
    assert cut < 1.5 * complete
    assert ignored > 5 * complete


def test_new_episode_begins_after_each_gap(tmp_path):
    lost = [row for k, row in enumerate(ramp(12)) if k not in (4, 5, 9)]
    source = write(tmp_path / "a.csv", lost)
    with pytest.warns(UserWarning, match=r"about 3 samples lost or late before lines 6, 9 \(the longest gap has 3 steps\)"):
        found = read(source)
    assert pairs(found) == [(k, k + 1) for k in (0, 1, 2, 6, 7, 10)]
    np.testing.assert_array_equal(found.actions[:, 0], found.states[:, 0] / 100)
    findings = [str(finding) for finding in check_logs(source).findings if finding.level == "warning"]
    assert any("lines 6, 9" in finding for finding in findings)


def test_repeated_and_backward_times_are_found(tmp_path):
    rows = ramp(8)
    rows[3:3] = [rows[2]]  # a sample written twice
    rows += [(0.0, 50.0, 0.0), (DT, 51.0, 0.0)]  # the clock was set back
    source = write(tmp_path / "a.csv", rows)
    with pytest.warns(UserWarning) as warned:
        found = read(source)
    assert pairs(found) == [*((k, k + 1) for k in range(7)), (50, 51)]
    texts = " ".join(str(warning.message) for warning in warned)
    assert "line 5 repeats the time of the one before; dropped" in texts
    assert "time goes back at line 11; a new episode begins there" in texts


def test_small_jitter_is_no_gap_and_is_told(tmp_path):
    late = [(time + 0.004 * (-1) ** k, x, u) for k, (time, x, u) in enumerate(ramp(20))]
    source = write(tmp_path / "a.csv", late)
    with pytest.raises(
        SondeError, match=r"most steps differ from 0.05 s by more than 10%, .* raise --jitter, or add --irregular"
    ):
        read(source, LogFormat(dt=DT))  # they are 0.042 and 0.058 s
    log = LogFormat(jitter=0.2, dt=DT)
    assert len(read(source, log).states) == 19
    assert any("up to 16% of a step early or late" in finding.text for finding in check_logs(source, log).findings)


def test_step_that_is_not_the_systems_is_refused(tmp_path):
    fast, slow = (
        write(tmp_path / f"{name}.csv", [(k * dt, k, 0) for k in range(50)]) for name, dt in (("a", 0.01), ("b", 0.2))
    )
    with pytest.raises(SondeError, match=r"a\.csv: samples are 0.01 s apart, and the system's step is 0.05 s; add --irr"):
        read(fast, LogFormat(dt=DT))
    with pytest.raises(SondeError, match=r"b\.csv: samples are 0.2 s apart, .* give the time between samples as --dt"):
        read(slow, LogFormat(dt=DT))
    names = {name: f"{name}=x" for name in Pendulum().state_names}
    log = LogFormat(columns=(*names.values(), "torque=u"), dt=0.1)
    with pytest.raises(SondeError, match=r"dt is 0.1 s, and the system's own step is 0.05 s; leave out --dt"):
        read(fast, log, Pendulum())
    with pytest.raises(SondeError, match=r"samples are 0.01 s apart, and the system's step is 0.05 s"):
        read(fast, replace(log, dt=None), Pendulum())


# Clocks


@pytest.mark.parametrize(
    ("title", "stamp", "log"),
    [
        ("time", lambda t: f"{t:.2f}", LogFormat()),
        ("Time [ms]", lambda t: f"{1000 * t:.0f}", LogFormat()),
        ("timestamp_us", lambda t: f"{1.7e15 + 1e6 * t:.0f}", LogFormat()),
        ("t", lambda t: f"2026-01-31T12:00:{t:09.6f}Z", LogFormat()),
        ("datetime", lambda t: f"2026-01-31 23:59:{58 + t:09.6f}" if t < 2 else f"2026-02-01 00:00:{t - 2:09.6f}", LogFormat()),
        ("Uhr", lambda t: f"12:00:{t:06.3f}", LogFormat(time_column="Uhr")),
        ("ticks", lambda t: f"{t / 0.001:.0f}", LogFormat(time_column="ticks [ms]")),
    ],
)
def test_clock_is_read_in_the_form_in_which_it_is_written(tmp_path, title, stamp, log):
    rows = [(stamp(DT * k), k, 0) for k in range(60) if k != 30]
    source = write(tmp_path / "a.csv", rows, f"{title},x,u")
    with pytest.warns(UserWarning, match="about 1 sample lost or late before line 32"):
        found = read(source, log)
    assert pairs(found) == [(k, k + 1) for k in range(59) if k not in (29, 30)]
    assert check_logs(source, log, SYSTEM).dt == pytest.approx(DT, rel=1e-5)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("soon", "line 4, column 'time': .*could not convert"),
        ("", "line 4, column 'time': there is no time"),
        ("nan", "line 4, column 'time': expected a time, got nan"),
        ("0,1", "line 4, column 'time': '0,1' seems to be a number with a decimal comma: add --decimal-comma"),
    ],
)
def test_time_that_cannot_be_read_is_refused(tmp_path, cell, message):
    rows = [list(row) for row in ramp(6)]
    rows[2][0] = f'"{cell}"'
    source = write(tmp_path / "a.csv", rows)
    with pytest.raises(SondeError, match=f"{message}.*--time-column none if rows are one step apart"):
        read(source)
    assert pairs(read(source, LogFormat(time_column="none"))) == [(k, k + 1) for k in range(5)]


def test_column_that_is_no_clock_is_refused_as_one(tmp_path):
    source = write(tmp_path / "a.csv", [("noon", 1, 0), ("one", 2, 0)])
    with pytest.raises(
        SondeError, match=r"line 2, column 'time': expected a number or an ISO time stamp such as .*, got 'noon'"
    ):
        read(source)
    with pytest.raises(SondeError, match=r"missing column\(s\) 'clock'; found: 'time', 'x', 'u'"):
        read(source, LogFormat(time_column="clock"))
    with pytest.raises(SondeError, match=r"the clock 'time' has the unit \[mm\]; expected one of time"):
        read(source, LogFormat(time_column="time [mm]"))
    with pytest.raises(SondeError, match=r"there is no clock, .* say --time-column none .* or add a column 'episode'"):
        read(write(tmp_path / "b.csv", [(1, 0), (2, 0)], "x,u"))


# Columns and units


def test_semicolons_decimal_commas_and_millimetres_are_read(tmp_path):
    (tmp_path / "plant.csv").write_text(
        "# bench 3\nZeit;Bemerkung;Weg;Ventil\n[ms];;[mm];[%]\n0;an;12,5;25\n50;;-7,25;100\n100;;1e1;0\n150;aus;0;50\n"
    )
    log = LogFormat(columns=("x=Weg", "u=Ventil 0..100"), time_column="Zeit", decimal_comma=True)
    found = read(tmp_path / "plant.csv", log)
    np.testing.assert_allclose(found.states[:, 0], [0.0125, -0.00725, 0.01])
    np.testing.assert_allclose(found.next_states[:, 0], [-0.00725, 0.01, 0.0])
    np.testing.assert_allclose(found.actions[:, 0], [-0.5, 1.0, -1.0])
    with pytest.raises(SondeError, match=r"line 4, column 'Weg': '12,5' seems to be .*: add --decimal-comma"):
        read(tmp_path / "plant.csv", replace(log, decimal_comma=False))
    (tmp_path / "point.csv").write_text("Zeit;Weg;Ventil\n0;0.5;0\n1;0,5;0\n")
    with pytest.raises(SondeError, match=r"line 2, column 'Weg': expected a number such as -0,25, got '0.5'"):
        read(tmp_path / "point.csv", log)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("x=a [mm]", 0.03),
        ("x=a [cm]", 0.3),
        ("x=a [km/h]", 30 / 3.6),
        ("x=a [deg]", np.pi / 6),
        ("x=a [°]", np.pi / 6),
        ("x=a [deg/s]", np.pi / 6),
        ("x=a [rpm]", np.pi),
        ("x=a [%]", 0.3),
        ("x=a [kPa]", 30_000),
        ("x=a [l/min]", 0.0005),
        ("x=a [mm/s^2]", 0.03),
        ("x=a [min]", 1800),
        ("x=a [degC]", 30),
        ("x=a * 0.5", 15),
        ("x=a * -2 + 1", -59),
        ("x=a [mm] * 2 - 0.01", 0.05),
        ("x=a + 1e1", 40),
        ("x=cos(a [deg])", np.sqrt(0.75)),
        ("x=sin(a [deg]) * 2", 1.0),
        ("x='b [x] + 1'", 7),
    ],
)
def test_units_factors_and_functions_become_numbers_of_the_system(tmp_path, entry, value):
    source = write(tmp_path / "a.csv", [(30, 7, 0), (30, 7, 0)], "a,b [x] + 1,u")
    found = read(source, LogFormat(columns=(entry,), time_column="none"))
    np.testing.assert_allclose(found.states[:, 0], value)


def test_units_of_the_header_are_used_unless_another_is_given(tmp_path):
    source = write(tmp_path / "a.csv", [(0, 30, 0), (50, 40, 0)], "time [ms],x (mm),u")
    np.testing.assert_allclose(read(source).next_states, 0.04)
    with pytest.warns(
        UserWarning, match=r"unit of 'x \(mm\)' is \[mm\] in the log and \[cm\] in the column map; the column map"
    ):
        np.testing.assert_allclose(read(source, LogFormat(columns=("x=x [cm]",))).next_states, 0.4)
    odd = write(tmp_path / "b.csv", [(0, 30, 0), (50, 40, 0)], "time [ms],x [furlong],u")
    assert read(odd).next_states[0, 0] == 40
    assert any("the unit [furlong] of 'x [furlong]' is not known" in one.text for one in check_logs(odd).findings)


def test_ranges_become_actions(tmp_path):
    source = write(tmp_path / "a.csv", [(0, 1, -24), (1, 1, 12), (2, 1, 24), (3, 1, "")], "time,x,volts")
    log = LogFormat(columns=("u=volts -24..24",))
    np.testing.assert_allclose(read(source, log).actions[:, 0], [-1, 0.5, 1])
    with pytest.raises(SondeError, match=r"line 2, column 'volts': expected an action in \[-1, 1\], got -1.2 \(and 1 more"):
        read(source, LogFormat(columns=("u=volts -20..20",)))
    (finding, *_) = [one for one in check_logs(source, LogFormat(columns=("x=x", "u=volts"))).findings if one.level == "note"]
    assert str(finding).endswith(
        "from -24 to 24 in the log, beyond -1..1; give the actuator's limits: --columns 'u=volts LOW..HIGH'"
    )


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (("x",), "columns: expected NAME=COLUMN, such as"),
        (("=a",), "columns: expected NAME=COLUMN"),
        (("x=",), "columns: expected NAME=COLUMN"),
        (("x=[mm]",), r"'x=\[mm\]' names no column"),
        (("x=a [mmm]",), r"unknown unit \[mmm\]; expected one such as mm, deg, .*, or a factor"),
        (("x=a", "x=b"), "'x' is given twice"),
        (("u=a 5..5",), "LOW below HIGH"),
        (("u=a 0..5 * 2",), "leave out factor and offset"),
        (("x=a * 0",), "a factor that is not 0"),
        (("x=cos(a) [mm]",), r"belong into cos\(...\)"),
        (("x=d/dt(a * 2)",), r"write factors and offsets after d/dt\(...\)"),
    ],
)
def test_column_map_with_a_fault_is_refused(entries, message):
    with pytest.raises(SondeError, match=message):
        LogFormat(columns=entries)


@pytest.mark.parametrize("column", ["p (mm)", "'p (mm)'", "p"])
def test_functions_take_columns_with_round_brackets_in_their_titles(column, tmp_path):
    source = write(tmp_path / "a.csv", [(DT * k, 100 * k * DT, 0) for k in range(9)], "time,p (mm),u")
    found = read(source, LogFormat(columns=(f"x=d/dt({column}) * 10", "u=u")))
    assert found.states[:, 0] == pytest.approx(1)  # 0.1 m/s, times 10


def test_column_map_must_speak_of_the_system(tmp_path):
    source = write(tmp_path / "a.csv", ramp(4))
    for entries, message in [
        (("y=x",), "the system has no 'y'; .*its states are 'x', its actions 'u'"),
        (("u=cos(x)",), "'u' is an action, which is logged and not computed; leave out cos"),
        (("x=x 0..1",), "'x' is a state; a range LOW..HIGH is for actions"),
    ]:
        with pytest.raises(SondeError, match=message):
            read(source, LogFormat(columns=entries))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"jitter": 0.0}, "jitter must lie between 0 and 0.5"),
        ({"velocity_window": 6}, "velocity_window must be odd"),
        ({"velocity_window": 3}, "at least 5"),
        ({"max_gap": 0}, "max_gap must be a whole number above 0"),
        ({"dt": -1.0}, "dt must be above 0"),
        ({"skip_lines": -1}, "skip_lines must be 0 or above"),
        ({"decimal_comma": True, "delimiter": "comma"}, "cannot be told apart"),
    ],
)
def test_setting_of_a_log_that_cannot_be_is_refused(change, message):
    with pytest.raises(SondeError, match=message):
        LogFormat(**change)


# Resampling


def test_resampled_states_are_interpolated_and_actions_held(tmp_path):
    rng = np.random.default_rng(0)
    time = np.cumsum(rng.uniform(0.02, 0.09, 200))
    states, actions = rng.normal(size=200), rng.uniform(-1, 1, 200)
    source = write(tmp_path / "a.csv", np.stack([time, states, actions], axis=1))
    found = read(source, LogFormat(irregular="resample", dt=DT))
    grid = time[0] + DT * np.arange(int((time[-1] - time[0]) / DT) + 1)
    expected = np.interp(grid, time, states)
    np.testing.assert_allclose(found.states[:, 0], expected[:-1], atol=1e-9)
    np.testing.assert_allclose(found.next_states[:, 0], expected[1:], atol=1e-9)
    middle = grid[:-1] + DT / 2
    held = [actions[time <= moment][-1] for moment in middle]
    np.testing.assert_array_equal(found.actions[:, 0], held)


def test_resampling_of_regular_samples_changes_nothing(tmp_path):
    source = write(tmp_path / "a.csv", ramp(50))
    cut, resampled = read(source), read(source, LogFormat(irregular="resample"))
    np.testing.assert_allclose(resampled.states, cut.states, atol=1e-9)
    np.testing.assert_array_equal(resampled.actions, cut.actions)


@pytest.mark.parametrize("irregular", ["cut", "resample"])
@pytest.mark.parametrize("count", [0, 1])
def test_log_that_is_too_short_is_refused(tmp_path, irregular, count):
    with pytest.raises(SondeError, match=r"it has no (transitions|two samples)"):
        read(write(tmp_path / "a.csv", ramp(count)), LogFormat(irregular=irregular))


def test_long_gaps_are_not_bridged(tmp_path):
    rows = [row for k, row in enumerate(ramp(20)) if k not in (5, 11, 12)]
    source = write(tmp_path / "a.csv", rows)
    with pytest.warns(
        UserWarning, match=r"2 gaps of up to 3 steps before lines 7, 12; .* after 1 gap of more than --max-gap 2"
    ):
        found = read(source, LogFormat(irregular="resample"))
    np.testing.assert_allclose(pairs(found), [(k, k + 1) for k in range(19) if k not in (10, 11, 12)], atol=1e-9)
    assert found.actions[5, 0] == 0.04  # that of the last sample before the gap
    whole = read(source, LogFormat(irregular="resample", max_gap=3))
    np.testing.assert_allclose(pairs(whole), [(k, k + 1) for k in range(19)], atol=1e-9)


def test_angles_are_interpolated_the_shorter_way_round(tmp_path):
    angles = np.degrees(np.angle(np.exp(1j * np.radians(40.0 * np.arange(20)))))  # wrapped to (-180, 180]
    times = 2 * DT * np.arange(20)
    source = write(tmp_path / "a.csv", np.stack([times, angles, 0 * angles], axis=1), "time,angle [deg],u")
    log = LogFormat(dt=DT, irregular="resample")
    for function, truth in [("cos", np.cos), ("sin", np.sin), ("unwrap", np.asarray)]:
        found = read(source, replace(log, columns=(f"x={function}(angle)",)))
        np.testing.assert_allclose(found.states[:, 0], truth(np.radians(20.0 * np.arange(38))), atol=1e-9)
    as_logged = read(source, replace(log, columns=("x=angle",))).states[:, 0]
    turns = (as_logged - np.radians(20.0 * np.arange(38))) / (2 * np.pi)
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-9)
    np.testing.assert_allclose(as_logged[::2], np.radians(angles[:-1]), atol=1e-9)
    assert any(
        "jumps by about a turn at lines 7, 16" in one.text
        for one in check_logs(source, LogFormat(columns=("x=angle", "u=u"))).findings
    )


# Velocities


def test_velocity_of_a_sine_is_its_cosine(tmp_path):
    time = DT * np.arange(100)
    angle = 90 * np.sin(2 * time)
    source = write(tmp_path / "a.csv", np.stack([time, angle, 0 * time], axis=1), "time,angle [deg],u")
    log = LogFormat(columns=("angle=angle", "speed=d/dt(angle)"))
    found = read(source, log, OwnSystem(states=("angle", "speed"), actions=("u",)))
    truth = np.radians(180) * np.cos(2 * time[:-1])
    inner = slice(3, -3)
    np.testing.assert_allclose(found.states[inner, 1], truth[inner], atol=2e-4 * np.pi)  # a polynomial of third degree: O(dt^4)
    np.testing.assert_allclose(found.states[:, 1], truth, atol=0.01 * np.pi)


def test_velocities_are_smoothed_and_never_computed_across_gaps(tmp_path):
    rng, time = np.random.default_rng(0), DT * np.arange(400)
    position = np.sin(time) + rng.normal(0, 1e-3, 400)
    kept = np.setdiff1d(np.arange(400), [150, 151, 250, 255])
    table = np.stack([time, position + 5.0 * (np.arange(400) > 150), 0 * time], axis=1)[kept]
    source = write(tmp_path / "a.csv", table, "time,p,u")
    system = OwnSystem(states=("p", "v"), actions=("u",))
    log = LogFormat(columns=("p=p", "v=d/dt(p)"), velocity_window=11)
    with pytest.warns(
        UserWarning, match=r"(lost or late)|(1 episode shorter than the 11 samples of a velocity left out)"
    ) as warned:
        found = read(source, log, system)
    assert len(warned) == 2
    places = [int(np.flatnonzero(table[:, 1] == value)[0]) for value in found.states[:, 0]]
    errors = found.states[:, 1] - np.cos(table[places, 0])
    assert np.abs(errors).max() < 0.2  # a jump of 5 within a window would be a velocity of 20
    differences = np.diff(position) / DT - np.cos(time[:-1] + DT / 2)
    assert errors.std() < 0.5 * differences.std()


def test_velocity_of_a_wrapped_angle_has_no_jumps_and_of_a_counted_one_neither(tmp_path):
    steps = np.arange(60)
    wrapped = np.degrees(np.angle(np.exp(0.3j * steps)))
    counted = 4.0 * steps  # more than half a turn from one sample to the next
    system = OwnSystem(states=("a", "b"), actions=("u",))
    source = write(tmp_path / "a.csv", np.stack([DT * steps, wrapped, counted, 0 * steps], axis=1), "time,a [deg],b [rad],u")
    found = read(source, LogFormat(columns=("a=d/dt(a)", "b=d/dt(b)")), system)
    np.testing.assert_allclose(found.states[:, 0], 0.3 / DT, rtol=1e-6)
    np.testing.assert_allclose(found.states[:, 1], 4.0 / DT, rtol=1e-9)


def test_velocities_need_a_clock_and_no_empty_cells(tmp_path):
    log = LogFormat(columns=("x=d/dt(p)",))
    source = write(tmp_path / "a.csv", [(1, k, 0) for k in range(9)], "episode,p,u")
    with pytest.raises(SondeError, match="velocities need the time between samples; give --dt or --time-column"):
        read(source, log)
    np.testing.assert_allclose(read(source, replace(log, dt=0.5)).states, 2.0)
    rows = [(DT * k, "" if k == 4 else k, 0) for k in range(9)]
    with pytest.raises(
        SondeError, match=r"line 6, column 'p' \(an empty cell counts as nan\): expected a finite number, got nan"
    ):
        read(write(tmp_path / "b.csv", rows, "time,p,u"), log)


# Several sources, systems, runs


def test_each_file_begins_a_new_episode(tmp_path):
    for name, start in (("b", 10), ("a", 0)):
        write(tmp_path / f"{name}.csv", [(DT * k, start + k, 0) for k in range(3)])
    expected = [(0, 1), (1, 2), (10, 11), (11, 12)]
    assert pairs(read(tmp_path / "*.csv")) == expected
    named = [str(tmp_path / "b.csv"), str(tmp_path / "a.csv")]
    assert pairs(read_measurements(named, SYSTEM)) == [*expected[2:], *expected[:2]]
    with pytest.raises(SondeError, match="is given twice"):
        read_measurements([*named, named[0]], SYSTEM)
    with pytest.raises(SondeError, match=r"\*\.mat: no file fits this pattern"):
        read(tmp_path / "*.mat")


def test_system_is_what_columns_or_headers_say(tmp_path):
    log = LogFormat(columns=("level=Level [mm]", "u=pump", "valve=Valve 0..100"))
    assert system_of(log, "none.csv") == OwnSystem(states=("level",), actions=("u", "valve"))
    plain = write(tmp_path / "a.csv", [(0, 1, 2, 3, 4)], "time,x1 [mm],x2,u,other")
    assert system_of(LogFormat(), plain) == OwnSystem(states=("x1", "x2"), actions=("u",))
    nexts = write(tmp_path / "b.csv", [(0, 1, 2, 3, 4)], "time,th,torque,next th,episode")
    assert system_of(LogFormat(), nexts) == OwnSystem(states=("th",), actions=("torque",))
    np.savez(tmp_path / "c.npz", states=np.zeros((4, 2)), actions=np.zeros((4, 1)), next_states=np.zeros((4, 2)))
    assert system_of(LogFormat(), str(tmp_path / "c.npz")) == OwnSystem(states=("x0", "x1"), actions=("u0",))
    unclear = write(tmp_path / "d.csv", [(0, 1)], "position,force")
    with pytest.raises(SondeError, match=r"which actions\? It has 'position', 'force'; say so with --columns NAME=COLUMN"):
        system_of(LogFormat(), unclear)
    with pytest.raises(SondeError, match=r"at least one state and one action, got p; actions are called u, u1, ... or have a"):
        system_of(LogFormat(columns=("p=position",)), unclear)


def test_run_starts_from_several_logs_and_keeps_how_they_were_read(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.csv", [(50 * k, 1000 * k, 12 * (-1) ** k) for k in range(3)], "t,Weg,volts")
    log = LogFormat(columns=("x=Weg [mm]", "u=volts -24..24"), time_column="t [ms]")
    config = replace(TINY, world=SYSTEM, data=("a.csv", "b.csv"), log=log, evaluate_every=0)
    monkeypatch.chdir(tmp_path)
    store = RunStore.create(tmp_path / "run", config)
    assert store.config.data == (str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))
    assert from_json(RunConfig, to_json(config), "config") == config
    assert with_absolute_paths(replace(config, data="minari:some-v0")).data == "minari:some-v0"
    found = load_initial_data(store.folder, store.config.data)
    assert pairs(found) == [(0, 1), (1, 2)] * 2 and found.actions[:, 0].tolist() == [0.5, -0.5] * 2
    with pytest.raises(SondeError, match="data names no file"):
        replace(config, data=())
    with pytest.raises(SondeError, match="there are settings of logs, and no data"):
        replace(config, data=None)


def test_options_of_a_log_reach_a_run_from_the_command_line(tmp_path, monkeypatch, capsys):
    good = write(tmp_path / "a.csv", [(0, 1, 2, 3, 4), (50, 1, 2, 3, 4)], "t [ms],a,b,c,volts")
    bad = write(tmp_path / "b.csv", [(0, 1, 2, 3, 4), (50, 1, 2, 3, 48), (100, 1, 2, 3, 0)], "t [ms],a,b,c,volts")
    columns = ("--columns", "cos th=a", "sin th=b", "thdot=c [deg/s]", "torque=volts -24..24")
    words = ("explore", "pendulum-gp-lite", "--data", good, bad, *columns, "--out", str(tmp_path / "run"))
    assert call(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert "b.csv: line 3, column 'volts'" in said and "expected an action in [-1, 1], got 2" in said
    assert not (tmp_path / "run").exists()


def test_temperature_is_no_clock(tmp_path):
    source = write(tmp_path / "a.csv", [(k, 1, 20, k, 0) for k in (3, 1, 2)], "T,episode,t,x,u")
    system = OwnSystem(states=("x", "t"), actions=("u",))
    assert read(source, system=system).states.tolist() == [[3, 20], [1, 20]]  # rows of an episode, without any clock


# sonde data check


def test_check_says_what_it_found_and_what_would_be_used(tmp_path, monkeypatch, capsys):
    rows = [(50 * k, "" if k == 30 else 10 * np.sin(k / 3), 60, 7) for k in range(40) if k not in (10, 11)]
    source = write(tmp_path / "a.csv", rows, "t [ms],position [mm],valve,offset")
    words = ("data", "check", source, "--columns", "x=position", "y=offset", "u=valve 0..100")
    assert call(monkeypatch, *words, "--json") == 2
    (one,) = json.loads(capsys.readouterr().out)["sources"]
    assert one["findings"][0]["level"] == "error"
    assert "line 30, column 'position [mm]' (an empty cell counts as nan)" in one["findings"][0]["text"]
    assert one["channels"][0]["empty"] == 1
    write(tmp_path / "a.csv", [row for row in rows if row[1] != ""], "t [ms],position [mm],valve,offset")
    assert call(monkeypatch, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["usable"], found["transitions"], found["dt"]) == (True, 34, 0.05)
    assert (found["states"], found["actions"]) == (["x", "y"], ["u"])
    (one,) = found["sources"]
    assert (one["samples"], one["episodes"], one["step"]) == (37, 3, 0.05)
    assert one["channels"][0]["becomes"] == "m" and one["channels"][2]["becomes"] == "0..100 to -1..1"
    said = " / ".join(finding["sentence"] for finding in one["findings"])
    for expected in [
        r"about 3 samples lost or late before lines 12, 30 \(the longest gap has 3 steps\)",
        "the state 'y' is always 7; nothing can be learned",
        "the action 'u' is always 0.2; its effect cannot be learned",
        r"'x' is a position, and no state is a velocity; derive one \(--columns 'v=d/dt\(position \[mm\]\)'\)",
    ]:
        assert re.search(expected, said), (expected, said)
    monkeypatch.setenv("COLUMNS", "80")
    assert call(monkeypatch, *words) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.replace(source, "").splitlines())) <= 80
    assert "34 transitions in 3 episodes; one step is 0.05 s" in " ".join(printed.split())


def test_check_needs_no_columns_to_say_what_there_is(tmp_path, monkeypatch, capsys):
    source = write(tmp_path / "a.csv", ramp(5), "time [s],position [mm],force\x1b[31m")
    assert call(monkeypatch, "data", "check", source) == 2
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "\x1b" not in printed
        and "position [mm] mm" in printed
        and "say so with --columns" in printed
        and "Nothing can be used yet" in printed
    )
    assert call(monkeypatch, "data", "check", str(tmp_path / "none.csv")) == 2
    assert "there is no such file" in capsys.readouterr().out


def test_a_log_without_a_known_clock_is_asked_for_it(tmp_path):
    source = write(tmp_path / "a.csv", [(k, k, 0) for k in range(9)], "Zeit [ms],p [mm],u")
    (finding,) = check_logs(source, LogFormat(columns=("x=p", "v=d/dt(p)", "u=u"))).findings
    assert "there is no clock" in finding.text and r"--time-column (is it 'Zeit [ms]'?)" in finding.text
    assert finding.text.count("'next p [mm]'") == 1


def test_column_that_is_missing_is_likened_to_titles_without_their_units(tmp_path):
    source = write(tmp_path / "a.csv", ramp(9), "time [s],position [mm],u")
    (finding,) = check_logs(source, LogFormat(columns=("x=positions", "u=u"))).findings
    assert "did you mean 'position [mm]' for 'positions'?" in finding.text


def test_check_takes_a_system_by_name(tmp_path, monkeypatch, capsys):
    rows = [(DT * k, np.cos(k), np.sin(k), 0.1 * k, (-1) ** k) for k in range(9)]
    source = write(tmp_path / "a.csv", rows, "time,cos th,sin th,thdot,torque")
    assert call(monkeypatch, "data", "check", source, "--system", "pendulum", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["transitions"] == 8 and found["dt"] == 0.05
    assert any("action 'torque' is at its limit in 100%" in one["text"] for one in found["sources"][0]["findings"])


def test_one_bad_file_among_good_ones_is_told_and_the_others_counted(tmp_path, monkeypatch, capsys):
    write(tmp_path / "good.csv", ramp(5))
    write(tmp_path / "bad.csv", [(0, 1, 5), (DT, 2, 5)])
    assert call(monkeypatch, "data", "check", str(tmp_path / "*.csv")) == 2
    assert "1 of 2 sources" in capsys.readouterr().out
    assert call(monkeypatch, "data", "check", str(tmp_path / "*.csv"), "--json") == 2
    found = json.loads(capsys.readouterr().out)
    assert not found["usable"] and found["transitions"] == 4
    assert [one["transitions"] for one in found["sources"]] == [0, 4]
    with pytest.raises(SondeError, match=r"bad\.csv: line 2, column 'u'"):
        read(tmp_path / "*.csv")


def test_page_shows_what_check_prints(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parent.parent / "docs" / "data.md").read_text()
    section = page.partition("## Look at a log first")[2].partition("\n## ")[0]
    blocks = re.findall(r"```(?:python|console|text)\n(.*?)```", section, re.DOTALL)
    program, command, shown, python = blocks
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    exec(program, {})
    assert call(monkeypatch, *shlex.split(command)[1:]) == 0
    plain = lambda text: [line.rstrip() for line in text.strip().splitlines()]
    assert plain(capsys.readouterr().out) == plain(shown)
    exec(python, {})
    assert capsys.readouterr().out.startswith("True 117 ['about 1 sample lost")


def test_more_transitions_than_can_be_learned_from_are_refused(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.csv", ramp(6))
    monkeypatch.setattr(_load, "LARGEST", 9)
    monkeypatch.setattr(_check, "LARGEST", 9)
    with pytest.raises(SondeError, match=r"expected at most .* transitions, got 10 in 2 sources"):
        read(tmp_path / "*.csv")
    check = check_logs(str(tmp_path / "*.csv"), LogFormat(columns=("x=x", "u=u")))
    assert not check.usable and "got 10 in all sources" in check.findings[-1].text
