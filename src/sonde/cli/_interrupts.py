"""Ctrl-C: one sentence and exit code 130, whatever the process is doing.

The first Ctrl-C raises `KeyboardInterrupt`, as always in Python. That alone is not enough, for these reasons:

- Native modules may crash if their import raises: during an import the process ends at once.
- Callbacks of the garbage collector cannot raise, and swallow the exception: it is raised again a moment later.
- Compiled code does not return to Python for a while, and code of others may swallow anything: a thread listens too, and ends
  the process at the second Ctrl-C, or if the exception does not arrive where it is handled within a few seconds.
- Native threads that are still at work may crash the end of the interpreter: a process that was interrupted ends without it.
- The end of the interpreter brings back the system's handler, which kills: a command that is done ignores what comes so late.

Files appear whole or not at all, so the process may end at any time.
"""

import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import NoReturn

EXIT_CODE = 130  # 128 + SIGINT, as shells have it
PIPE_CLOSED = 141  # 128 + SIGPIPE
GRACE = 5.0
"""Seconds that an interrupted command has to clean up."""
SENTENCE = "Stopped. All files that were finished before are safe."


class _State:
    """What happened so far in this process."""

    def __init__(self):
        self.received = 0
        self.repeating = False  # the next call of the handler repeats an earlier one
        self.repeated = 0  # repetitions that the thread has not seen yet
        self.sentence: Callable[[], str] = lambda: SENTENCE
        self.said = False


_state = _State()
_arrived = threading.Event()


def listen() -> None:
    """Handle Ctrl-C in this process from now on; to be called in the main thread."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as for a command that a shell runs in the background
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)  # written to at once, even while compiled code runs
    signal.signal(signal.SIGINT, _on_interrupt)
    sys.unraisablehook = _on_unraisable
    # exit handlers run last in, first out: this one after those of everyone else
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(read_end,), name="sonde-interrupts", daemon=True).start()


def begin() -> None:
    """Begin a command: nothing was said about it yet."""
    _state.said, _state.sentence = False, lambda: SENTENCE


def received() -> bool:
    """Whether Ctrl-C was pressed."""
    return _state.received > 0


@contextlib.contextmanager
def saying(sentence: Callable[[], str]) -> Generator[None]:
    """Choose what is said if Ctrl-C is pressed in this context.

    Args:
        sentence: Says what is safe, and how to continue.
    """
    before, _state.sentence = _state.sentence, sentence
    try:
        yield
    except KeyboardInterrupt:
        stopped()
        raise
    finally:
        _state.sentence = before


def stopped() -> None:
    """Say, once, that the command was stopped; what is left to do may take its time."""
    _arrived.set()
    if not _state.said:
        _state.said = True
        with contextlib.suppress(OSError, ValueError):
            print(_state.sentence(), file=sys.stderr, flush=True)


def end(code: int) -> NoReturn:
    """End the process.

    Args:
        code: Its exit code; 130 in any case if it was interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        code = _flushed(stream, code)
    if received():
        _leave()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: _leave())  # while threads and exit handlers of others end
    raise SystemExit(code)


def _flushed(stream, code: int) -> int:
    """Write out what is buffered; the exit code if that fails."""
    try:
        stream.flush()
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):  # or the interpreter would try again at its end, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        with contextlib.suppress(OSError, ValueError):
            print(f"sonde: error: the output cannot be written ({error})", file=sys.stderr)
        return 2
    return code


def _on_interrupt(_: int, frame: FrameType | None) -> None:
    if _state.repeating:
        _state.repeating = False
    else:
        _state.received += 1
    if _state.received > 1 or _is_importing(frame):
        _leave()
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _on_unraisable(event: "sys.UnraisableHookArgs") -> None:
    """Where a callback has swallowed the exception, raise it again outside of the callback."""
    if not issubclass(event.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(event)
        return
    _state.repeating, _state.repeated = True, _state.repeated + 1
    threading.Timer(0.05, _thread.interrupt_main).start()


def _watch(read_end: int) -> None:
    """Wait for the first Ctrl-C, then for a second one."""
    _wait(read_end)
    threading.Thread(target=_leave_after_grace, daemon=True).start()
    _wait(read_end)
    _leave()


def _wait(read_end: int) -> None:
    while True:
        if os.read(read_end, 1) == bytes([signal.SIGINT]):
            if _state.repeated == 0:
                return
            _state.repeated -= 1


def _leave_after_grace() -> None:
    if not _arrived.wait(GRACE):
        _leave()


def _leave() -> NoReturn:
    stopped()
    if cleanup := getattr(sys.modules.get("multiprocessing.util"), "_exit_function", None):
        # what it does at the end of the interpreter: end its processes, and remove their semaphores
        thread = threading.Thread(target=cleanup, daemon=True)
        thread.start()
        thread.join(1.0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(EXIT_CODE)
