"""Films of evaluations: pictures of the true system, one per step, with what has been achieved so far written above them.

A world written in JAX is drawn afterwards, from the states of the episode; one that is stepped outside of JAX while it runs.
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
from sonde._internal.user_code import task_label
from sonde.evaluation import Evaluation
from sonde.worlds import HostWorld, JaxWorld, Simulators, World

FRAMES_PER_SECOND = 20.0  # where a step has no time of its own
FASTEST = 50.0  # what players can show; above it, steps are left out


def check_film(out: Path) -> None:
    """Refuse, before any work is done, a film that could not be written."""
    suffix = out.suffix.lower()
    if suffix not in WRITERS:
        raise SondeError(f"a film cannot be written to {out.name!r}: end its name in one of {', '.join(WRITERS)}")
    if suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise SondeError(f"{out.name} needs imageio-ffmpeg: pip install '.[render]' in Sonde's folder, or name a .gif instead")
    if out.is_dir():
        raise SondeError(f"{out} is a folder: name a file for the film")
    above = next(parent for parent in out.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise SondeError(f"a film cannot be written to {out}: {above} is not a folder that you may write to")


def _pictures_of(world: World) -> Any:
    """The method that draws a world, or its simulators."""
    if not isinstance(world, HostWorld):
        return getattr(type(world), "picture", None)
    copies = world.open(1)
    copies.close()
    return type(copies).picture


class Film:
    """Films the first run of one evaluation: give it as `on_step` to the evaluation, then `save` that."""

    def __init__(self, out: Path, world: World):
        """`runs` are evaluated in lockstep. What cannot be filmed is refused here."""
        check_film(out)
        if _pictures_of(world) in (None, JaxWorld.picture, Simulators.picture):
            raise SondeError(f"{type(world).__name__} cannot be filmed: it has no picture; write its picture()")
        self.out, self._world = out, world
        self._per_second = FRAMES_PER_SECOND if world.seconds_per_step is None else 1 / world.seconds_per_step
        self._every = int(np.ceil(self._per_second / FASTEST))
        self._pictures: dict[int, np.ndarray] = {}

    def __call__(self, taken: int, copies: Simulators) -> None:
        """Take a picture of a host world after a step (see `sonde.control._rollout.OnStep`)."""
        if taken % self._every == 0:
            self._pictures[taken] = _checked(copies.picture())

    def save(self, task: str, evaluation: Evaluation) -> None:
        """Write the film of the evaluation, as far as the first episode of its first run goes."""
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
        """How many steps were taken, and the picture then."""
        if isinstance(self._world, JaxWorld):
            trajectory = evaluation.trajectory
            for step, x in enumerate([*trajectory.states[0, :steps], trajectory.next_states[0, steps - 1]]):
                if step % self._every == 0 or step == steps:
                    yield step, _checked(self._world.picture(x))
        else:
            yield from ((step, picture) for step, picture in self._pictures.items() if step <= steps)


def _checked(picture: np.ndarray) -> np.ndarray:
    """The picture as its own copy: a renderer may draw the next one into the same memory."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape:
        found = f"{picture.dtype} {list(picture.shape)}"
        raise SondeError(f"picture() must give an image as uint8 [height, width, 3], got {found}")
    return np.array(picture)


def captioned(picture: np.ndarray, title: str, left: str, right: str) -> np.ndarray:
    """The picture below a band with a title, and a line of words at either edge; height and width are even."""
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
    """One of those that come with matplotlib; its digits are equally wide, so that numbers do not jump."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def write_film(frames: Iterable[np.ndarray], out: Path, per_second: float) -> None:
    """Write frames, uint8 [height, width, 3] of one even size, to a .mp4 (H.264) or .gif that appears whole or not at all."""
    check_film(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.stem}.part{out.suffix.lower()}")
    try:
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
    # started from here: imageio's own writer forks this process, which JAX's threads do not survive for sure
    with tempfile.TemporaryFile() as words, subprocess.Popen(command, stdin=subprocess.PIPE, stderr=words) as encoder:
        assert encoder.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it gave up; it says why
                for frame in itertools.chain([first], frames):
                    encoder.stdin.write(frame.tobytes())
        except BaseException:
            encoder.kill()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                encoder.stdin.close()
        if encoder.wait() != 0:
            words.seek(0)
            raise SondeError(f"ffmpeg could not write the film: {words.readline().decode(errors='replace').strip()}")


def _write_gif(frames: Iterable[np.ndarray], out: Path, per_second: float) -> None:
    # colours of its own for each frame, so few that the file stays small; a GIF counts time in hundredths of a second
    images = (Image.fromarray(frame).quantize(128, dither=Image.Dither.NONE) for frame in frames)
    milliseconds = 10 * max(round(100 / per_second), 2)
    with open(out, "wb") as file:
        next(images).save(file, format="GIF", save_all=True, append_images=images, duration=milliseconds, loop=0)


WRITERS: dict[str, Callable[[Iterable[np.ndarray], Path, float], None]] = {".mp4": _write_mp4, ".gif": _write_gif}
