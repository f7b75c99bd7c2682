"""Does a fit learn faster if it goes through new measurements more often than through old ones?

    python -m experiments.scripts.new_share --rounds 6 --steps 800
    python -m experiments.scripts.new_share --rounds 4 --steps 400 --initial 4000

OpAx explores the cheetah once, with a small ensemble and a small planner, after as many random actions as `--initial` says;
those are the first round. Models with each `new_share`, and with all or half of the gradient steps per round, are then told the
same rounds. After each round, errors of the mean prediction are computed on a second rollout of the round's policy, which no
model is told, and on fresh random actions: the root mean square over states and dimensions, in stds of the changes of that
state. A line of the output is one round of one model, means over seeds; the table at the end is of the last half of the rounds,
with each model's error over that of `new_share` 0 with all steps, seed by seed.
"""

import argparse

import numpy as np

from sonde._internal.precision import double_precision
from sonde.control import RolloutSettings, SimulatorPool, run_rollouts
from sonde.data import Trajectory
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.models import ProbabilisticEnsemble
from sonde.models._programs import predict_all
from sonde.solvers import ICEM
from sonde.worlds import Cheetah

WORLD, HORIZON = Cheetah(action_repeat=4), 250
SOLVER = ICEM(samples=32, elites=6, iterations=2, horizon=8)
SHARES = (0.0, 0.25, 0.5)


def explorer(method: str, new_share: float, steps: int, capacity: int, seeds: list[int]) -> Explorer:
    """An explorer with a small ensemble, which takes this number of gradient steps per round."""
    model = ProbabilisticEnsemble(width=128, patience=0, epochs=100_000, max_steps=steps, new_share=new_share)
    return Explorer(METHODS[method], model, SOLVER, WORLD.spec, capacity=capacity, seeds=seeds)


@double_precision
def errors(learner: Explorer, test: Trajectory) -> np.ndarray:
    """Error of each seed [S]."""
    steps = test.states.shape[1]
    means = [predict_all(learner.posterior, test.states[:, t], test.actions[:, t]).mean for t in range(steps)]
    wrong = np.stack([np.asarray(mean) for mean in means], axis=1) - test.next_states
    spread = np.std(test.next_states - test.states, axis=1, keepdims=True)
    return np.sqrt(np.mean((wrong / spread) ** 2, axis=(1, 2)))


def main() -> None:
    """Explore, then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--initial", type=int, default=0)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    args = parser.parse_args()
    capacity = args.initial + args.rounds * HORIZON
    explored: list[tuple[Trajectory, Trajectory]] = []
    with SimulatorPool() as pool:
        first = explorer("opax", 0.0, args.steps, capacity, args.seeds)
        random = explorer("random", 0.0, args.steps, capacity, args.seeds)
        old, fresh = run_rollouts(WORLD, random.ask(), RolloutSettings(max(args.initial, HORIZON), 2), pool=pool)
        fresh = Trajectory(fresh.states[:, :HORIZON], fresh.actions[:, :HORIZON], fresh.next_states[:, :HORIZON])
        if args.initial:
            first.tell(old)
            explored.append((old, fresh))
        for _ in range(args.rounds):
            told, unseen = run_rollouts(WORLD, first.ask(), RolloutSettings(HORIZON, 2), pool=pool)
            first.tell(told)
            explored.append((told, unseen))
    found: dict[tuple[int, float], np.ndarray] = {}
    for steps in (args.steps, args.steps // 2):
        for share in SHARES:
            learner, rows = explorer("random", share, steps, capacity, args.seeds), []
            for number, (told, unseen) in enumerate(explored, start=1):
                learner.tell(told)
                rows.append([errors(learner, unseen), errors(learner, fresh)])
                now = "  ".join(f"{error:.3f}" for error in np.mean(rows[-1], axis=1))
                print(f"steps {steps}  new_share {share}  round {number}: new policy, random actions: {now}", flush=True)
            found[steps, share] = np.array(rows)[-(args.rounds - args.rounds // 2) :]  # [rounds, 2, seeds]
    baseline = found[args.steps, 0.0]
    for (steps, share), values in found.items():
        ratios = np.exp(np.mean(np.log(values / baseline), axis=0))  # [2, seeds]
        shown = [f"{np.mean(values[:, kind]):.3f} (x {', '.join(f'{r:.2f}' for r in ratios[kind])})" for kind in range(2)]
        print(f"| {steps} | {share:g} | {shown[0]} | {shown[1]} |")


if __name__ == "__main__":
    main()
