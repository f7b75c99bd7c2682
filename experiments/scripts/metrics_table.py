"""Write docs/metrics.md, the table of all metrics, from the schema.

    python -m experiments.scripts.metrics_table [--out docs/metrics.md]

A test checks that the page is up to date.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from sonde.evaluation import SCHEMA, MetricSpec
from sonde.worlds import WORLDS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
START = """# Metrics

After each round a run writes one line of JSON per seed to `metrics.jsonl`. This page lists its keys; a star stands for the name
of a task or of a phase. What is not known or not defined, such as the first `prediction_error`, is `null` or missing.
[Callbacks and metrics](callbacks-and-metrics.md) explains how to add a metric of your own.

*The reachable set* is what models are evaluated on (`World.reachable`). For the pendulum, the mountain car and worlds of your
own it covers what can be reached; for MuJoCo and Gymnasium it is what coloured noise and, on the Fetch arm, scripts visit, and
policies go further. Hence a second set for the control suite, `model_rmse_tasks`.

*Shown*: metrics with `figure` have a panel in figures of curves, those with `progress` a column in the progress display (which
also shows tasks and seconds), and those with `until` can end a run (`--until`).

This page is generated from `sonde.evaluation.SCHEMA`: `python -m experiments.scripts.metrics_table`.
"""


def metrics_page() -> str:
    """The page as Markdown."""
    worlds = {name: kind().metric_specs for name, kind in WORLDS.items()}
    parts = [START, _table(SCHEMA)]
    for name, specs in worlds.items():
        if specs:
            parts.append(f"## Of the world {name}\n\nMeans over the episodes of a round.\n\n{_table(specs).lstrip()}")
    return "\n".join(parts)


def _table(specs: Iterable[MetricSpec]) -> str:
    rows = [f"| `{spec.key}` | {spec.meaning} | {spec.unit} | {_shown(spec)} |" for spec in specs]
    return "\n".join(["| key | meaning | unit | shown |", "|---|---|---|---|", *rows, ""])


def _shown(spec: MetricSpec) -> str:
    places = {"figure": spec.drawn, "progress": bool(spec.column), "until": bool(spec.sentence)}
    return ", ".join(name for name, shown in places.items() if shown)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.parse_args().out.write_text(metrics_page())


if __name__ == "__main__":
    main()
