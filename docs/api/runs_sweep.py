"""Examples of sonde.runs.sweep."""

# %% setup
from dataclasses import replace

from rich.console import Console

from sonde import GaussianProcess, RunConfig
from sonde.runs.sweep import Results, Sweep
from sonde.solvers import ICEM
from sonde.worlds import Pendulum

planner = ICEM(horizon=3, samples=12, elites=4, iterations=2)
model = GaussianProcess(hyperparameters="fixed")
config = RunConfig(world=Pendulum(), model=model, solver=planner, rounds=1, horizon=5, seeds=2, evaluate_every=0)
configs = {name: config.with_method(name) for name in ("opax", "random")}
# what a sweep has measured, one row per setting, method, seed and round
rows = [
    {"setting": "", "method": method, "seed": seed, "round": 1, "max_epistemic": value + 0.01 * seed}
    for method, value in (("opax", 0.1), ("random", 0.3))
    for seed in range(3)
]

# %% Sweep, Batch
from sonde.runs.sweep import Batch, Sweep

sweep = Sweep("runs/grid", configs, seeds_per_batch=1)
batch: Batch
for batch in sweep.batches():
    print(batch.name, batch.folder.name, batch.finished)  # opax seeds 0-0, ...

# %% run_sweep, LocalBackend, SweepProgress
from sonde.runs.sweep import LocalBackend, Sweep, SweepProgress, run_sweep

sweep = Sweep("runs/sweep", {"random": replace(configs["random"], seeds=1)})
with SweepProgress(sweep.batches(), Console()) as progress:
    failures = run_sweep(sweep, LocalBackend(workers=1), watch=progress)
print(failures)  # {}: all is done
print(sweep.results().metrics())

# %% RayBackend
from sonde.runs.sweep import RayBackend, Sweep, run_sweep

backend = RayBackend(address=None, gpus=0.25)  # a cluster on this machine; four batches share a GPU
done = Sweep("runs/none", {"random": replace(configs["random"], seeds=1)})
print(backend, len(done.batches()))
# run_sweep(done, backend) starts Ray, which takes some seconds

# %% Backend
from sonde.runs.sweep import Backend, Sweep, run_sweep


class Listing(Backend):
    """Runs nothing, and says what there is to do."""

    def run(self, batches, callbacks, watch):
        return {batch.folder: "not run" for batch in batches}


print(list(run_sweep(Sweep("runs/listed", configs), Listing()).values()))  # ['not run', 'not run']

# %% Results
from sonde.runs.sweep import Results

results = Results(rows)
print(results.methods(""), results.metrics())  # ['opax', 'random'] ['max_epistemic']
print(results.curve("", "opax", "max_epistemic").values)  # [seeds, rounds]

# %% final_values, FinalValue, print_summary
from sonde.evaluation import Schema
from sonde.runs.sweep import FinalValue, final_values, print_summary

entries = [("", "opax"), ("", "random")]
value: FinalValue
for value in final_values(Results(rows), "max_epistemic", entries, log=True):
    print(value.method, value.mean, value.comparison)  # compared with the first, as a ratio
print_summary(Results(rows), entries, Schema(config.world), Console())
