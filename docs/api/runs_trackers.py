"""Examples of sonde.runs.trackers."""

# %% setup
from sonde import GaussianProcess, RunConfig, explore
from sonde.solvers import ICEM
from sonde.worlds import Pendulum

# settings are much too small, so that the examples are quick
model = GaussianProcess(hyperparameters="fixed")
planner = ICEM(horizon=3, samples=12, elites=4, iterations=2)
config = RunConfig(world=Pendulum(), model=model, solver=planner, rounds=2, horizon=5, evaluate_every=0)

# %% TensorBoard
from sonde.runs.trackers import TensorBoard

tracker = TensorBoard()
explore(config, "runs/watched", [tracker])
print(tracker.shown)  # how to look at it

# %% WandB, Trackio
import importlib.util

from sonde.runs.trackers import Trackio, WandB

trackers = []
if importlib.util.find_spec("wandb"):
    trackers.append(WandB(project="pendulum", mode="offline"))
if importlib.util.find_spec("trackio"):
    trackers.append(Trackio(project="pendulum"))
explore(config, "runs/tracked", trackers)

# %% TRACKERS
from sonde.runs.trackers import TRACKERS

print(list(TRACKERS))  # the names for `sonde explore --track NAME`

# %% Tracker, Track
from dataclasses import dataclass

from sonde.runs.trackers import Track, Tracker


@dataclass
class Printer(Tracker):
    """Prints what it is sent."""

    name, package = "printer", "json"

    def destination(self):
        return "the console"

    def begin(self, track: Track):
        print(track.name, track.document()["rounds"])
        return {}  # nothing is kept, so all rounds are sent again

    def log(self, row):
        print(row["seed"], row["round"], row["max_epistemic"])

    def log_media(self, kind, round_number, paths):
        print(kind, [path.name for path in paths])

    def end(self):
        pass

    def where(self, track: Track):
        return "above"


explore(config, "runs/printed", [Printer()])
