"""Damaged files of measurements: they load as what a second reader finds in them, or are rejected in one line."""

import csv
import io
import itertools
import os
import shutil
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from experiments.campaign.damage import OF_CONTENT, files_of
from experiments.campaign.harness import Outcome
from experiments.campaign.options import checks_only
from experiments.campaign.sandbox import TINY, call, caught_output, check_answer
from sonde import SondeError
from sonde.runs import explore, read_measurements
from sonde.worlds import Pendulum

WORLD = Pendulum()
STATES, ACTIONS = list(WORLD.state_names), list(WORLD.action_names)
ARRAYS = ("states", "actions", "next_states")
DATASET = "campaign/tiny-v0"
CELLS = (
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1e16",
    "1e15",
    "1,5",
    "0x1",
    "1_0",
    "٣",
    "x",
    "-0",
    "1e-400",
    "\x00",
    '"',
    "9" * 400,
)
"""Texts in the place of a cell."""


def prepare(folder: Path) -> dict[str, Any]:
    """Make healthy files of all kinds.

    Args:
        folder: Where to work.

    Returns:
        Content by name of the kind; under `minari`, the folder of a dataset, if Minari is installed.
    """
    rng = np.random.default_rng(0)
    states = rng.normal(size=(12, 3))
    arrays = {"states": states[:-1], "actions": rng.uniform(-1, 1, size=(11, 1)), "next_states": states[1:]}
    npz = io.BytesIO()
    np.savez(npz, allow_pickle=False, **arrays)
    healthy: dict[str, Any] = {"npz": npz.getvalue(), "pairs": _as_pairs(arrays), "log": _as_log(arrays), "arrays": arrays}
    os.environ["MINARI_DATASETS_PATH"] = str(folder / "datasets")
    explore(TINY, folder / "run")
    if call("export", str(folder / "run"), "--out", f"minari:{DATASET}").code == 0:
        healthy["minari"] = folder / "datasets" / DATASET
    return healthy


def _as_pairs(arrays: dict[str, np.ndarray]) -> bytes:
    header = ["time", *STATES, *ACTIONS, *(f"next {name}" for name in STATES)]
    rows = np.hstack([arrays[name] for name in ARRAYS])
    return _as_csv(header, [[0.05 * t, *row] for t, row in enumerate(rows)])


def _as_log(arrays: dict[str, np.ndarray]) -> bytes:
    rows = np.hstack([arrays["states"], arrays["actions"]])
    return _as_csv(["episode", *STATES, *ACTIONS], [[t // 4, *row] for t, row in enumerate(rows)])


def _as_csv(header: list[str], rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([header, *rows])
    return text.getvalue().encode()


def case(healthy: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """Damage a file and read it.

    Args:
        healthy: What `prepare` returned.
        rng: Which file, and how.
        folder: An empty folder.
        outcome: Where to write down what happened.
    """
    kind = rng.choice(("npz", "npz", "inside npz", "arrays", "pairs", "pairs", "log", "log", "cells", "cells"))
    if "minari" in healthy and rng.random() < 0.06:
        source, what = _damaged_dataset(healthy, rng, folder)
        kind = "minari"
    else:
        content, what = _damaged(kind, healthy, rng)
        path = folder / f"log.{'csv' if kind in ('pairs', 'log', 'cells') else 'npz'}"
        path.write_bytes(content)
        source = str(path)
    outcome.count(f"{kind} files")
    if rng.random() < 0.05:
        with checks_only():
            answer = call("explore", "pendulum-gp-lite", "--data", source, "--out", str(folder / "run"))
        check_answer(answer, what, outcome)
        return
    try:
        with caught_output():
            found = read_measurements(source, WORLD)
    except SondeError as error:
        outcome.count("rejected")
        if len(str(error).splitlines()) != 1 or len(str(error)) > 5000:
            outcome.fault("traceback", f"{what}: expected one line, got: {str(error)[:2000]}")
        return
    outcome.count("read")
    _compare({name: getattr(found, name) for name in ARRAYS}, kind, what, source, healthy, outcome)


def _damaged(kind: str, healthy: dict[str, Any], rng: Random) -> tuple[bytes, str]:
    if kind == "inside npz":
        return _inside_npz(healthy, rng)
    if kind == "arrays":
        return _odd_arrays(healthy, rng)
    if kind == "cells":
        return _odd_cells(healthy[rng.choice(("pairs", "log"))], rng)
    how = rng.choice(OF_CONTENT)
    return how(healthy[kind], rng), f"{how.__name__} {kind}"


def _inside_npz(healthy: dict[str, Any], rng: Random) -> tuple[bytes, str]:
    """Damage an array inside the archive, whose checksum then fits."""
    out, chosen = io.BytesIO(), rng.choice(ARRAYS)
    how = rng.choice(OF_CONTENT)
    with zipfile.ZipFile(io.BytesIO(healthy["npz"])) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == f"{chosen}.npy":
                head = rng.choice((content[:128], content[:16], content))  # mostly the header
                content = how(head, rng) + content[len(head) :]
                if rng.random() < 0.2:
                    odd = (
                        (b"(11, 3)", b"(10**9,)"),
                        (b"<f8", b"|O"),
                        (b"<f8", b">f8"),
                        (b"(11, 3)", b"(99999999, 3)"),
                        (b"False", b"True"),
                    )
                    content = content.replace(*rng.choice(odd))
            if rng.random() < 0.03:
                name = rng.choice(("../../x.npy", "states", "/abs.npy", "states.npy"))
            new.writestr(name, content)
    return out.getvalue(), f"{how.__name__} {chosen} inside npz"


def _odd_arrays(healthy: dict[str, Any], rng: Random) -> tuple[bytes, str]:
    """Arrays of other types and shapes."""
    arrays, name = dict(healthy["arrays"]), rng.choice(ARRAYS)
    values = arrays[name]
    odd = {
        "complex": values + 0j,
        "complex with imaginary part": values + 1j,
        "text": values.astype(str),
        "bytes": values.astype("S8"),
        "time": np.full(values.shape, np.datetime64("2020-01-01")),
        "duration": np.full(values.shape, np.timedelta64(3, "s")),
        "objects": values.astype(object),
        "structured": np.zeros(len(values), [("a", "f8"), ("b", "i4")]),
        "half": values.astype(np.float16),
        "long": values.astype(np.longdouble),
        "whole": values.astype(np.int64),
        "bool": values > 0,
        "nan": np.where(values > 0, np.nan, values),
        "infinite": np.where(values > 0, np.inf, values),
        "large": values * 1e300,
        "beyond": values * 2e15,
        "vector": values[:, 0],
        "scalar": values[0, 0],
        "empty": values[:0],
        "wide": np.hstack([values, values]),
        "short": values[:-1],
        "three": values[None],
        "columns first": np.asfortranarray(values),
        "huge integers": np.full(values.shape, 2**63, np.uint64),
    }
    how = rng.choice(sorted(odd))
    arrays[name] = odd[how]
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue(), f"{how} {name}"


def _odd_cells(content: bytes, rng: Random) -> tuple[bytes, str]:
    """Odd texts in cells and headers, rows that are too long or too short, another separator or line end."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    row = rng.choice(rows) if rng.random() < 0.8 else rows[0]
    column = rng.randrange(len(row))
    how = rng.choice(
        ("cell", "cell", "cell", "swap columns", "longer", "shorter", "case", "twice", "separator", "ends", "quotes")
    )
    end, separator = "\r\n", ","
    if how == "cell":
        row[column] = rng.choice(CELLS)
    elif how == "swap columns":
        other = rng.randrange(len(row))
        for line in rows:
            line[column], line[other] = line[other], line[column]
    elif how == "longer":
        row.insert(column, "1")
    elif how == "shorter":
        del row[column]
    elif how == "case":
        rows[0][column] = rng.choice((rows[0][column].upper(), f" {rows[0][column]} ", f"\ufeff{rows[0][column]}", "thdott"))
    elif how == "twice":
        rows[0][column] = rows[0][rng.randrange(len(rows[0]))]
    elif how == "separator":
        separator = rng.choice((";", "\t", ", ", "|"))
    elif how == "ends":
        end = rng.choice(("\n", "\r", "\n\n", "\r\n\r\n", "\x0b", "\u2028"))
    else:
        row[column] = rng.choice((f'"{row[column]}"', f'"{row[column]}', f"'{row[column]}'", f'"{row[column]}\n"'))
    return end.join(separator.join(line) for line in rows).encode(), f"{how} in cells"


def _damaged_dataset(healthy: dict[str, Any], rng: Random, folder: Path) -> tuple[str, str]:
    place = folder / "datasets" / DATASET
    shutil.copytree(healthy["minari"], place)
    os.environ["MINARI_DATASETS_PATH"] = str(folder / "datasets")
    path, how = rng.choice(files_of(place)), rng.choice(OF_CONTENT)
    if rng.random() < 0.1:
        path.unlink()
        return f"minari:{DATASET}", f"delete {path.name} of a dataset"
    path.write_bytes(how(path.read_bytes(), rng))
    return f"minari:{DATASET}", f"{how.__name__} {path.name} of a dataset"


def _compare(
    found: dict[str, np.ndarray], kind: str, what: str, source: str, healthy: dict[str, Any], outcome: Outcome
) -> None:
    """Compare what was read with the healthy arrays, where checksums protect them, or else with a second reader."""
    if any(not np.isfinite(values).all() or values.dtype != np.float64 for values in found.values()):
        outcome.fault("wrong", f"{what}: numbers that are not finite or not double")
    if kind == "minari":  # HDF5 has no checksums, and any number may be right
        return
    try:
        if kind == "npz":
            wanted = healthy["arrays"]
        elif kind in ("inside npz", "arrays"):
            with np.load(source) as file:
                wanted = {name: file[name].astype(np.float64) for name in ARRAYS}
        else:
            wanted = _second_reader(Path(source).read_bytes())
    except Exception as error:
        outcome.fault("wrong", f"{what}: read, although a second reader says: {type(error).__name__}: {error}")
        return
    names = [name for name in ARRAYS if not np.array_equal(found[name], wanted[name])]
    if names:
        outcome.fault("wrong", f"{what}: other numbers in {names}")


def _second_reader(content: bytes) -> dict[str, np.ndarray]:
    """Read a CSV file in the plainest way."""
    rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")) if row]
    header = [name.strip() for name in rows[0]]
    table = [dict(zip(header, row, strict=True)) for row in rows[1:]]
    read = lambda row, names: [float(row[name]) for name in names]
    nexts = [f"next {name}" for name in STATES]
    if nexts[0] in header:
        pairs = [(row, row, nexts) for row in table]
    else:
        pairs = [(one, two, STATES) for one, two in itertools.pairwise(table) if one["episode"] == two["episode"]]
    return {
        "states": np.array([read(one, STATES) for one, _, _ in pairs]),
        "actions": np.array([read(one, ACTIONS) for one, _, _ in pairs]),
        "next_states": np.array([read(two, names) for _, two, names in pairs]),
    }
