"""Logs as they come: text files, MCAP, ROS 2 bags, LeRobot and Minari datasets, MATLAB and numpy files, as transitions.

A reader turns a file into recordings: named signals with their times. `LogFormat` says which of them are states and actions, in
what units, and what happens where samples are lost; the rest is the same for all formats.
"""

from sonde.runs.logs._check import Channel, LogCheck, SourceCheck, check_logs
from sonde.runs.logs._findings import Finding
from sonde.runs.logs._format import LogFormat
from sonde.runs.logs._system import system_of

__all__ = ["Channel", "Finding", "LogCheck", "LogFormat", "SourceCheck", "check_logs", "system_of"]
