"""Examples of sonde.runs.logs."""

# %% setup
from pathlib import Path

rows = [f"{50 * k};{k * k};{(-1) ** k * 12}" for k in range(20) if k != 10]  # one sample is lost
Path("cart.csv").write_text("\n".join(["t [ms];position [mm];motor", *rows]))

from sonde.runs.logs import LogFormat, check_logs

log = LogFormat(columns=("x=position", "v=d/dt(position)", "u=motor -24..24"), velocity_window=5)
check = check_logs("cart.csv", log)

# %% LogFormat
from sonde import OwnSystem, RunConfig
from sonde.runs.logs import LogFormat

log = LogFormat(columns=("x=position", "v=d/dt(position)", "u=motor -24..24"), velocity_window=5)
system = OwnSystem(states=("x", "v"), actions=("u",))
config = RunConfig(world=system, data="cart.csv", log=log)  # a run that starts from it

# %% system_of
from sonde.runs.logs import system_of

system = system_of(log, "cart.csv")
print(system.states, system.actions)  # ('x', 'v') ('u',)

# %% check_logs, LogCheck, SourceCheck
from sonde.runs.logs import LogCheck, SourceCheck, check_logs

check: LogCheck = check_logs("cart.csv", log)
print(check.usable, check.transitions, check.dt)  # True 17 0.05
source: SourceCheck = check.sources[0]
print(source.samples, source.episodes)  # 19 2

# %% Channel
from sonde.runs.logs import Channel

for channel in check.sources[0].channels:
    assert isinstance(channel, Channel)
    print(channel.column, channel.used_as, channel.becomes, channel.low, channel.high)

# %% Finding
from sonde.runs.logs import Finding

found: list[Finding] = [finding for finding in check.findings if finding.level == "warning"]
print(found[0])  # cart.csv: about 1 sample lost or late before line 12 ...
assert isinstance(found[0], Finding)
