"""Sections about tasks and about where results come from: returns, films, settings, versions and machines."""

import dataclasses
import json
from typing import Any

import numpy as np

from sonde import __version__
from sonde._internal.errors import SondeError
from sonde._internal.machine import this_machine
from sonde._internal.reading import MAX_JSON_BYTES, parse_json, read_limited
from sonde._internal.user_code import task_label
from sonde.evaluation._statistics import mean_and_band
from sonde.runs._codec import to_json
from sonde.runs._config import differences as config_differences
from sonde.runs._store import RunStore
from sonde.runs.report._comparison import TaskValue, task_values
from sonde.runs.report._content import Content, Section
from sonde.runs.report._html import Markup, cell, details, joined, number, paragraphs, table, tag
from sonde.worlds import has_simulator

MACHINES = "machines.jsonl"
"""File of a sweep's batch with the machines that ran it."""
COMPUTED = {"random": "random actions", "oracle": "planner on the true system"}


def tasks(content: Content) -> Section | None:
    """Returns on tasks, what plans promised, and films; None where a run has no tasks.

    Args:
        content: What the page shows.
    """
    values = task_values(content.subjects)
    config = content.subjects[0].config
    if not values and not any(facts.solved for facts in content.facts):
        if not has_simulator(config.world):
            text = "Sonde cannot run this system itself, so tasks are solved and judged by its owner (Experiment.solve)."
        elif config.evaluate_every and config.task_names:
            text = f"No task was evaluated yet: the run does so after every {config.evaluate_every} rounds, and at its end."
        else:
            text = "No task was evaluated: the run has none, or evaluate_every is 0. 'sonde evaluate' solves one."
        return Section("tasks", "Tasks", paragraphs(text))
    text = (
        "Tasks are planned on the learned model alone; none was known during exploration."
        if config.exploration_task is None
        else f"Tasks are planned on the learned model; exploration was for {task_label(config.exploration_task)}."
    )
    parts = [paragraphs(text), _returns(content, values) if values else None, _promises(content)]
    return Section("tasks", "Tasks", joined(*parts, _films(content)))


def _returns(content: Content, values: list[TaskValue]) -> Markup:
    """Recorded returns, and those of random actions and the oracle where they are known."""
    others = [name for name in COMPUTED if any(name in each.returns for facts in content.facts for each in facts.solved)]
    head = [
        "task",
        *([] if content.single else ["run"]),
        "round",
        "learned now",
        "best so far",
        *(COMPUTED[name] for name in others),
    ]
    with_success = any(value.success is not None for value in values)
    head += ["success"] if with_success else []
    rows = []
    for value in values:
        subject = content.subjects[value.subject]
        row: list[Any] = [value.task]
        row += [] if content.single else [tag("td", subject.name, class_=f"s{value.subject} name")]
        row += [value.round, _with_band(*value.now), _with_band(*value.best)]
        row += [_computed(content, value, name) for name in others]
        row += [cell(value.success, "–" if value.success is None else f"{100 * value.success:.0f} %")] if with_success else []
        rows.append(row)
    return table(head, rows, "Returns (sum of rewards); means over seeds, ± two standard errors")


def _with_band(mean: float, band: float) -> Markup:
    return cell(mean, number(mean, 4) if np.isnan(band) else f"{number(mean, 4)} ± {number(band, 2)}")


def _computed(content: Content, value: TaskValue, name: str) -> Markup:
    found = [
        each.returns[name] for each in content.facts[value.subject].solved if each.task == value.task and name in each.returns
    ]
    if not found:
        return cell(None)
    mean, band = mean_and_band(np.concatenate(found)[:, None])
    return _with_band(float(mean[0]), float(band[0]))


def _promises(content: Content) -> Markup | None:
    """What plans promised on the model's mean, against what they achieved."""
    means, rows = [], []
    for subject, facts in zip(content.subjects, content.facts, strict=True):
        own = [] if content.single else [tag("td", subject.name, class_=f"s{subject.number} name")]
        known = [each for each in facts.solved if {"promised", "learned"} <= each.returns.keys()]
        for task in dict.fromkeys(each.task for each in known):
            some = [each for each in known if each.task == task]
            promised, achieved = (np.concatenate([each.returns[name] for each in some]) for name in ("promised", "learned"))
            columns = np.stack([promised, achieved, achieved - promised], axis=1)
            mean, band = mean_and_band(columns)
            means.append([task, *own, *map(_with_band, mean.tolist(), band.tolist())])
            seeds = [seed for each in some for seed in each.seeds]
            rows += [[task, *own, seed, *map(cell, values)] for seed, values in zip(seeds, columns.tolist(), strict=True)]
    if not rows:
        return None
    head = ["promised by the model", "achieved on the system", "achieved less promised"]
    names = ["task", *([] if content.single else ["run"])]
    text = (
        "The same policy was run on the mean of the learned model, from the same starts, and on the system. A plan that "
        "promises far more than it achieves exploits errors of the model: explore longer, or plan for the worst case "
        "(sonde evaluate --robust)."
    )
    each_seed = table([*names, "seed", *head], rows, "Promised and achieved returns of each seed")
    shown = table([*names, *head], means, "Promised and achieved returns; means over seeds, ± two standard errors")
    both = each_seed if len(rows) == len(means) else joined(shown, details(f"Each of {len(rows)} plans", each_seed))
    return joined(tag("h3", "What the plan promised, and what came of it"), paragraphs(text), both)


def _films(content: Content) -> Markup | None:
    """Films of the first seed, or why there are none."""
    figures, reasons = [], {}
    for subject, facts in zip(content.subjects, content.facts, strict=True):
        for each in facts.solved:
            if each.film is None:
                if each.why_no_film:
                    reasons.setdefault(each.why_no_film, []).append(each.task)
                continue
            returned = float(each.returns["learned"][0])
            name = each.task if content.single else f"{each.task}, {subject.name}"
            rollouts = subject.config.evaluation_rollouts
            mean = f"mean return of {rollouts} rollouts {number(returned)}" if rollouts > 1 else f"return {number(returned)}"
            words = f"{name}: seed {each.seeds[0]}, {mean}"
            if each.film.kind.startswith("video/"):
                film = tag(
                    "video",
                    tag("source", src=each.film.source, type=each.film.kind),
                    words,
                    controls=True,
                    loop=True,
                    muted=True,
                    playsinline=True,
                    autoplay=True,
                    preload="auto",
                    aria_label=words,
                )
            else:
                film = tag("img", src=each.film.source, alt=words)
            figures.append((each.task, tag("figure", film, tag("figcaption", words), class_="film")))
    said = paragraphs(*(f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()))
    if not figures:
        return said if reasons else None
    tasks_first = list(dict.fromkeys(task for task, _ in figures))  # those of one task beside each other
    in_order = [figure for wanted in tasks_first for task, figure in figures if task == wanted]
    return joined(tag("h3", "Films"), said if reasons else None, tag("div", *in_order, class_="films"))


def provenance(content: Content) -> Section:
    """Settings, versions and machines.

    Args:
        content: What the page shows.
    """
    parts = [_config_differences(content)]
    for subject in content.subjects:
        for source in subject.sources[:1]:
            document = json.loads(to_json(source.store.config))
            title = "All settings" if content.single else f"All settings of {subject.name}"
            parts.append(details(title, _settings(document), class_="settings"))
    stores = [source.store for subject in content.subjects for source in subject.sources]
    rows = [[str(store.folder), *made] for store in stores if (made := _made_by(store))]
    head = ["folder", "Sonde", "Python", "JAX", "computed on", "machine", "git"]
    parts.append(table(head, rows, "Where the runs were made; a dash is for what was not recorded") if rows else None)
    others = [str(store.folder) for store in stores if not _made_by(store)]
    parts.append(paragraphs(f"Folder: {', '.join(others)}.") if others else None)
    here = this_machine()
    text = (
        f"This page was made with Sonde {__version__}, Python {here['python']} and JAX {here['jax']} on {here['device']} "
        f"({here['processor']})."
    )
    return Section("settings", "Settings, versions and machines", joined(*parts, paragraphs(text)))


def _config_differences(content: Content) -> Markup | None:
    """What differs between the settings of the runs."""
    if content.single:
        return None
    first, found = content.subjects[0], []
    for subject in content.subjects[1:]:
        ignored = {name: getattr(first.config, name) for name in ("seeds", "first_seed")}
        theirs = dataclasses.replace(subject.config, **ignored, capacity=None)
        mine = dataclasses.replace(first.config, capacity=None)
        lines = [
            line.replace(" there and ", f" for {first.name}, ").replace(" here", f" for {subject.name}")
            for line in config_differences(mine, theirs)
        ]
        found += lines or [f"{subject.name} has the same settings as {first.name}, but for seeds."]
    return joined(tag("h3", "How the runs differ"), tag("ul", *(tag("li", tag("code", line)) for line in found)))


def _settings(value: dict[str, Any]) -> Markup:
    """A document as nested lists of names and values."""
    entries = []
    for key, entry in value.items():
        if key in ("class", "format"):
            continue
        shown = _setting(entry)
        entries.append(joined(tag("dt", key), tag("dd", shown)))
    return tag("dl", *entries)


def _setting(entry: Any) -> Markup:
    if isinstance(entry, dict):
        name = tag("span", str(entry.get("class", "")).rpartition(":")[2], class_="kind")
        inside = {key: value for key, value in entry.items() if key != "class"}
        return joined(name, _settings(inside) if inside else None)
    if isinstance(entry, list):
        if any(isinstance(each, dict | list) for each in entry):
            return tag("ul", *(tag("li", _setting(each)) for each in entry))
        return tag("code", ", ".join(str(each) for each in entry) or "none")
    return tag(
        "code", {None: "none", True: "yes", False: "no"}.get(entry, entry) if not isinstance(entry, float) else f"{entry:g}"
    )


def _made_by(store: RunStore) -> list[str]:
    """Versions and machines that a run has recorded; a dash for what it has not; nothing without a record."""
    found: list[dict[str, Any]] = []
    try:
        lines = read_limited(store.folder / MACHINES, MAX_JSON_BYTES).splitlines()
        found = [entry for line in lines if isinstance(entry := parse_json(line, MACHINES), dict)]
    except (OSError, SondeError):
        pass
    if not found:
        return []
    listed = lambda key: ", ".join(dict.fromkeys(str(entry[key]) for entry in found if key in entry)) or "–"
    return [listed(key) for key in ("sonde", "python", "jax", "device", "processor", "git")]
