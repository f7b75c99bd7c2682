"""The content of TensorBoard's event files: records of a protocol buffer each, between its length and checksums.

The messages are those of the package tensorboardX, which is imported when they are first made.
"""

import importlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from sonde._internal.reading import read_limited

MAX_PICTURE_BYTES = 200 * 2**20
"""Largest picture or film that is taken."""
VERSION = "brain.Event:2"
RGBA = 4


def event_file(step: int, values: Sequence[Any], time: float, restarts: bool = False) -> bytes:
    """A whole file with the values of one step.

    Args:
        step: The step.
        values: What `scalar`, `text` and `picture` returned.
        time: Seconds since the epoch.
        restarts: Tell viewers to forget what they have seen of this step and later ones.
    """
    messages = _library("proto.event_pb2")
    events = [messages.Event(wall_time=time, file_version=VERSION)]
    if restarts:
        start = messages.SessionLog(status=messages.SessionLog.START)
        events.append(messages.Event(wall_time=time, step=step, session_log=start))
    summary = _library("proto.summary_pb2").Summary(value=values)
    events.append(messages.Event(wall_time=time, step=step, summary=summary))
    return b"".join(_framed(event.SerializeToString()) for event in events)


def scalar(tag: str, value: float | int) -> Any:
    """A number, which is rounded to single precision.

    Args:
        tag: Its name.
        value: The number.
    """
    return _value(tag=tag, simple_value=value)


def text(tag: str, content: Any) -> Any:
    """A text in Markdown.

    Args:
        tag: Its name.
        content: The text; anything else is shown as JSON.
    """
    shown = content if isinstance(content, str) else f"```\n{json.dumps(content, indent=2)}\n```"
    (found,) = _library("summary").text(tag, shown).value
    found.tag = tag  # the library replaces some characters
    return found


def picture(tag: str, path: Path) -> Any:
    """A picture, or a film in GIF format.

    Args:
        tag: Its name.
        path: The file.
    """
    with Image.open(path) as image:
        width, height = image.size
    content = read_limited(path, MAX_PICTURE_BYTES)
    image = {"width": width, "height": height, "colorspace": RGBA, "encoded_image_string": content}
    return _value(tag=tag, image=image)


def _value(**fields: Any) -> Any:
    return _library("proto.summary_pb2").Summary.Value(**fields)


def _framed(data: bytes) -> bytes:
    masked = _library("record_writer").masked_crc32c
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def _library(module: str) -> Any:
    return importlib.import_module(f"tensorboardX.{module}")
