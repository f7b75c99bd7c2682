"""The first sections: what was explored in plain words, the most important numbers, and warnings with what to do about them."""

from collections.abc import Iterator

import numpy as np

from sonde._internal.user_code import task_label
from sonde.methods import SUMMARIES
from sonde.models import MODELS
from sonde.runs._config import RunConfig, world_label
from sonde.runs.report._advice import Finding
from sonde.runs.report._comparison import task_values
from sonde.runs.report._content import Content, Section
from sonde.runs.report._html import Markup, joined, number, paragraphs, tag
from sonde.runs.report._subjects import Subject
from sonde.solvers import ICEM, SAC, Solver
from sonde.worlds import has_simulator

KINDS = {
    "GaussianProcess": "a Gaussian process for each state dimension",
    "ProbabilisticEnsemble": "an ensemble of neural networks",
    "RelationalEnsemble": "an ensemble of neural networks that share what they learn of each object",
    "Auto": "whichever of several models simulates unseen measurements best",
}
"""What models are, in words."""


def _planner(solver: Solver) -> str:
    """A solver, in words."""
    if isinstance(solver, ICEM):
        often = "at every step" if solver.replan_every == 1 else f"every {solver.replan_every} steps"
        return f"iCEM, which plans again {often}"
    return "soft actor-critic, trained on the model" if isinstance(solver, SAC) else type(solver).__name__


def overview(content: Content) -> Section:
    """What was explored, how, and what came of it.

    Args:
        content: What the page shows.
    """
    parts = [_tiles(content)] if content.single else [_cards(content)]
    first = content.subjects[0]
    texts = [_system(first.config), *(_how(subject, content.single) for subject in content.subjects)]
    if content.single:
        texts += [*_learned(content), *_tasks(content)]
    return Section("overview", "What was explored", joined(*parts, tag("div", paragraphs(*texts), class_="prose")))


def headline(content: Content) -> str:
    """The title of the page.

    Args:
        content: What the page shows.
    """
    names = [subject.name for subject in content.subjects]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    label = world_label(content.world)
    return f"{label[:1].upper()}{label[1:]}, explored by {listed}"


def _system(config: RunConfig) -> str:
    world = config.world
    states, actions = world.state_names, world.action_names
    shown = f"({', '.join(states)})" if len(states) <= 12 else f"({', '.join(states[:10])}, ...)"
    kind = f"is {world_label(world)} (simulated):" if has_simulator(world) else "is run by its owner, with"
    step = world.seconds_per_step
    return (
        f"The system {kind} {_count(len(states), 'state dimension')} {shown} and "
        f"{_count(len(actions), 'action')} ({', '.join(actions[:12])}){f', in steps of {step:g} s' if step else ''}. "
        "Its equations were not told to the method, only what was measured."
    )


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _how(subject: Subject, single: bool) -> Markup:
    config, name = subject.config, subject.config.method.name
    called = f"The method is {name}: " if single else "" if name == subject.name else f"{name}, "
    summary = SUMMARIES.get(name, "a method of one's own")
    task = f" for the task {task_label(config.exploration_task)}" if config.exploration_task else ""
    kind = type(config.model).__name__
    known = {each.__name__ if isinstance(each, type) else type(each).__name__ for each in MODELS.values()}
    model = KINDS.get(kind, f"a {kind}" if kind in known else f"{kind}, a model of one's own")
    rounds = {row["seed"]: row["round"] for row in subject.last}
    done = sorted(set(rounds.values()))
    lengths = f"{done[0]}" if len(done) == 1 else f"{done[0]} to {done[-1]}"
    most = {row.get("transitions", 0) - subject.initial for row in subject.last}
    at_most = "" if max(most) == done[-1] * config.steps else "at most "  # an owner may tell shorter ones
    steps = f"{config.rollouts} rollouts of {at_most}" if config.rollouts > 1 else at_most
    steps += f"{config.horizon} steps"
    transitions = f"{max(most):,}" if len(most) == 1 else f"{min(most):,} to {max(most):,}"
    seconds = config.world.seconds_per_step
    time = f", {_duration(max(most) * seconds)} of the system's time" if seconds else ""
    seeds = (
        f" for each of {len(rounds)} seeds ({_ranges(sorted(rounds))})"
        if len(rounds) > 1
        else f" with seed {next(iter(rounds))}"
    )
    planner = "" if config.method.objective is None else f" Plans come from {_planner(config.solver)}."
    initial = f" It started from {_count(subject.initial, 'measurement')} made before." if subject.initial else ""
    heading = joined(tag("strong", subject.name, class_=f"name s{subject.number}"), ": ") if not single else ""
    if done == [0]:
        count = _count(subject.initial, "measurement")
        return joined(heading, f"Nothing was explored yet: {count} from logs were learned by {model}.")
    return joined(
        heading,
        f"{called}{summary}{task}. In {lengths} round{'' if lengths == '1' else 's'} of "
        f"{steps} it took {transitions} measurements{seeds}{time}. They were learned by {model}.{planner}{initial}",
    )


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds)} s"


def _ranges(seeds: list[int]) -> str:
    """Whole numbers in words, runs of them as a range."""
    parts, start = [], 0
    for i in range(1, len(seeds) + 1):
        if i == len(seeds) or seeds[i] != seeds[i - 1] + 1:
            parts.append(f"{seeds[start]}" if start == i - 1 else f"{seeds[start]} to {seeds[i - 1]}")
            start = i
    return ", ".join(parts)


def _learned(content: Content) -> Iterator[str]:
    """How error and uncertainty changed, in words."""
    subject = content.subjects[0]
    for key, what in (
        ("model_rmse", "The root mean square error of the predicted next state, over what the system can reach,"),
        ("max_epistemic_common", "The largest uncertainty over the same states, under one fixed kernel,"),
        ("prediction_error", "The error of predictions on new measurements, beyond noise,"),
    ):
        curve = subject.curve(key)
        if curve is not None and len(curve.rounds) > 1 and not (key == "prediction_error" and subject.curve("model_rmse")):
            first, last = (float(curve.values[:, at].mean()) for at in (0, -1))
            ends = f"from {number(first)} after round {curve.rounds[0]} to {number(last)} after round {curve.rounds[-1]}"
            factor = f" (a factor of {number(first / last, 2)})" if 0 < last < first / 1.5 else ""
            went = "fell" if last < first else "went"
            yield f"{what} {went} {ends}{factor}."


def _tasks(content: Content) -> Iterator[str]:
    """What the learned model can do, in words."""
    for value in task_values(content.subjects):
        solved = "" if value.success is None else f", success {100 * value.success:.0f} %"
        compared = _between(content, value.task)
        yield (
            f"Task {value.task}, planned on the model alone: return {number(value.now[0])} after round {value.round}"
            f"{solved} (best so far {number(value.best[0])}){compared}."
        )


def _between(content: Content, task: str) -> str:
    """Where a return lies between random actions and the oracle."""
    found = [solved.returns for solved in content.facts[0].solved if solved.task == task]
    said = ""
    for name, words in (("random", "random actions return"), ("oracle", "a planner that knows the system returns")):
        values = [returns[name] for returns in found if name in returns]
        if values:
            said += f"; {words} {number(float(np.concatenate(values).mean()))}"
    return said


def _tile(title: str, value: str, note: str, raw: float | int | None = None) -> Markup:
    shown = tag("span", value, class_="value", data_value=None if raw is None else repr(float(raw)))
    return tag("div", tag("span", title, class_="label"), shown, tag("span", note, class_="note"), class_="tile")


def _tiles(content: Content) -> Markup:
    """The most important numbers of one subject."""
    subject = content.subjects[0]
    last, seeds = subject.last, len(subject.group.seeds)
    most = max(row.get("transitions", 0) for row in last)
    rounds = max(source.store.config.rounds for source in subject.sources)
    per_seed = f"per seed, {seeds} seeds" if seeds > 1 else f"seed {last[0]['seed']}"
    tiles = [
        _tile("Rounds", f"{subject.rounds} of {rounds}", "planned, measured, learned", subject.rounds),
        _tile("Measurements", f"{most:,}", per_seed, most),
    ]
    for key, title in (("model_rmse", "Model error"), ("max_epistemic_common", "Largest uncertainty")):
        curve = subject.curve(key)
        if curve is not None:
            now, before = (float(curve.values[:, at].mean()) for at in (-1, 0))
            tiles.append(_tile(title, number(now), f"after round {curve.rounds[0]}: {number(before)}", now))
    tiles += [
        _tile(f"Return, {value.task}", number(value.now[0]), f"best so far {number(value.best[0])}", value.now[0])
        for value in task_values(content.subjects)[:3]
    ]
    return tag("div", *tiles, class_="tiles")


def _cards(content: Content) -> Markup:
    """A card for each of several subjects."""
    cards = []
    for subject in content.subjects:
        folders = ", ".join(source.store.folder.name for source in subject.sources)
        seeds = _ranges(sorted(subject.group.seeds))
        facts = f"{subject.rounds} rounds; seeds {seeds}; {folders}"
        cards.append(
            tag(
                "div",
                tag("span", subject.name, class_="label"),
                tag("span", facts, class_="note"),
                class_=f"card s{subject.number}",
            )
        )
    return tag("div", *cards, class_="cards")


def warnings_section(content: Content) -> Section | None:
    """Warnings and notes, each with what to do about it; None if there are none.

    Args:
        content: What the page shows.
    """
    if not content.findings:
        return None
    shown = [_finding(content, finding) for finding in content.findings]
    return Section("warnings", "Warnings and notes", tag("ul", *shown, class_="findings"))


def _finding(content: Content, finding: Finding) -> Markup:
    who = None if content.single else tag("span", content.subjects[finding.subject].name, class_=f"name s{finding.subject}")
    level = "Warning" if finding.serious else "Note"
    heading = tag("strong", f"{level}: {finding.kind}")
    remedy = tag("p", tag("em", "What to do: "), finding.remedy)
    return tag("li", tag("p", heading, " ", who), tag("p", finding.text), remedy, class_=level.lower())
