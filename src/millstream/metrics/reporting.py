"""The reporters of a running job: each in a thread, so that none delays the job or another one."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.contracts.metrics import Reporter, Span
    from millstream.metrics.registry import Measurement
    from millstream.metrics.settings import ReporterSettings


_LOG: Final = logging.getLogger("millstream")
#: Seconds that the end of a job waits for a last report.
_PATIENCE: Final = 5.0
#: Seconds for which collected values are given out again.
_FRESH: Final = 1.0
#: Spans that a reporter may have left.
_MOST_SPANS: Final = 1000
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

    def __init__(
        self,
        job: str,
        settings: ReporterSettings,
        samples: Callable[[], Sequence[Any]],
        reported: Callable[[Sequence[Any]], None] = lambda _: None,
    ) -> None:
        self._job, self._settings = job, settings
        self._samples, self._reported = samples, reported
        self._ending = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(
            target=self._run, name=f"millstream-{settings.what}s-{settings.name}", daemon=True
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
                "%s reporter '%s' of job %r did not end within %.0f s: its last report may be lost",
                self._settings.what,
                self._settings.name,
                self._job,
                _PATIENCE,
            )

    def _run(self) -> None:
        reporter = self._opened()
        if reporter is None:
            return
        interval = self._settings.interval if reporter.is_scheduled else None

        def report() -> None:
            samples = self._samples()
            reporter.report(samples)
            self._reported(samples)

        while not self._ending.wait(interval):
            self._try("report", report)
        if interval is not None:
            self._try("report", report)
        self._try("close", reporter.close)

    def _opened(self) -> Reporter[Any] | None:
        """Open the reporter, as soon as that is possible; None: the job has ended before."""
        while True:
            made: list[Reporter[Any]] = []

            def open_new(made: list[Reporter[Any]] = made) -> None:
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
                    "%s reporter '%s' of job %r cannot %s: %s: %s. The job continues, and the"
                    " reporter is tried again",
                    self._settings.what,
                    self._settings.name,
                    self._job,
                    what,
                    type(error).__name__,
                    error,
                )
            _LOG.debug("%s reporter '%s'", self._settings.what, self._settings.name, exc_info=True)
            self._is_failing = True
            return False
        if self._is_failing:
            what, name = self._settings.what, self._settings.name
            _LOG.info("%s reporter '%s' of job %r works again", what, name, self._job)
        self._is_failing = False
        return True


class _Spans:
    """Spans that a reporter has not sent; the oldest are dropped if they are many."""

    def __init__(self) -> None:
        self._left: deque[Span] = deque(maxlen=_MOST_SPANS)

    def add(self, span: Span) -> None:
        """Add one; from any thread."""
        self._left.append(span)

    def left(self) -> list[Span]:
        """Return those that are left."""
        return list(self._left)

    def sent(self, spans: Sequence[Span]) -> None:
        """Drop what was sent; further ones may have come, and dropped some of them."""
        for each in spans:
            if self._left and self._left[0] is each:
                self._left.popleft()


class MetricReporting:
    """All reporters of a job.

    Args:
        job: its name.
        settings: of the reporters of metrics and of spans.
        collect: returns the metrics as they are now, from any thread.
    """

    def __init__(
        self,
        job: str,
        settings: Sequence[ReporterSettings],
        collect: Callable[[], list[Measurement]],
    ) -> None:
        self._collected = Collected(collect)
        self._spans: list[_Spans] = []
        self._all = [self._reporting(job, each) for each in settings]

    def _reporting(self, job: str, settings: ReporterSettings) -> _Reporting:
        if settings.what == "metric":
            return _Reporting(job, settings, lambda: settings.samples(self._collected.get()))
        spans = _Spans()
        self._spans.append(spans)
        return _Reporting(job, settings, spans.left, spans.sent)

    def add_span(self, span: Span) -> None:
        """Have a span reported; from any thread."""
        for each in self._spans:
            each.add(span)

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
