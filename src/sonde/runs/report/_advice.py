"""What a reader should know before trusting a run: each warning with what to do about it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sonde.evaluation._constraints import MUCH_FALLBACK
from sonde.evaluation._drift import drift_warning
from sonde.evaluation._schema import FALLBACK, LATE_ACTIONS, OVERCONFIDENCE, VIOLATIONS
from sonde.evaluation._stalling import TOO_CERTAIN, advice, stall_warning
from sonde.evaluation._statistics import estimate
from sonde.evaluation._whiteness import incomplete_warning
from sonde.runs.report._html import number
from sonde.runs.report._subjects import Subject, rows_of
from sonde.worlds import has_simulator

MUCH_LATE = 0.05
"""Share of late actions from which a run's data is not what was planned."""
MUCH_WORSE = 0.5
"""By how much of its range so far the last two returns of a single seed must be below the best for a remark."""


@dataclass(frozen=True)
class Finding:
    """Something that a reader should know."""

    subject: int
    kind: str
    """A short heading."""
    text: str
    """What was found."""
    remedy: str
    """What to do about it."""
    serious: bool = True
    """Whether it puts results in doubt; otherwise it is a note."""


def warnings_of(subject: Subject) -> list[Finding]:
    """All warnings about a subject, the serious ones first.

    Args:
        subject: The subject.
    """
    found = [
        *_model(subject),
        *_change(subject),
        *_ending(subject),
        *_late(subject),
        *_constraints(subject),
        *_forgotten(subject),
    ]
    return sorted(found, key=lambda each: not each.serious)


def _change(subject: Subject) -> Iterator[Finding]:
    """That the system seems to have changed."""
    said, _, remedy = (drift_warning(subject.rows, subject.config.confidence) or "").partition("; ")
    if said:
        yield Finding(subject.number, "The system changed", f"{said}.", _sentence(remedy))


def _model(subject: Subject) -> Iterator[Finding]:
    """Stalling, overconfidence, and what the model itself warns of."""
    last, config, here = subject.last, subject.config, subject.number
    incomplete = incomplete_warning(last, config.past)
    if incomplete:
        said, _, remedy = incomplete.partition("; ")
        yield Finding(here, "Incomplete state", f"{said}.", _sentence(remedy))
    stalls = stall_warning(last, config.method, config.model)
    if stalls:
        said, _, remedy = stalls.partition("; ")
        yield Finding(here, "Exploration stalls", f"{said}.", _sentence(remedy))
    else:
        factors = [row[OVERCONFIDENCE.key] for row in last if row.get(OVERCONFIDENCE.key) is not None]
        high = [factor for factor in factors if factor > TOO_CERTAIN]
        if high:
            seeds = f" in {len(high)} of {len(last)} seeds" if len(last) > 1 else ""
            yield Finding(
                here,
                "Overconfidence",
                f"On the measurements of its last round the model erred {number(float(np.mean(high)))} times as much as it "
                f"promised{seeds}; 1 is right, and above {number(TOO_CERTAIN)} its uncertainty says too little.",
                _sentence(advice(config.model)),
                2 * len(high) > len(last),
            )
    for text in dict.fromkeys(remark for source in subject.sources for remark in source.remarks):
        low_rank = "low-rank" in text
        yield Finding(
            here,
            "Low rank" if low_rank else "The model",
            _sentence(text),
            "Explore with a larger --model.rank, or with --model.rank 0 for the exact posterior."
            if low_rank
            else "See the page of the model in the documentation.",
        )


def _ending(subject: Subject) -> Iterator[Finding]:
    """Runs that were stopped, did not reach their goal, or are not finished."""
    for source in subject.sources:
        store, rows = source.store, rows_of(source.store)
        config, done, why = store.config, rows[-1]["round"], store.why_stopped()
        last = [row for row in rows if row["round"] == done]
        rule = config.stopping_rule
        if why:
            yield Finding(subject.number, "Stopping rule", why, "Nothing: enough is known by the rule of the run.", False)
        elif done >= config.rounds and rule is not None:
            more = "Give it more rounds (--rounds), or accept a larger tolerance (--until)."
            yield Finding(subject.number, "Stopping rule", rule.why_not(last, config.rounds), more, False)
        elif done < config.rounds:
            yield Finding(
                subject.number,
                "Not finished",
                f"{store.folder.name} has {done} of {config.rounds} rounds: what follows is as of round {done}.",
                f"Let it go on, or continue it with 'sonde resume {store.folder}'."
                if has_simulator(config.world)
                else "Run its program again to continue it.",
                False,
            )


def _late(subject: Subject) -> Iterator[Finding]:
    """Actions that missed their deadline."""
    shares = [row[LATE_ACTIONS.key] for row in subject.rows if row.get(LATE_ACTIONS.key) is not None]
    late = [(row["round"], row[LATE_ACTIONS.key]) for row in subject.rows if (row.get(LATE_ACTIONS.key) or 0) > 0]
    if late:
        worst_round, worst = max(late, key=lambda pair: pair[1])
        yield Finding(
            subject.number,
            "Late actions",
            f"{100 * float(np.mean(shares)):.1f} % of the actions came without a new plan in time, at most "
            f"{100 * worst:.1f} % in round {worst_round}; the system then followed an older plan.",
            "Ask for a lower rate, or let the planner do less: fewer solver.samples, a shorter solver.horizon, a smaller rank.",
            worst > MUCH_LATE,
        )


def _constraints(subject: Subject) -> Iterator[Finding]:
    """Steps without an admissible plan, and violations."""
    config, rows = subject.config, subject.rows
    shares = [row[FALLBACK.key] for row in rows if row.get(FALLBACK.key) is not None]
    if shares and max(shares) > 0:
        steps = len(shares) * config.steps
        yield Finding(
            subject.number,
            "Fallback",
            f"In {round(float(np.mean(shares)) * steps):,} of {steps:,} steps no plan was admissible: the fallback "
            f"{config.safety.fallback} acted.",
            "If this does not fall over the rounds, the constraints cannot be kept or too little is known: give more initial "
            "data or a longer cautious start, or a smaller safety.beta or safety.horizon.",
            float(np.mean(shares)) >= MUCH_FALLBACK,
        )
    violated = [row for row in rows if row.get(VIOLATIONS.key)]
    if violated:
        worst = max(violated, key=lambda row: row[VIOLATIONS.key])
        yield Finding(
            subject.number,
            "Constraints violated",
            f"Constraints were violated in {len(violated)} of {len(rows)} rounds of all seeds, at most in "
            f"{100 * worst[VIOLATIONS.key]:.3g} % of the steps (seed {worst['seed']}, round {worst['round']}).",
            "Demand a safety.margin, or let beta follow the data (--beta-rule held-out --holdout 0.2); beta says how far the "
            "model's uncertainty is trusted.",
        )


def _forgotten(subject: Subject) -> Iterator[Finding]:
    """Tasks on which the last model is clearly worse than an earlier one."""
    for key in sorted({key for row in subject.rows for key in row if key.startswith("return/")}):
        curve = subject.curve(key)
        if curve is None or len(curve.rounds) < 2:
            continue
        means = curve.values.mean(axis=0)
        best = int(np.argmax(means))
        if _is_worse(curve.values, best):
            yield Finding(
                subject.number,
                "Worse than before",
                f"On {key.removeprefix('return/')} the last model returns {number(float(means[-1]))}, an earlier one returned "
                f"{number(float(means[best]))} (round {int(curve.rounds[best])}).",
                "Returns of single evaluations vary: use more --evaluation-rollouts or --seeds before concluding; a solver "
                "with more samples may help too.",
                False,
            )


def _is_worse(values: np.ndarray, best: int) -> bool:
    """Whether the last of returns [S, T] is below those of the best round, by more than seeds differ by chance."""
    if len(values) > 1:  # the best of many rounds is best by chance too: as many comparisons share the 5 %
        confidence = 1 - 0.05 / (values.shape[1] - 1)
        return bool(estimate(values[:, best] - values[:, -1]).interval(confidence)[0] > 0)
    span = float(np.ptp(values))
    return bool(values[0, best] - values[0, -2:].max() > MUCH_WORSE * span > 0)


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
