"""Figures and films of runs. Only this part of the package needs matplotlib: import it where a figure is drawn."""

from sonde.runs.figures._curves import draw_curves
from sonde.runs.figures._linear import draw_frequency_response, draw_step_response
from sonde.runs.figures._run import draw_calibration, draw_model, draw_run, draw_states, draw_theory
from sonde.runs.figures._style import LOOKS, STYLE, file_format, save_figure, scale_y

__all__ = [
    "LOOKS",
    "STYLE",
    "draw_calibration",
    "draw_curves",
    "draw_frequency_response",
    "draw_model",
    "draw_run",
    "draw_states",
    "draw_step_response",
    "draw_theory",
    "file_format",
    "save_figure",
    "scale_y",
]
