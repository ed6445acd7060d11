"""Supervision: a process that starts the driver again when it dies, and the driver's view of it.

The supervisor imports little, so that it is small and has no reason to die itself.  It restarts a
driver that was killed by a signal, or that reports that its engine has ended; a driver that ends by
itself has decided so, and its exit code is that of the supervisor.

The driver holds the reading end of a pipe whose writing end only the supervisor has.  When that
dies, the driver reads the end of the pipe and kills itself: a new supervisor finds no orphan.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.errors import EngineError, FencedError, JobError
from millstream.execution.restart import causes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from millstream.execution.restart import RestartStrategy


_LOG: Final = logging.getLogger("millstream")
#: JSON: a ``Supervision``.  The driver removes it, because it starts processes of its own.
VARIABLE: Final = "MILLSTREAM_SUPERVISION"
#: Exit code of a driver that another one should follow: EX_TEMPFAIL of ``sysexits.h``.
STARTS_AGAIN: Final = 75
_FAILED: Final = 1
#: What a shell returns for a process that a signal has killed: this and the number.
_KILLED: Final = 128
#: Ending the supervisor means ending the driver.
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON: Final = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)
#: Seconds that a driver without supervisor has for ending by SIGTERM, before SIGKILL.
_GRACE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Supervision:
    """What the driver knows of its supervisor."""

    #: The descriptor of the pipe that the supervisor holds open.
    pipe: int
    #: How often the driver was started again.
    restarts: int = 0
    #: Milliseconds since 1970 at which the driver before this one ended; 0: there was none.
    failed_at: int = 0


_current: Supervision | None = None


def supervision() -> Supervision | None:
    """Return what this process knows of its supervisor; None: it has none."""
    return _current


def accept_supervision() -> bool:
    """Take the supervision that the environment describes, if it does.

    From then on this process ends soon after its supervisor.

    Returns:
        Whether this process has a supervisor.
    """
    global _current  # noqa: PLW0603 - of the process, as its environment is
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return False
    _current = Supervision(**json.loads(text))
    watch = partial(_end_with_supervisor, _current.pipe)
    threading.Thread(target=watch, name="millstream-supervisor", daemon=True).start()
    return True


def _end_with_supervisor(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.write(2, b"millstream: the supervisor has gone, so the driver ends\n")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


def has_lost_engine(error: BaseException) -> bool:
    """Return whether a job has failed because its engine has ended: another driver can run it."""
    return any(isinstance(each, EngineError) and each.has_ended for each in causes_of(error))


def exit_code_of(error: BaseException, *, is_standby: bool = False) -> int:
    """Return the exit code of a driver that ends with an error.

    Args:
        error: with which it ends.
        is_standby: whether a driver that has lost its job should wait for it again.
    """
    starts_again = has_lost_engine(error) or (
        is_standby and any(isinstance(each, FencedError) for each in causes_of(error))
    )
    return STARTS_AGAIN if starts_again and _current is not None else _FAILED


class Supervisor:
    """Runs a driver until it ends by itself, or the restart strategy gives up.

    Contract:
      1. ``run`` is called once, from the main thread.  (caller)
      2. There is at most one driver at a time: the process group of a dead one is killed before
         the next one starts.  (here)

    Args:
        command: the command line of the driver.
        strategy: asked after each death.
    """

    def __init__(self, command: Sequence[str], strategy: RestartStrategy) -> None:
        self._command = list(command)
        self._strategy = strategy
        #: Invariant: not reaped while it is set, so signals reach nobody else.
        self._driver: int | None = None
        #: The signal that is to end driver and supervisor.
        self._ending: int | None = None
        self._restarts = 0
        self._failed_at = 0

    def run(self) -> int:
        """Run the driver, as often as it dies.

        Returns:
            The exit code of the driver.  If a signal has ended both, this process ends by it.
        """
        with self._signals() as woken:
            code = self._run_driver()
            while self._is_restarted(code):
                delay = self._next_delay(code)
                if delay is None:
                    break
                self._wait(woken, delay)
                if self._is_ending():
                    break
                self._restarts += 1
                code = self._run_driver()
        return self._end(code)

    def _is_restarted(self, code: int) -> bool:
        return not self._is_ending() and (code < 0 or code == STARTS_AGAIN)

    def _is_ending(self) -> bool:
        return self._ending is not None

    def _wait(self, woken: int, seconds: float) -> None:
        """Wait, but not once the driver is to end."""
        deadline = time.monotonic() + seconds
        while not self._is_ending():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([woken], [], [], left)[0]:
                return
            os.read(woken, 64)

    def _run_driver(self) -> int:
        """Start a driver and wait for its end; returns its exit code, as ``subprocess`` does."""
        reading, writing = os.pipe()
        try:
            report = Supervision(reading, self._restarts, self._failed_at)
            process = subprocess.Popen(  # noqa: S603 - the command that the user has typed
                self._command,
                env={**os.environ, VARIABLE: json.dumps(asdict(report))},
                pass_fds=[reading],
                process_group=0,
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        self._driver = process.pid
        if self._ending is not None:  # it came while the driver was being started
            os.kill(process.pid, self._ending)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self._driver = None
        # Before it is reaped: until then no other process group can have its number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(writing)
        return process.wait()

    def _next_delay(self, code: int) -> float | None:
        how = (
            f"was killed by {_signal_name(-code)}"
            if code < 0
            else "has lost its engine, or its job"
        )
        self._failed_at = time.time_ns() // 1_000_000
        delay = self._strategy.next_delay(time.monotonic(), JobError(f"the driver {how}"))
        if delay is None:
            _LOG.error(
                "the driver %s; the restart strategy allows no restart after %d",
                how,
                self._restarts,
            )
        else:
            _LOG.warning(
                "the driver %s; starting it again in %.1f s (restart %d)",
                *(how, delay, self._restarts + 1),
            )
        return delay

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Pass signals on to the driver; gives a descriptor that is readable after one."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        handled = [each for each in _PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN]
        before = {each: signal.signal(each, self._pass_on) for each in handled}
        wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reading)
            os.close(writing)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number in _ENDING:
            self._ending = number
        if self._driver is not None:
            os.kill(self._driver, number)

    def _end(self, code: int) -> int:
        """Return the exit code, or end by the signal that has ended the driver."""
        ending = self._ending
        if ending is None or (code >= 0 and code != STARTS_AGAIN):
            if code < 0:
                return _KILLED - code
            return _FAILED if code == STARTS_AGAIN else code
        if ending == signal.SIGINT:
            raise KeyboardInterrupt
        sys.stderr.flush()
        signal.signal(ending, signal.SIG_DFL)
        os.kill(os.getpid(), ending)
        return _KILLED + ending  # unless the signal is blocked


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
