"""The Fetch arm with blocks on a table.

`_layout` describes the state vector, `_scene` builds the MuJoCo model, `_world` is the world itself, `_tasks` its tasks,
`_interaction` its metrics, and `_script` hand-written controllers.
"""

from sonde.worlds.fetch._world import FetchConstruction

__all__ = ["FetchConstruction"]
