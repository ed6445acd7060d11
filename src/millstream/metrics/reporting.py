"""The reporters of a running job: each in a thread, so that none delays the job or another one."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.contracts.metrics import MetricReporter, MetricSample
    from millstream.metrics.registry import Measurement
    from millstream.metrics.settings import ReporterSettings


_LOG: Final = logging.getLogger("millstream")
#: Seconds that the end of a job waits for a last report.
_PATIENCE: Final = 5.0
#: Seconds for which collected values are given out again.
_FRESH: Final = 1.0
#: Seconds until a reporter that could not be opened is tried again, at most.
_RETRY: Final = 10.0


class Collected:
    """Collects the metrics of a job, at most once a second for all who ask.

    Args:
        collect: returns them.
    """

    def __init__(self, collect: Callable[[], list[Measurement]]) -> None:
        self._collect = collect
        self._lock = threading.Lock()
        self._due = 0.0
        self._found: list[Measurement] = []

    def get(self) -> list[Measurement]:
        """Return metrics that are at most a second old."""
        with self._lock:
            now = time.monotonic()
            if now >= self._due:
                self._found = self._collect()
                self._due = time.monotonic() + _FRESH
            return self._found

    def expire(self) -> None:
        """Have the next call collect again."""
        with self._lock:
            self._due = 0.0


class _Reporting:
    """One reporter and its thread.

    A failure is logged once, until a call has succeeded again.
    """

    def __init__(self, job: str, settings: ReporterSettings, collected: Collected) -> None:
        self._job, self._settings, self._collected = job, settings, collected
        self._ending = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(
            target=self._run, name=f"millstream-metrics-{settings.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def end(self) -> None:
        """Have it report once more and end; does not wait."""
        self._ending.set()

    def join(self, deadline: float) -> None:
        """Wait for its end; after the deadline, of ``time.monotonic``, it is left alone."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            _LOG.warning(
                "metric reporter '%s' of job %r did not end within %.0f s: its last report may be"
                " lost",
                self._settings.name,
                self._job,
                _PATIENCE,
            )

    def _samples(self) -> Sequence[MetricSample]:
        return self._settings.samples(self._collected.get())

    def _run(self) -> None:
        reporter = self._opened()
        if reporter is None:
            return
        interval = self._settings.interval if reporter.is_scheduled else None
        while not self._ending.wait(interval):
            self._try("report", lambda: reporter.report(self._samples()))
        if interval is not None:
            self._try("report", lambda: reporter.report(self._samples()))
        self._try("close", reporter.close)

    def _opened(self) -> MetricReporter | None:
        """Open the reporter, as soon as that is possible; None: the job has ended before."""
        while True:
            made: list[MetricReporter] = []

            def open_new(made: list[MetricReporter] = made) -> None:
                reporter = self._settings.make()
                reporter.serve(self._samples)
                reporter.open(self._settings.properties)
                made.append(reporter)

            if self._try("open", open_new):
                return made[0]
            if self._ending.wait(min(_RETRY, self._settings.interval)):
                return None

    def _try(self, what: str, call: Callable[[], None]) -> bool:
        """Call the reporter; whether it has not failed."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a reporter must not end the job
            if not self._is_failing:
                _LOG.warning(
                    "metric reporter '%s' of job %r cannot %s: %s: %s. The job continues, and the"
                    " reporter is tried again",
                    self._settings.name,
                    self._job,
                    what,
                    type(error).__name__,
                    error,
                )
            _LOG.debug("metric reporter '%s'", self._settings.name, exc_info=True)
            self._is_failing = True
            return False
        if self._is_failing:
            _LOG.info("metric reporter '%s' of job %r works again", self._settings.name, self._job)
        self._is_failing = False
        return True


class MetricReporting:
    """All reporters of a job.

    Args:
        job: its name.
        settings: of the reporters.
        collect: returns the metrics as they are now, from any thread.
    """

    def __init__(
        self,
        job: str,
        settings: Sequence[ReporterSettings],
        collect: Callable[[], list[Measurement]],
    ) -> None:
        self._collected = Collected(collect)
        self._all = [_Reporting(job, each, self._collected) for each in settings]

    def start(self) -> None:
        """Start their threads."""
        for each in self._all:
            each.start()

    def close(self) -> None:
        """Have all report once more and end; waits for at most a few seconds."""
        self._collected.expire()
        for each in self._all:
            each.end()
        deadline = time.monotonic() + _PATIENCE
        for each in self._all:
            each.join(deadline)
