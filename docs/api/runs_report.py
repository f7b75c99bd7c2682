"""Examples of sonde.runs.report."""

# %% setup
from sonde import GaussianProcess, RunConfig, explore
from sonde.solvers import ICEM
from sonde.worlds import Pendulum

# settings are much too small, so that the example is quick
planner = ICEM(horizon=3, samples=12, elites=4, iterations=2)
model = GaussianProcess(hyperparameters="fixed")
config = RunConfig(world=Pendulum(), model=model, solver=planner, rounds=2, horizon=5, evaluate_every=0)

# %% follow_report
from sonde.runs.report import follow_report

explore(config, "runs/followed")  # in practice, this goes on in another process
print(follow_report("runs/followed", "page.html", say=print))  # returns when the run has ended
