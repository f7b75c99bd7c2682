"""Imported where the Fetch arm itself is needed: without its files, which `make test` installs, such tests are skipped."""

import importlib.util

import pytest

mujoco = pytest.importorskip("mujoco")
if importlib.util.find_spec("gymnasium_robotics") is None:  # not imported: its own environments do not work with every MuJoCo
    pytest.skip("the Fetch arm's files come with gymnasium-robotics", allow_module_level=True)
