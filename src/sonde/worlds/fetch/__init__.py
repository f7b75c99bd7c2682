"""The Fetch arm among blocks."""

from sonde.worlds.fetch._world import FetchConstruction

__all__ = ["FetchConstruction"]
