"""Builds the package `sonde_deploy` from those modules of Sonde that run without JAX, with their imports renamed."""

import ast
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent.parent.parent
MODULES = {
    "sonde._internal.errors": "_errors",
    "sonde._internal.files": "_files",
    "sonde._internal.past": "_past",
    "sonde._internal.policy_file": "_policy_file",
    "sonde.control._gain_file": "_gain_file",
    "sonde.control._gain_schedule": "_gain_schedule",
    "sonde.control._linear_feedback": "_linear_feedback",
    "sonde.control.deploy": "_deploy",
}
"""Modules of Sonde, and their names in `sonde_deploy`."""
INIT = '''"""Controllers that Sonde has learned: trained policies, linear feedbacks and gain schedules, without JAX."""

from sonde_deploy._deploy import DeployedPolicy, load_policy
from sonde_deploy._errors import SondeError
from sonde_deploy._gain_schedule import GainSchedule
from sonde_deploy._linear_feedback import LinearFeedback

__version__ = "{version}"
__all__ = ["DeployedPolicy", "GainSchedule", "LinearFeedback", "SondeError", "load_policy"]
'''


def renamed(source: str) -> str:
    """A module with its imports from Sonde renamed; one that imports anything else from Sonde is rejected.

    Args:
        source: Its text.
    """
    for old, new in MODULES.items():
        source = re.sub(
            rf"^(\s*)from {re.escape(old)} import", rf"\1from sonde_deploy.{new} import", source, flags=re.MULTILINE
        )
        package, name = old.rsplit(".", 1)
        if name == new:
            pattern = rf"^(\s*)from {re.escape(package)} import (?=.*\b{new}\b)"
            source = re.sub(pattern, r"\1from sonde_deploy import ", source, flags=re.MULTILINE)
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
        left = [name for name in names if name and name.split(".")[0] == "sonde"]
        if left:
            raise ValueError(f"{left[0]} is not a part of sonde-deploy: add it to MODULES, or do without it")
    return source


class Hook(BuildHookInterface):
    """Writes the package into a temporary folder, from which the wheel is filled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package."""
        del version
        self._folder = tempfile.TemporaryDirectory()
        package = Path(self._folder.name)
        for old, new in MODULES.items():
            path = ROOT / "src" / Path(*old.split(".")).with_suffix(".py")
            (package / f"{new}.py").write_text(renamed(path.read_text()))
        (package / "__init__.py").write_text(INIT.format(version=self.metadata.version))
        (package / "py.typed").touch()
        build_data["force_include"][str(package)] = "sonde_deploy"
        build_data["force_include"][str(ROOT / "LICENSE")] = "sonde_deploy/LICENSE"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        del version, build_data, artifact_path
        self._folder.cleanup()
