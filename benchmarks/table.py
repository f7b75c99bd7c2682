"""The results as tables for a terminal."""

from collections.abc import Sequence

from rich.table import Table

from benchmarks.rows import COPY, Row

DASH = "-"


def quantity(value: int | float | None, unit: str = "") -> str:
    """A number with three digits and a prefix, such as 12.3 GFLOP.

    Args:
        value: The number.
        unit: Its unit.
    """
    if value is None:
        return DASH
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".strip()


def duration(seconds: float | None) -> str:
    """A time with three digits."""
    if seconds is None:
        return DASH
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def share(ratio: float | None) -> str:
    """A share of the limit with two digits."""
    return DASH if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def remark(row: Row) -> str:
    """The last column of a row: results other than rates."""
    extra = row.extra
    if "peak_bytes" in extra:
        peak = f"peak {quantity(extra['peak_bytes'], 'B')}"
        if "formula_bytes" not in extra:
            return peak
        return f"{peak}, formula {quantity(extra['formula_bytes'], 'B')} ({extra['error']:+.0%})"
    if "compile_seconds" in extra:
        parts = ("import", "compile", "action")
        return ", ".join(f"{part} {duration(extra[f'{part}_seconds'])}" for part in parts)
    if "p99_ms" in extra:
        late = f"{extra['late']} of {extra['actions']} late"
        return f"p99 {extra['p99_ms']:.3g} ms, {late}, {extra['return_lost']:.1%} of the return lost"
    if "solved" in extra:
        rounds = len(extra["returns"])
        return f"{'solved after' if extra['solved'] else 'not solved in'} {rounds} round{'' if rounds == 1 else 's'}"
    if "simulator_share" in extra:
        return f"simulators {duration(extra['simulator_wall_seconds'])}, {extra['simulator_share']:.0%} of the step"
    if "centres" in extra:
        return f"centres {'/'.join(map(str, extra['centres']))}"
    for key, text in (("transitions_per_seed", "transitions"), ("gradient_steps", "gradient steps"), ("steps", "steps")):
        if key in extra:
            return f"{extra[key]:,} {text}"
    return ""


def in_short(row: Row) -> str:
    """A result in half a line, for progress."""
    of_limit = "" if row.ratio is None else f", {share(row.ratio)} of the machine's limit ({row.bound})"
    by = f"{row.extra['by']}: " if "by" in row.extra else ""
    seconds = "" if row.seconds is None else f"{duration(row.seconds)}, "
    return f"{by}{seconds}wall {duration(row.wall_seconds)}{of_limit} {remark(row)}".rstrip()


def main_table(rows: Sequence[Row], clock: str) -> Table:
    """The table of all rows but those of peers.

    Args:
        rows: The rows.
        clock: Name of the clock of `Row.seconds`.
    """
    names = ("path", "setting", "S", "work", "bytes", clock, "wall", "rate", "limit", "ratio", "")
    table = Table(*names, title="Hot paths", title_justify="left")
    for column in table.columns[2:10]:
        column.justify = "right"
    last = None
    for row in rows:
        unit = "B/s" if row.bound == COPY else "FLOP/s"
        table.add_row(
            row.path if row.path != last else "",
            row.setting,
            str(row.num_seeds),
            quantity(row.flop, "FLOP"),
            quantity(row.bytes, "B"),
            duration(row.seconds),
            duration(row.wall_seconds),
            quantity(row.rate, unit),
            DASH if row.limit is None else f"{quantity(row.limit, unit)} {row.bound}",
            share(row.ratio),
            remark(row),
        )
        last = row.path
    return table


def peers_table(rows: Sequence[Row], clock: str) -> Table:
    """The table of the same work by others, with their times relative to ours.

    Args:
        rows: The rows of peers.
        clock: Name of the clock of `Row.seconds`.
    """
    names = ("same work", "by", clock, "wall", f"theirs / ours, {clock}", "theirs / ours, wall", "error of the std")
    table = Table(*names, title="Peers, in this process", title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    ours = {row.setting: row for row in rows if row.extra["by"] == "sonde"}
    last = None
    for row in rows:
        own, error = ours.get(row.setting), row.extra.get("std_error")
        table.add_row(
            row.setting if row.setting != last else "",
            row.extra["by"],
            duration(row.seconds),
            duration(row.wall_seconds),
            DASH if own is None or row is own else _times(row.seconds, own.seconds),
            DASH if own is None or row is own else _times(row.wall_seconds, own.wall_seconds),
            DASH if error is None else f"{error:.1e}",
        )
        last = row.setting
    return table


def _times(theirs: float | None, ours: float | None) -> str:
    return DASH if theirs is None or ours is None else f"{theirs / ours:.1f}"
