"""Examples of sonde.explorer."""

# %% setup
import numpy as np

from sonde import ICEM, METHODS, Explorer, GaussianProcess, rollout
from sonde.worlds import Pendulum

world, model = Pendulum(), GaussianProcess()
planner = ICEM(horizon=5, samples=12, elites=4, iterations=2)

# %% Explorer
from sonde import Explorer

explorer = Explorer(METHODS["opax"], model, planner, world.spec, capacity=100)
for _ in range(2):
    policy = explorer.ask()  # plan for information
    trajectory = rollout(world, policy, 10)  # run it on the system
    explorer.tell(trajectory)  # learn
print(explorer.round, explorer.transitions)  # 2 20

prediction = explorer.predict(np.array([-1.0, 0.0, 0.0]), np.array([1.0]))
print(prediction.mean, prediction.epistemic_std)

# %% Told, fit_together
from sonde.explorer import Told, fit_together

# two methods with the same model, fitted by one program: an accelerator does that faster than one after the other
explorers = [Explorer(METHODS[name], model, planner, world.spec, capacity=20) for name in ("random", "mean-ae")]
told = [Told.of(each, rollout(world, each.ask(), 10)) for each in explorers]
for each, params in zip(told, fit_together(told), strict=True):
    each.learn(params)
print([each.transitions for each in explorers])  # [10, 10]
