"""Examples of sonde.runs.figures."""

# %% setup
from pathlib import Path

from sonde import Confidence, GaussianProcess, RunConfig, explore
from sonde.runs.sweep import Batch
from sonde.solvers import ICEM
from sonde.worlds import Pendulum

# settings are much too small, so that the examples are quick
planner = ICEM(horizon=3, samples=12, elites=4, iterations=2)
model, confidence = GaussianProcess(hyperparameters="fixed"), Confidence(holdout=0.3)
config = RunConfig(world=Pendulum(), model=model, solver=planner, confidence=confidence, rounds=2, horizon=40, evaluate_every=0)
explorer = explore(config, "runs/drawn")
store = Batch("", "opax", config, Path("runs/drawn").absolute()).store()  # the folder, opened

# %% draw_run
from sonde.runs.figures import draw_run

for path in draw_run(store, explorer):
    print(path.name)  # curves.png, states.png, calibration.png, theory.png

# %% draw_curves
from sonde.runs.figures import draw_curves

draw_curves([store], Path("compare.png"))  # one line per method; runs that differ in their seeds only are pooled

# %% draw_model, draw_states, draw_calibration, draw_theory
from sonde.runs.figures import draw_calibration, draw_model, draw_states, draw_theory

draw_states(explorer, config.world, Path("states.pdf"))
draw_calibration(explorer, config.world, Path("calibration.svg"))
print(draw_theory(store, Path("theory.png")))  # True: hyper-parameters are fixed, so there is a bound
print(draw_model(explorer, config.world, lambda name: Path(f"model-{name}.png")))  # states and calibration

# %% save_figure, file_format, scale_y, LOOKS, STYLE
import matplotlib
from matplotlib.figure import Figure

from sonde.runs.figures import LOOKS, STYLE, file_format, save_figure, scale_y

with matplotlib.rc_context(STYLE):
    figure = Figure(figsize=(4, 3))
    ax = figure.subplots()
    colour, marker = LOOKS["opax"]
    ax.plot([1, 2, 3], [0.3, 0.1, 0.04], color=colour, marker=marker, label="opax")
    scale_y(ax, log=True, low=0.04, high=0.3)
    save_figure(figure, Path("own.svg"))
print(file_format(Path("own.svg")))  # svg

# %% draw_frequency_response, draw_step_response
import numpy as np

from sonde import learned_system
from sonde.analysis import frequency_response, step_response
from sonde.runs.figures import draw_frequency_response, draw_step_response

hanging = learned_system(explorer, config.world).linearise(np.array([-1.0, 0.0, 0.0]), samples=100)
draw_frequency_response(frequency_response(hanging, 0.05), ("th", "thdot"), ("torque",), Path("bode.png"))
draw_step_response(step_response(hanging, 40, 0.05), ("th", "thdot"), ("torque",), Path("step.png"))
