"""Figures and films of runs; the only rooms that need matplotlib."""

from sonde.runs.figures._curves import draw_curves, draw_model, draw_run, draw_theory

__all__ = ["draw_curves", "draw_model", "draw_run", "draw_theory"]
