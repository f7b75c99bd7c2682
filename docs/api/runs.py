"""Examples of sonde.runs."""

# %% setup
from dataclasses import replace

import numpy as np

from sonde import GaussianProcess, OwnSystem, RunConfig, Trajectory
from sonde.solvers import ICEM
from sonde.worlds import Pendulum

# settings are much too small, so that the examples are quick
model = GaussianProcess(hyperparameters="fixed")
planner = ICEM(horizon=3, samples=12, elites=4, iterations=2)
config = RunConfig(world=Pendulum(), model=model, solver=planner, rounds=2, horizon=5, evaluate_every=0)

# %% RunConfig, TaskSettings
from sonde import RunConfig
from sonde.runs import TaskSettings

config = RunConfig(
    world=Pendulum(),
    solver=planner,
    rounds=4,
    horizon=50,
    seeds=3,
    task_settings=(TaskSettings("swing-up", horizon=200, solver=ICEM()),),  # this task is planned with more care
)
print(config.seed_list, config.data_capacity, config.task_names)

# %% preset, PRESETS, default_config
from sonde import PRESETS, preset
from sonde.runs import default_config

print(list(PRESETS))
config = replace(preset("pendulum-gp-lite"), rounds=3, seeds=2)
print(type(default_config(Pendulum()).model).__name__)  # for a system without a preset

# %% explore
from sonde import explore

explorer = explore(config, "runs/pendulum")  # the same call continues a run that was interrupted
print(explorer.round, explorer.transitions)  # 2 10

# %% load, Run, RunData, Simulation
import sonde
from sonde.runs import Run, RunData, Simulation

run: Run = sonde.load("runs/pendulum")  # read when it is asked for something
data: RunData = run.data
print(data.rounds[0].states.shape, data.transitions().states.shape)  # (2, 5, 3) (10, 3)
states = np.tile([1.0, 0.0, 0.0], (100, 1))
print(run.predict(states, np.zeros((100, 1))).mean.shape)  # (100, 3)
ahead: Simulation = run.simulate(states[0], np.zeros((5, 1)), particles=19)
print(ahead.low.shape, run.columns()["max_epistemic"].shape)  # (5, 3) (2, 2)

# %% fit, Judgement
from sonde import fit
from sonde.runs import Judgement

rng = np.random.default_rng(0)
levels, inflows = rng.uniform(0, 1, (40, 1)), rng.uniform(-1, 1, (40, 1))
np.savez("log.npz", states=levels, actions=inflows, next_states=0.95 * levels + 0.1 * inflows)
tank = OwnSystem(states=("level",), actions=("inflow",))
run = fit(RunConfig(world=tank, data="log.npz", model=model), "runs/fitted", steps=5)
judgement: Judgement = run.judgement
print(judgement.split, judgement.errors["model"][0])  # one step ahead, in units of the spread

# %% explore_together
from sonde.runs import explore_together

configs = [config.with_method(name) for name in ("opax", "random")]
explorers = explore_together(configs, ["runs/opax", "runs/random"])  # fitted by one program
print([each.method.name for each in explorers])

# %% Callback
from sonde import Callback, explore


class Printer(Callback):
    """Prints one line per round."""

    def on_round_end(self, round_number, rows):
        print(round_number, [row["max_epistemic"] for row in rows])


explore(config, "runs/printed", callbacks=[Printer()])

# %% ProgressDisplay
from rich.console import Console

from sonde import explore
from sonde.runs import ProgressDisplay

explore(config, "runs/shown", callbacks=[ProgressDisplay(Console())])

# %% Experiment
from sonde import Experiment

own = replace(config, world=OwnSystem(states=("level",), actions=("inflow",)), rounds=1)
with Experiment("runs/tank", own) as experiment:  # starts a run, or continues it
    while not experiment.finished:
        policy, level, rows = experiment.ask(), np.zeros(1), []
        for _ in range(5):
            u = policy(level)
            level_after = 0.95 * level + 0.1 * np.maximum(u, 0)  # your system
            rows.append((level, u, level_after))
            level = level_after
        experiment.tell(Trajectory(*map(np.array, zip(*rows, strict=True))))  # on disk when this returns
    policy = experiment.solve(lambda x, u, x_next: -((x_next[0] - 0.5) ** 2))  # a task that was unknown before
    print(policy(level))

# %% learned_system
from sonde import explore, learned_system

explorer = explore(config, "runs/analysed")
system = learned_system(explorer, config.world)  # what the first seed has learned
print(system.linearise(np.array([1.0, 0.0, 0.0]), samples=10).A.shape)  # (2, 2): angle and velocity

# %% read_measurements
from sonde.runs import read_measurements

states = np.random.default_rng(0).normal(size=(20, 1))
np.savez("tank.npz", states=states, actions=np.zeros((20, 1)), next_states=0.95 * states)
measured = read_measurements("tank.npz", OwnSystem(states=("level",), actions=("inflow",)))
print(measured.states.shape)  # (20, 1)

# %% write_report
from sonde import explore
from sonde.runs import write_report

explore(config, "runs/reported")
page = write_report("runs/reported", films=False)  # one HTML file, with everything in it
print(page.name, page.stat().st_size < 6_000_000)  # report.html True
