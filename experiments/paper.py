"""What the paper's figures show, as data: panels, methods, and how many rounds and seeds each world is explored for.

A *setting* is a world with its model and planner: the preset of that name (`sonde.runs.PRESETS`), or its lite variant.
"""

from dataclasses import dataclass, replace
from typing import Literal

from sonde._internal.errors import one_of
from sonde.runs import RunConfig, preset

ACTIVE = ("opax", "mean-ae", "pets-ae")
"""The methods of the paper that choose what to explore, without a task."""
TRAINED_ON = {
    "pendulum-gp": "swing-up",
    "pendulum-pe": "keep-down",
    "mountain-car": "reach-goal",
    "reacher": "reach",
    "swimmer": "go-to",
    "cheetah": "forward",
}
"""The task that h-ucrl explores for in each setting that has it."""
FETCH = "fetch-construction"
SETTINGS = (*TRAINED_ON, FETCH)
"""All of them."""
Kind = Literal["uncertainty", "return", "success", "interaction"]


@dataclass(frozen=True)
class Panel:
    """One metric of one setting, a curve per method."""

    setting: str
    metric: str
    title: str

    @property
    def kind(self) -> Kind:
        """What kind of number it shows; only of an uncertainty less is better."""
        first = self.metric.split("/")[0]
        return first if first in ("return", "success", "interaction") else "uncertainty"

    @property
    def is_return(self) -> bool:
        """Whether it is the return of a task."""
        return self.kind == "return"

    @property
    def task(self) -> str | None:
        """The task whose return or success it shows."""
        return self.metric.split("/", 1)[1] if self.kind in ("return", "success") else None

    @property
    def unseen(self) -> bool:
        """Whether it is the return of a task that h-ucrl was not trained on."""
        return self.is_return and self.task != TRAINED_ON[self.setting]


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper."""

    title: str
    methods: tuple[str, ...]
    panels: tuple[Panel, ...]
    claims: tuple[str, ...]
    """Which of the paper's claims it answers (`experiments.claims`)."""
    seeds: int | None = None
    """The most seeds that a scale runs, where the paper has fewer here than elsewhere."""

    @property
    def shows_tasks(self) -> bool:
        """Whether its runs must evaluate tasks."""
        return any(panel.task is not None for panel in self.panels)

    @property
    def settings(self) -> tuple[str, ...]:
        """What must be run for it."""
        return tuple(dict.fromkeys(panel.setting for panel in self.panels))


FIGURES = {
    "uncertainty": PaperFigure(
        "Figure 1: largest epistemic uncertainty in the reachable set",
        (*ACTIVE, "random"),
        (
            Panel("pendulum-gp", "max_epistemic", "Pendulum, GP"),
            Panel("pendulum-pe", "max_epistemic", "Pendulum, PE"),
        ),
        ("C1", "C2", "C3"),
    ),
    "downstream": PaperFigure(
        "Figure 2: return of tasks, zero-shot",
        (*ACTIVE, "random", "h-ucrl"),
        (
            Panel("pendulum-gp", "return/swing-up", "(1) Pendulum swing-up, GP"),
            Panel("pendulum-pe", "return/keep-down", "(2) Pendulum keep-down"),
            Panel("mountain-car", "return/reach-goal", "(3) MountainCar"),
            Panel("reacher", "return/reach", "(4) Reacher"),
            Panel("swimmer", "return/go-to", "(5) Swimmer go-to"),
            Panel("cheetah", "return/forward", "(6) Cheetah forward"),
            Panel("pendulum-pe", "return/swing-up", "(7) Pendulum swing-up"),
            Panel("swimmer", "return/go-away", "(8) Swimmer go-away"),
            Panel("cheetah", "return/backward", "(9) Cheetah backward"),
        ),
        ("C4", "C5", "C6", "C7"),
    ),
    "manipulation": PaperFigure(
        "Figure 3: success rates of the Fetch arm's tasks, zero-shot, and what free play did with the blocks",
        ("opax-heuristic", "cee-us", "pets-ae", "mean-ae", "random"),
        (
            Panel(FETCH, "success/pick-place", "(1) Pick & place"),
            Panel(FETCH, "success/throw", "(2) Throw"),
            Panel(FETCH, "success/flip", "(3) Flip"),
            Panel(FETCH, "interaction/moving", "(4) Share of time in which a block moves"),
            Panel(FETCH, "interaction/blocks_moved", "(5) Blocks moved per rollout"),
            Panel(FETCH, "interaction/highest_lift", "(6) Highest lift of a block [m]"),
        ),
        ("C9",),
        seeds=3,
    ),
    "rewards": PaperFigure(
        "Figure 4: information gain or sum of variances as reward",
        ("opax", "opax-sum"),
        (
            Panel("pendulum-gp", "max_epistemic", "Pendulum, GP: uncertainty"),
            Panel("pendulum-pe", "max_epistemic", "Pendulum, PE: uncertainty"),
            Panel("cheetah", "max_epistemic", "Cheetah: uncertainty"),
            Panel("pendulum-gp", "return/swing-up", "Pendulum swing-up, GP"),
            Panel("pendulum-pe", "return/swing-up", "Pendulum swing-up, PE"),
            Panel("cheetah", "return/forward", "Cheetah forward"),
            Panel("cheetah", "return/backward", "Cheetah backward"),
        ),
        ("C8",),
    ),
}


@dataclass(frozen=True)
class Scale:
    """How much is run: seeds, and rounds per setting. Nothing else differs between scales."""

    seeds: int
    rounds: dict[str, int]


_SMALL = {"pendulum-gp": 5, "pendulum-pe": 4, "mountain-car": 6, "reacher": 5, "swimmer": 5, "cheetah": 5, FETCH: 10}
_MEDIUM = {"pendulum-gp": 10, "pendulum-pe": 25, "mountain-car": 25, "reacher": 60, "swimmer": 100, "cheetah": 100, FETCH: 50}
SCALES = {
    "small": Scale(3, _SMALL),
    "medium": Scale(10, _MEDIUM),
    # what the public runs collect; the paper does not say
    "paper": Scale(10, {name: preset(name).rounds for name in SETTINGS}),
}

TASKS = {
    setting: tuple(dict.fromkeys(p.task for f in FIGURES.values() for p in f.panels if p.setting == setting and p.task))
    for setting in SETTINGS
}
"""The tasks of each setting that some figure shows; no others are evaluated."""


def run_config(setting: str, method: str, rounds: int, seeds: int, *, lite: bool = False) -> RunConfig:
    """The config of a method in a setting, with seeds from 0."""
    one_of("setting", setting, SETTINGS)
    chosen = preset(f"{setting}-lite" if lite else setting)
    return replace(
        chosen.with_method(method, TRAINED_ON[setting] if method == "h-ucrl" else None),
        rounds=rounds,
        seeds=seeds,
        evaluation_tasks=TASKS[setting],
        capacity=None,
    )
