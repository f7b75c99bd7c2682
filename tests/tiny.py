"""The smallest run that has all parts, for tests of the machinery around learning."""

from dataclasses import replace

from sonde.runs import RunConfig
from sonde.runs._presets import PENDULUM_GP_MODEL
from sonde.solvers import ICEM

TINY = RunConfig(
    rounds=3,
    horizon=12,
    evaluation_horizon=10,
    model=replace(PENDULUM_GP_MODEL, steps=3, rank=16),
    solver=ICEM(samples=16, elites=4, iterations=2, horizon=5),
)
TINY_LENGTHS = ["--rounds", "3", "--horizon", "12", "--evaluation-horizon", "10"]
TINY_SOLVER = ["--solver.samples", "16", "--solver.elites", "4", "--solver.iterations", "2", "--solver.horizon", "5"]
TINY_OPTIONS = [*TINY_LENGTHS, "--model.steps", "3", "--model.rank", "16", *TINY_SOLVER]
