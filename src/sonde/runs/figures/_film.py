"""Films of evaluations: one picture of the true system per step, with the step and the return so far written above it.

A world written in JAX is drawn afterwards from the states of the episode; a host world is drawn while it runs.
"""

import contextlib
import functools
import importlib.util
import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sonde._internal.errors import SondeError
from sonde._internal.files import errors_name, open_new
from sonde._internal.user_code import task_label
from sonde.evaluation import Evaluation
from sonde.worlds import HostWorld, JaxWorld, Simulators, World

FRAMES_PER_SECOND = 20.0  # for worlds whose steps have no duration
MAX_FRAMES_PER_SECOND = 50.0  # what players can show; above it, steps are left out


def check_film(out: Path) -> None:
    """Reject, before any work is done, a film that cannot be written.

    Args:
        out: Path of the film.
    """
    suffix = out.suffix.lower()
    if suffix not in WRITERS:
        raise SondeError(f"a film cannot be written to {out.name!r}: end its name in one of {', '.join(WRITERS)}")
    if suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise SondeError(f"{out.name} needs imageio-ffmpeg: pip install '.[render]' in Sonde's folder, or choose a .gif")
    if out.is_dir():
        raise SondeError(f"{out} is a folder: name a file for the film")
    above = next(parent for parent in out.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise SondeError(f"a film cannot be written to {out}: {above} is not a folder you may write to")


def _render_method(world: World) -> Any:
    """The method that draws a world, or its simulators."""
    if not isinstance(world, HostWorld):
        return getattr(type(world), "render", None)
    copies = world.open(1)
    copies.close()
    return type(copies).render


class Film:
    """Films the first seed of one evaluation: pass it as `on_step` to the evaluation, then call `save`."""

    def __init__(self, out: Path, world: World):
        """Reject what cannot be filmed.

        Args:
            out: Path of the film, .mp4 or .gif.
            world: The world that is evaluated.
        """
        check_film(out)
        if _render_method(world) in (None, JaxWorld.render, Simulators.render):
            raise SondeError(f"{type(world).__name__} cannot be filmed: it has no render() method; define one")
        self.out, self._world = out, world
        self._per_second = FRAMES_PER_SECOND if world.seconds_per_step is None else 1 / world.seconds_per_step
        self._every = int(np.ceil(self._per_second / MAX_FRAMES_PER_SECOND))
        self._pictures: dict[int, np.ndarray] = {}

    def __call__(self, taken: int, copies: Simulators) -> None:
        """Take a picture of a host world after a step (see `sonde.control.OnStep`).

        Args:
            taken: Number of steps taken so far.
            copies: The simulators, of which the first is filmed.
        """
        if taken % self._every == 0:
            self._pictures[taken] = _checked(copies.render())

    def save(self, task: str, evaluation: Evaluation) -> None:
        """Write the film: the first episode of the first seed.

        Args:
            task: Name of the task, for the caption.
            evaluation: The evaluation that was filmed.
        """
        trajectory = evaluation.trajectory
        steps = trajectory.states.shape[1]
        ended = trajectory.ended
        if ended is not None and ended[0].any():
            steps = 1 + int(np.argmax(ended[0]))
        achieved = np.concatenate([[0.0], np.cumsum(evaluation.rewards[0])])

        def frames() -> Iterator[np.ndarray]:
            for step, picture in self._shots(evaluation, steps):
                yield captioned(picture, task_label(task), f"step {step} of {steps}", f"return {achieved[step]:.1f}")

        write_film(frames(), self.out, self._per_second / self._every)

    def _shots(self, evaluation: Evaluation, steps: int) -> Iterator[tuple[int, np.ndarray]]:
        """Numbers of steps taken, and the picture after each."""
        if isinstance(self._world, JaxWorld):
            trajectory = evaluation.trajectory
            for step, x in enumerate([*trajectory.states[0, :steps], trajectory.next_states[0, steps - 1]]):
                if step % self._every == 0 or step == steps:
                    yield step, _checked(self._world.render(x))
        else:
            yield from ((step, picture) for step, picture in self._pictures.items() if step <= steps)


def _checked(picture: np.ndarray) -> np.ndarray:
    """A copy of the picture, as a renderer may draw the next one into the same memory."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape:
        found = f"{picture.dtype} {list(picture.shape)}"
        raise SondeError(f"render() must return an image as uint8 [height, width, 3], got {found}")
    return np.array(picture)


def captioned(picture: np.ndarray, title: str, left: str, right: str) -> np.ndarray:
    """Add a caption above a picture.

    Args:
        picture: Image [height, width, 3].
        title: First line, in bold; cut if it is too long.
        left: Left end of the second line.
        right: Right end of the second line.

    Returns:
        A larger image, of even height and width.
    """
    height, width = picture.shape[:2]
    size = min(max(width // 24, 9), 22)
    margin, line = size // 2, round(1.45 * size)
    band = 2 * line + margin
    # H.264 halves the resolution of colours, so both sides must be even
    image = Image.new("RGB", (width + width % 2, height + band + (height + band) % 2), "#FFFFFF")
    image.paste(Image.fromarray(picture), (0, band))
    draw, bold, plain = ImageDraw.Draw(image), _font("DejaVuSans-Bold.ttf", size), _font("DejaVuSans.ttf", size)
    if draw.textlength(title, bold) > width - 2 * margin:
        while title and draw.textlength(f"{title}…", bold) > width - 2 * margin:
            title = title[:-1]
        title += "…"
    draw.text((margin, margin), title, "#262626", bold)
    draw.text((margin, margin + line), left, "#262626", plain)
    draw.text((width - margin, margin + line), right, "#262626", plain, anchor="ra")
    draw.line([(0, band - 1), (width, band - 1)], "#D9D9D9")
    return np.asarray(image)


@functools.cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font that comes with matplotlib; all its digits have the same width, so numbers do not jump from frame to frame."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def write_film(frames: Iterable[np.ndarray], out: Path, per_second: float) -> None:
    """Write a film, whole or not at all.

    Args:
        frames: Images, uint8 [height, width, 3], all of the same even size.
        out: Path of the film, .mp4 (H.264) or .gif.
        per_second: Frames per second.
    """
    check_film(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.stem}.part{out.suffix.lower()}")
    try:
        with errors_name(out):
            open_new(temporary).close()  # the writers replace what is in it, and it is not a link to a file elsewhere
            WRITERS[out.suffix.lower()](frames, temporary, per_second)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _write_mp4(frames: Iterable[np.ndarray], out: Path, per_second: float) -> None:
    from imageio_ffmpeg import get_ffmpeg_exe

    frames = iter(frames)
    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{per_second:.6f}", "-i", "-"]
    coding = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart"]
    command = [get_ffmpeg_exe(), "-y", "-loglevel", "error", *source, *coding, str(out.absolute())]
    # not by imageio's own writer, which forks this process: that is not safe with JAX's threads
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log) as encoder:
        assert encoder.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # the encoder failed; its log says why
                for frame in itertools.chain([first], frames):
                    encoder.stdin.write(frame.tobytes())
        except BaseException:
            encoder.kill()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                encoder.stdin.close()
        if encoder.wait() != 0:
            log.seek(0)
            raise SondeError(f"ffmpeg could not write the film: {log.readline().decode(errors='replace').strip()}")


def _write_gif(frames: Iterable[np.ndarray], out: Path, per_second: float) -> None:
    # each frame has its own palette, small enough to keep the file small; a GIF counts time in hundredths of a second
    images = (Image.fromarray(frame).quantize(128, dither=Image.Dither.NONE) for frame in frames)
    milliseconds = 10 * max(round(100 / per_second), 2)
    with open(out, "wb") as file:
        next(images).save(file, format="GIF", save_all=True, append_images=images, duration=milliseconds, loop=0)


WRITERS: dict[str, Callable[[Iterable[np.ndarray], Path, float], None]] = {".mp4": _write_mp4, ".gif": _write_gif}
