"""Controllers and learned models for programs without Python: ONNX graphs and C headers."""

from sonde.control._export._c import to_c
from sonde.control._export._onnx import to_onnx

__all__ = ["to_c", "to_onnx"]
