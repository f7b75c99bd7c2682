"""Late actions and hidden state: swing up a pendulum whose actions act two steps late, and one of which only the angle is seen.

    python -m experiments.scripts.hidden_state                     # seeds 0 to 9
    python -m experiments.scripts.hidden_state --first-seed 100    # development seeds, on which settings were chosen

Each system is explored with plans of 20 steps (`experiments.short_plans`), with the option that it needs and without. After
the last round the swing-up is planned on what was learned. A score of 0 is random actions, 1 is the same planner on the true
system with its whole state; a seed has solved the task if its score is at least 0.8. The last columns say in how many seeds
the test of whiteness called the state incomplete after the last round, and what the run says about it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.short_plans import SHORT_PLANS
from sonde import Learned, RunConfig, evaluate
from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys
from sonde.evaluation import normalised_score
from sonde.evaluation._whiteness import incomplete_warning
from sonde.models import Posterior, Prediction
from sonde.runs import explore
from sonde.runs._store import RunStore
from sonde.worlds import Delayed, HostWorld, Observed, Pendulum

TASK, SOLVED = "swing-up", 0.8


class LateTruth(Posterior):
    """The pendulum with late actions, for states with the actions on their way."""

    world: Pendulum = eqx.field(static=True)

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " inputs"]) -> Prediction:
        """The next state under the action that arrives now; the past has the newest action first."""
        mean = self.world.dynamics(x, u[-2:-1])
        return Prediction(mean, 0 * mean, 0 * mean)


class AngleTruth(Posterior):
    """The pendulum in terms of its angle, for states with the last change of cosine and sine."""

    world: Pendulum = eqx.field(static=True)

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " inputs"]) -> Prediction:
        """The next angle: the last two give the speed exactly, since the pendulum moves with its new speed."""
        before = x - u[:2]
        turn = jnp.arctan2(x[1], x[0]) - jnp.arctan2(before[1], before[0])
        speed = ((turn + jnp.pi) % (2 * jnp.pi) - jnp.pi) / self.world.time_step
        mean = self.world.dynamics(jnp.append(x, speed), u[-1:])[:2]
        return Prediction(mean, 0 * mean, 0 * mean)


@dataclass(frozen=True)
class Case:
    """A system, and what its state needs of the past."""

    name: str
    world: HostWorld
    option: dict[str, int]
    truth: Posterior

    plain: ClassVar[dict[str, int]] = {"delay": 0, "history": 1}


CASES = (
    Case("late actions", Delayed(Pendulum(), 2), {"delay": 2, "history": 1}, LateTruth(Pendulum())),
    Case("angle only", Observed(Pendulum()), {"delay": 0, "history": 2}, AngleTruth(Pendulum())),
)


def config_of(case: Case, option: dict[str, int], args: argparse.Namespace) -> RunConfig:
    """The run of one case.

    Args:
        case: The case.
        option: What of the past belongs to the state.
        args: Options of the command line.
    """
    config = replace(SHORT_PLANS, world=case.world, evaluation_tasks=(TASK,), task_settings=(), **option)
    seeds = {"first_seed": args.first_seed, "seeds": args.seeds}
    return replace(config, rounds=args.rounds, evaluate_every=args.rounds, **seeds)


@double_precision
def references(case: Case, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Returns of the oracle and of random actions, per seed.

    Args:
        case: The case.
        args: Options of the command line.
    """
    setup = config_of(case, case.option, args).task_setup(TASK)
    keys = round_keys(tuple(range(args.first_seed, args.first_seed + args.seeds)), 0)
    played = {"oracle": evaluate(setup, Learned(case.truth), keys), "random": evaluate(setup, None, keys)}
    return {name: each.returns for name, each in played.items()}


def report(case: Case, option: dict[str, int], folder: Path, known: dict[str, np.ndarray]) -> None:
    """Print what a run has reached.

    Args:
        case: The case.
        option: What of the past belongs to the state.
        folder: Folder of the run.
        known: Returns of the oracle and of random actions.
    """
    store = RunStore.open(folder)
    rows = store.load_metrics()
    last = [row for row in rows if row["round"] == rows[-1]["round"]]
    returns = np.array([row[f"return/{TASK}"] for row in last])
    scores = normalised_score(returns, known["random"], known["oracle"])
    named = [incomplete_warning([row], store.config.past) for row in last]
    words = " ".join(f"--{name} {value}" for name, value in option.items())
    print(f"\n{case.name}, {words}: solved in {np.sum(scores >= SOLVED)} of {len(scores)} seeds")
    print("  returns " + " ".join(f"{value:.0f}" for value in returns))
    print("  scores  " + " ".join(f"{value:.2f}" for value in scores))
    explains = [row["past_explains"] for row in last]
    print(f"  state called incomplete in {sum(each is not None for each in named)} of {len(last)} seeds, past_explains")
    print("          " + " ".join("-" if value is None else f"{value:.3f}" for value in explains))
    for number in sorted({row["round"] for row in rows}):
        said = incomplete_warning([row for row in rows if row["round"] == number], store.config.past)
        print(f"  round {number}: {said or 'nothing is said'}")


def main(argv: Sequence[str] | None = None) -> None:
    """Run all cases and print what came of them.

    Args:
        argv: Options of the command line.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/hidden-state"))
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args(argv)
    for case in CASES:
        known = references(case, args)
        print(f"{case.name}: oracle {known['oracle'].mean():.0f}, random {known['random'].mean():.0f}", flush=True)
        for option in (case.option, case.plain):
            label = "-".join([case.name.replace(" ", "-"), *(f"{name}{value}" for name, value in option.items())])
            explore(config_of(case, option, args), args.out / label)
            report(case, option, args.out / label, known)


if __name__ == "__main__":
    main()
