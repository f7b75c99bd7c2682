"""Examples of the names that only the package itself has."""

# %% setup

# %% SondeError
import sonde

try:
    sonde.SystemSpec(("x", "x"), ("u",))
except sonde.SondeError as error:
    print(error)  # system: states must be names, at least one and all different, got ['x', 'x']
