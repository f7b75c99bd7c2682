"""Examples of sonde.methods."""

# %% setup

# %% Method
from sonde import Method
from sonde.imagination import Optimistic
from sonde.objectives import InformationGain

method = Method(Optimistic(beta=3.0), InformationGain(), label="bold")
print(method.name)  # bold
print(Method().name)  # random: without imagination and objective, actions are drawn uniformly

# %% METHODS, SUMMARIES
from sonde import METHODS
from sonde.methods import SUMMARIES

for name, method in METHODS.items():
    print(f"{name}: {SUMMARIES[name]} ({type(method.imagination).__name__})")

# %% method_named
from sonde import Method
from sonde.imagination import Optimistic
from sonde.methods import method_named
from sonde.objectives import InformationGain

opax = Method(Optimistic(particles=3), InformationGain())
baseline = method_named("mean-ae", like=opax)  # with as many particles, for a fair comparison
print(baseline.imagination.particles)  # 3
