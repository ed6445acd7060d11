"""The driver: runs a job on any engine, from submission over restarts to its end.

It checks the job before anything is written, then runs it in a thread: each run fences older ones,
recovers and has the engine run its tasks; the restart strategy decides what follows a failure.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream import crash_points, errors, logs
from millstream.checkpoint.commit import PendingCommits
from millstream.checkpoint.job_directories import check_directories
from millstream.checkpoint.lease import LEFT
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.savepoint import SavepointFormatType
from millstream.configuration import options
from millstream.errors import (
    CheckpointExpiredError,
    DirectoryError,
    EngineError,
    FencedError,
    JobError,
    MillstreamError,
    ProgramError,
    SinkError,
    SourceError,
    UserFunctionError,
)
from millstream.execution.announcements import (
    AnnouncedJob,
    announce,
    announce_address,
    withdraw,
)
from millstream.execution.autoscaling import Autoscaling
from millstream.execution.job import Job, warn_of_missing_uids
from millstream.execution.job_client import JobExecutionResult, JobHandle, JobStatus
from millstream.execution.job_view import DriverView
from millstream.execution.monitor import JobMonitor
from millstream.execution.restart import RestartStrategy, causes_of, restart_strategy
from millstream.execution.run import Run, StopRequest
from millstream.execution.savepoints import RequestWatch, SavepointRequest, require_savepoints
from millstream.execution.standby import DISCARDED, STOPPED, lease_of, wait_as_standby
from millstream.execution.supervision import has_lost_engine, supervision
from millstream.graph.explain import guarantee_words, sink_guarantees
from millstream.graph.job_files import job_files_of
from millstream.graph.validation import validate_connectors, warn_of_missing_watermarks
from millstream.metrics.job_history import JobHistory
from millstream.metrics.progress import (
    SilentProgressReporter,
    create_progress_reporter,
    is_reported,
)
from millstream.metrics.registry import MetricRegistry, TaskFigures
from millstream.metrics.reporting import MetricReporting
from millstream.metrics.settings import reporters_of
from millstream.rest.settings import is_wanted
from millstream.state.query import StateQueryResult, query_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from millstream.checkpoint.coordinator import Coordinator
    from millstream.checkpoint.lease import Lease
    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.execution.engine import Engine
    from millstream.execution.monitor import CompletedCheckpoint, JobStart
    from millstream.graph.model import JobGraph
    from millstream.metrics.progress import OperatorTime
    from millstream.metrics.registry import Measurement
    from millstream.metrics.settings import ReporterSettings
    from millstream.rest.running import JobServer
    from millstream.runtime.task_metrics import RunningMetrics


_LOG: Final = logging.getLogger("millstream")
#: Seconds between two tries to stop a job that is being scaled.
_SCALING: Final = 0.05
#: Seconds between two reports of progress within a checkpoint.
_TICK: Final = 2.0
#: Errors whose message names what is wrong and where.
_PLAIN_ERRORS: Final = (
    *(DirectoryError, EngineError, UserFunctionError, ProgramError, SourceError, SinkError),
)


def check_job(graph: JobGraph) -> None:
    """Check a job as far as it can be done before an engine starts, which may take seconds.

    Raises:
        SourceError, SinkError, ConfigurationError, DirectoryError: the job cannot run as it is;
            nothing was written.
    """
    logs.configure_driver(graph.configuration)
    validate_connectors(graph)
    mode = graph.configuration.get(options.PROGRESS)
    if is_reported(mode, shows_records=graph.shows_records):
        for each in sink_guarantees(graph):
            _LOG.info("%s: %s", graph.nodes[each.node].name, guarantee_words(each))
    if crash_points.ENVIRONMENT_VARIABLE in os.environ:
        # Workers inherit it from what starts them, so it is set before that is.
        os.environ[crash_points.GROUP_VARIABLE] = str(os.getpgrp())
    warn_of_missing_watermarks(graph)
    warn_of_missing_uids(graph)
    check_directories(graph.configuration, graph.files.store_options)
    _require_checkpoints_for_other_drivers(graph)
    job_files_of(graph.configuration)


def _require_checkpoints_for_other_drivers(graph: JobGraph) -> None:
    """Refuse a job that would begin from scratch, and repeat its output, in the next driver."""
    if graph.configuration.get(options.CHECKPOINTS_DIRECTORY):
        return
    is_standby = graph.configuration.get(options.STANDBY)
    if supervision() is None and not is_standby:
        return
    message = (
        f"job {graph.job_name!r} keeps its checkpoints in a temporary directory, which another"
        f" driver cannot find: with {'--standby' if is_standby else '--supervise'}, set"
        f" {options.CHECKPOINTS_DIRECTORY.key}"
    )
    raise errors.ConfigurationError(message)


def start_job(graph: JobGraph, engine: Engine) -> JobDriver:
    """Start a job that ``check_job`` has passed.

    Returns:
        A handle; the job runs in a thread of this process.

    Raises:
        CheckpointError, UnpicklableFunctionError, ConfigurationError: the job cannot run as it is;
            nothing was written.
        JobError: this driver was a standby, and the job has ended.
    """
    with contextlib.ExitStack() as failing:
        failing.callback(engine.close)
        reporters = reporters_of(graph.configuration)
        if graph.configuration.get(options.STANDBY) and is_wanted(graph.configuration):
            failing.callback(_rest().serve_standby(graph.configuration).close_unused)
        lease = wait_as_standby(graph)
        if lease is not None:
            failing.callback(lease.end, LEFT)
        driver = JobDriver(Job(graph), engine, reporters, lease)
        failing.pop_all()
    driver.start()
    return driver


def _rest() -> ModuleType:
    """Return ``millstream.rest.running``, which needs packages that are optional.

    Raises:
        ConfigurationError: they are not installed.
    """
    try:
        from millstream.rest import running
    except ImportError as error:
        message = (
            f"the REST API needs the package {error.name}: pip install 'millstream[web]', or"
            f" leave {options.REST_PORT.key} and {options.REST_BIND_PORT.key} out"
        )
        raise errors.ConfigurationError(message) from error
    return running


class JobDriver(JobHandle):
    """Runs a job in a thread of this process."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        reporters: Sequence[ReporterSettings] = (),
        lease: Lease | None = None,
    ) -> None:
        self._job = job
        self._engine = engine
        configuration = job.graph.configuration
        #: None: the job keeps its checkpoints in a temporary directory, where nobody can find them.
        self._lease = lease or (None if job.temporary else lease_of(job.graph))
        mode = configuration.get(options.PROGRESS)
        progress = create_progress_reporter(
            job.graph.job_name, mode, shows_records=job.graph.shows_records
        )
        self._autoscaling = Autoscaling.of(job, engine.most_subtasks)
        self._monitor = JobMonitor(job.graph, job.labels, progress)
        self._history = JobHistory(
            configuration.get(options.WEB_CHECKPOINTS_HISTORY),
            configuration.get(options.WEB_EXCEPTION_HISTORY),
        )
        job.savepoints.on_written = self._history.savepoint_written
        self._rest: JobServer | None = None
        #: What that shows.
        self._view: DriverView | None = None
        self._reporting = MetricReporting(job.graph.job_name, reporters, self._collect_metrics)
        self._metrics = MetricRegistry(job.graph, job.job_id, on_span=self._reporting.add_span)
        supervised = supervision()
        if supervised is not None:
            self._metrics.driver_restarted(supervised.restarts, supervised.failed_at)
        self._run: Run | None = None
        #: Whether that has recovered what was committed before.
        self._is_open = False
        #: Of the last run that has taken the job over.
        self._last: Coordinator | None = None
        #: The generation that was begun last.
        self._generation: int | None = None
        self._status = JobStatus.CREATED
        #: Around the status: who cancels, and the job's own thread, both say where it is.
        self._moving = threading.Lock()
        self._error: BaseException | None = None
        #: How the run has started, until functions have shown their states.
        self._start: JobStart | None = None
        #: What the restart strategy has said of that there is no restart.
        self._final: Exception | None = None
        #: What regions of this run have failed of, and seconds to wait after it.
        self._counted: list[tuple[Exception, float]] = []
        #: Somebody wants the job to stop: it is not scaled any more.
        self._is_leaving = False
        self._cancelled = threading.Event()
        self._stop = StopRequest()
        self._ended = threading.Event()
        self._started = time.monotonic()
        self._seconds = 0.0
        self._thread = threading.Thread(target=self._main, name="millstream-job", daemon=True)

    def start(self) -> None:
        """Begin to run, in a thread.

        Raises:
            ConfigurationError: the REST API cannot be started.
        """
        self._announce()
        self._serve()
        self._thread.start()
        self._reporting.start()
        if self._autoscaling is not None and self._autoscaling.is_automatic:
            threading.Thread(
                target=self._autoscale,
                args=(self._autoscaling,),
                name="millstream-autoscaler",
                daemon=True,
            ).start()
        if not self._job.temporary:
            watch = RequestWatch(
                self._job.storage,
                self._is_owner,
                self.trigger_savepoint,
                lambda directory, drain, kind: self.stop_with_savepoint(
                    directory, drain=drain, format_type=kind
                ),
                self.cancel,
            )
            threading.Thread(
                target=watch.run, args=(self._ended,), name="millstream-requests", daemon=True
            ).start()
        if not isinstance(self._monitor.progress, SilentProgressReporter):
            threading.Thread(target=self._tick, name="millstream-progress", daemon=True).start()

    def _announce(self) -> None:
        job = self._job
        where = "" if job.temporary else job.storage.location
        started = time.time_ns() // 1_000_000
        announce(AnnouncedJob(job.job_id, job.graph.job_name, os.getpid(), started, where))

    def _serve(self) -> None:
        """Start the REST API, if the job is to have one."""
        graph = self._job.graph
        if not is_wanted(graph.configuration):
            return
        serve = _rest().serve
        logs.keep_log(graph.logging)
        view = DriverView(
            self,
            graph,
            self._history,
            self._collect_metrics,
            lambda: self.is_ready,
            self.rescale,
            self._engine.stacks,
        )
        self._view = view
        server: JobServer = serve(view)
        self._rest, settings = server, server.settings
        announce_address(self._job.job_id, server.server.url, settings.token, settings.certificate)

    @property
    def is_ready(self) -> bool:
        """Return whether the job runs and all of its tasks are restored."""
        return self._is_open and self._status is JobStatus.RUNNING and self._engine.all_run

    def _collect_metrics(self) -> list[Measurement]:
        found = {} if self._autoscaling is None else self._autoscaling.measurements()
        figures = TaskFigures()
        if not self._ended.is_set():
            engine = self._engine
            run = self._run
            figures = TaskFigures(
                self._task_counts(),
                engine.task_times(),
                engine.slot_uses(),
                () if run is None else engine.split_figures(run),
                self._job.commit_counts,
            )
        return self._metrics.collect(figures, self.get_pending_commits(), found)

    def _autoscale(self, autoscaling: Autoscaling) -> None:
        """Observe the job, and have it stopped with a checkpoint where it is to be scaled."""
        while not self._ended.wait(autoscaling.interval):
            if self._status is not JobStatus.RUNNING or self._run is None:
                continue
            changes = autoscaling.observe(self._collect_metrics())
            if changes:
                with self._moving:
                    if not self._is_leaving and autoscaling.begin(changes):
                        self._stop.ask(drain=False)

    def rescale(self, bounds: Mapping[str, tuple[int, int]]) -> None:
        """Have the job continue from a checkpoint with another parallelism; returns at once.

        Args:
            bounds: uid of the first operator of a vertex -> its least and most parallelism.

        Raises:
            ProgramError: the parallelism is impossible, or the job is bounded.
            JobError: the job does not run, or is stopped or scaled already.
        """
        name = self._job.graph.job_name
        if self._autoscaling is None:
            message = f"job {name!r} is bounded: it runs in batch mode, and cannot be rescaled"
            raise ProgramError(message)
        with self._moving:
            runs = self._status is JobStatus.RUNNING and self._run is not None
            if not runs or self._is_leaving or self._autoscaling.is_under_way:
                message = f"job {name!r} is being started, stopped or rescaled: ask again later"
                raise JobError(message)
            changes = self._autoscaling.requested(bounds)
            if changes and self._autoscaling.begin(changes):
                self._stop.ask(drain=False)

    def _rescale(self) -> bool:
        """Scale the job, whose run has stopped, if it was stopped for that."""
        autoscaling = self._autoscaling
        if autoscaling is None or not autoscaling.is_under_way:
            return False
        last = None if self._last is None else self._last.last
        if self._cancelled.is_set() or (last is not None and last.final):
            autoscaling.give_up()
            return False
        self._move(JobStatus.RESTARTING)
        with self._moving:
            self._stop = StopRequest()
            autoscaling.scale()
        self._metrics.rescaled(self._job.graph)
        return True

    def _is_owner(self) -> bool:
        """Return whether this driver has the job."""
        run = self._run
        return run is not None and run.coordinator.opened and not run.coordinator.is_fenced()

    def _tick(self) -> None:
        """Report progress between checkpoints, however long these take."""
        while not self._ended.wait(_TICK):
            if self._status is JobStatus.RUNNING:
                self._monitor.tick(self._task_counts())

    # -- the job handle ------------------------------------------------------------------------

    def get_job_id(self) -> str:
        return self._job.job_id

    def get_job_status(self) -> JobStatus:
        return self._status

    def get_accumulators(self) -> dict[str, object]:
        """Totals so far, by "operator.metric": the uid that the program gives, else the name.

        While long-running tasks are at work, beside these how each spends its time: gauges with
        Flink's names (``metrics/progress.py``).
        """
        return {**self._monitor.totals, **self._monitor.time_gauges(self._engine.task_times())}

    def get_watermarks(self) -> dict[str, OperatorTime]:
        return self._monitor.watermarks()

    def get_metrics(self) -> dict[str, object]:
        times = self._monitor.time_gauges(self._engine.task_times())
        return {**self._monitor.metrics(self._task_counts()), **times}

    def get_last_checkpoint(self) -> CompletedCheckpoint | None:
        return self._monitor.last_checkpoint

    def _task_counts(self) -> list[RunningMetrics]:
        run = self._run
        return [] if run is None or self._ended.is_set() else self._engine.task_counts(run)

    def get_start(self) -> JobStart:
        return self._job.start

    def get_pending_commits(self) -> PendingCommits:
        run = self._run
        return PendingCommits() if run is None else run.coordinator.pending_commits

    def cancel(self) -> None:
        self._cancelled.set()
        self._move(JobStatus.CANCELLING)
        self._ended.wait()

    def _move(self, status: JobStatus) -> None:
        """Note where the job is: nowhere else once it has ended, and at its end once cancelled."""
        with self._moving:
            if self._status.is_terminal_state():
                return
            if self._cancelled.is_set() and not status.is_terminal_state():
                status = JobStatus.CANCELLING
            self._status = status
            self._metrics.moved(status.name)
            self._history.moved(status.name)

    def trigger_savepoint(
        self,
        directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        """Have a checkpoint copied, and wait for it."""
        return self._job.savepoints.ask(directory, format_type).result()

    def query_state(self, uid: str, state: str, key: object) -> StateQueryResult:
        """Read a state in the last checkpoint, or in the next one if that is gone meanwhile."""
        storage = self._job.storage
        for last_try in (False, False, True):
            manifest = ManifestLog(storage).latest()
            if manifest is None:
                message = f"job {self._job.graph.job_name!r} has no checkpoint yet"
                raise errors.CheckpointError(message)
            try:
                return query_checkpoint(storage, manifest, uid, state, key)
            except errors.CorruptCheckpointError:
                newest = ManifestLog(storage).latest()
                if last_try or newest is None or newest.epoch == manifest.epoch:
                    raise
        raise AssertionError

    def stop(self, *, drain: bool = False) -> str:
        if self._job.temporary and not drain and not self._ended.is_set():
            message = (
                f"job {self._job.graph.job_name!r} keeps its checkpoints in a temporary directory,"
                " which is deleted at its end, so nothing could continue from where it stops: set"
                f" {options.CHECKPOINTS_DIRECTORY.key}, or drain it, or cancel it"
            )
            raise ProgramError(message)
        self._stop_after(None, drain=drain)
        return self._job.storage.location

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        """Have the engine stop, and copy the last checkpoint; wait for both."""
        if not directory and not self._job.graph.configuration.get(options.SAVEPOINT_DIRECTORY):
            return self.stop(drain=drain)
        request = SavepointRequest(require_savepoints(self._job.graph, directory), format_type)
        self._stop_after(request, drain=drain)
        name = self._job.graph.job_name
        request.fail(JobError(f"there is no savepoint: job {name!r} had ended before"))
        return request.result()

    def _stop_after(self, savepoint: SavepointRequest | None, *, drain: bool) -> None:
        """Stop after a last checkpoint, and wait for the end.

        Raises:
            ProgramError: the engine cannot drain.
            JobError: the job failed, or was cancelled meanwhile.
        """
        if drain and not self._engine.long_running_tasks:
            message = (
                "a job in micro-batches can be stopped, but not drained: run it with"
                " millstream.execution: pipelined, or stop it without draining"
            )
            raise ProgramError(message)
        while not self._leave(savepoint, drain=drain) and not self._ended.wait(_SCALING):
            pass
        self.get_job_execution_result()
        if self._status is JobStatus.CANCELED:
            message = (
                f"job {self._job.graph.job_name!r} was canceled before it had stopped: what it had"
                " read after the last checkpoint is not committed"
            )
            raise JobError(message)

    def _leave(self, savepoint: SavepointRequest | None, *, drain: bool) -> bool:
        """Have the job stop; False while it is stopped to be scaled, from which it continues."""
        with self._moving:
            if self._autoscaling is not None and self._autoscaling.is_under_way:
                return False
            self._is_leaving = True
            self._stop.ask(drain=drain, savepoint=savepoint)
            return True

    def get_job_execution_result(self) -> JobExecutionResult:
        # Waking up now and then lets the main thread take a keyboard interrupt.
        while not self._ended.wait(0.2):
            pass
        if self._error is not None:
            if isinstance(self._error, MillstreamError):
                raise self._error
            reason = self._engine.one_line(self._error)
            message = f"job {self._job.graph.job_name!r} failed: {reason}"
            raise JobError(message) from self._error
        return JobExecutionResult(
            job_id=self._job.job_id,
            job_name=self._job.graph.job_name,
            net_runtime=int(self._seconds * 1000),
            accumulators=self.get_accumulators(),
            of_functions=self._monitor.of_functions,
        )

    # -- the thread ----------------------------------------------------------------------------

    def _main(self) -> None:
        logs.begin_job(self._job.job_id, self._job.graph.job_name)
        try:
            over = self._run_until_over()
            status = JobStatus.FINISHED if over else JobStatus.CANCELED
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks for the result
            self._error = error
            status = JobStatus.FAILED
        if status is JobStatus.FINISHED:
            self._write_last_savepoints()
        self._seconds = time.monotonic() - self._started
        with contextlib.ExitStack() as closing:
            closing.callback(self._end, status)
            if self._rest is not None:
                # Before waiters go on: the thread that waits for its clients keeps the process.
                closing.callback(self._rest.end, self._job.job_id)
            closing.callback(self._reporting.close)
            closing.callback(self._metrics.moved, status.name)
            closing.callback(self._clean_up, status)
            closing.callback(self._end_lease, status)
            closing.callback(self._job.savepoints.close, f"has ended: {status.name}")
            closing.callback(self._engine.close)

    def _clean_up(self, status: JobStatus) -> None:
        if self._state_for_standbys(status) == LEFT and not self._job.temporary:
            return  # the next driver needs the checkpoints, whatever the options say of the end
        self._job.clean_up(
            finished=status is JobStatus.FINISHED,
            cancelled=status is JobStatus.CANCELED,
            stopped=self._stop.is_asked,
            last=self._last,
        )

    def _archive(self) -> None:
        """Keep for the history server what the REST API shows; what fails here is logged."""
        view = self._view
        if view is None or self._job.temporary or isinstance(self._error, FencedError):
            return
        from millstream.rest.archive import write_archive

        try:
            write_archive(self._job.storage, view)
        except Exception:  # noqa: BLE001 - the job has ended, however that went
            _LOG.warning("the history of the job is not in its directory", exc_info=True)

    def _end_lease(self, status: JobStatus) -> None:
        """Send standbys whether one of them should take over."""
        if self._lease is not None:
            self._lease.end(self._state_for_standbys(status))

    def _state_for_standbys(self, status: JobStatus) -> str:
        """Return how the job has ended, as the lease has it; empty: another driver has the job."""
        if isinstance(self._error, FencedError):
            return ""
        if self._error is not None and has_lost_engine(self._error):
            return LEFT
        if status is JobStatus.FINISHED and self._last is not None:
            last = self._last.last
            if last is None or not last.final:
                return STOPPED
            if self._job.discards(self._last, finished=True):
                return DISCARDED
        return status.name

    def _end(self, status: JobStatus) -> None:
        self._move(status)
        self._archive()
        withdraw(self._job.job_id)
        self._ended.set()

    def _run_until_over(self) -> bool:
        """Run, and run again as the restart strategy allows; True when the job has finished."""
        configuration = self._job.graph.configuration
        checkpointing = (configuration.get(options.CHECKPOINTING_INTERVAL) or 0) > 0
        strategy = restart_strategy(
            configuration,
            checkpointing=checkpointing,
            long_running_tasks=self._engine.long_running_tasks,
        )
        try:
            while not self._cancelled.is_set():
                self._move(JobStatus.RUNNING)
                try:
                    over = self.execute_once(strategy)
                    if over and self._rescale():
                        continue
                    return over  # noqa: TRY300 - the loop ends here
                except FencedError as error:
                    self._history.failed(error, str(error))
                    raise  # a newer run has the job: starting again would fence it in turn
                except Exception as error:  # noqa: BLE001 - raised again if there is no restart
                    if self._cancelled.is_set():
                        _LOG.debug("the cancelled job ended with an error", exc_info=error)
                        return False
                    self._wait_to_restart(error, strategy)
            return False
        finally:
            # Who has interrupted it has a prompt in that line.
            self._monitor.progress.close(clear=self._cancelled.is_set())

    def _wait_to_restart(self, error: Exception, strategy: RestartStrategy) -> None:
        """Wait as long as the strategy says; raises what the job failed of if there is no restart.

        Raises:
            Exception: the job has failed for good.
        """
        if error is self._final:
            raise error  # the strategy was asked where the tasks of a region had failed of it
        # A region that could not be restarted alone has failed once, not twice.
        delays = [delay for counted, delay in self._counted if counted is error]
        delay = delays[0] if delays else self._delay(error, strategy)
        if not self._cancelled.wait(delay):
            self._metrics.restarted()

    def _delay(self, error: Exception, strategy: RestartStrategy) -> float:
        """Seconds to wait before what has failed is run again.

        Raises:
            Exception: the job has failed for good.
        """
        cause = self._engine.original_error(error)
        cause = self._job.directories.failure(cause) or cause
        _LOG.debug("what the engine says of it", exc_info=error)
        self._history.failed(cause, self._engine.one_line(cause))
        delay = strategy.next_delay(time.monotonic(), cause)
        if delay is None:
            # Millstream's say all there is; an engine's hundreds of lines about them would hide
            # that.
            told = isinstance(cause, MillstreamError) and cause is not error
            if told or isinstance(cause, _PLAIN_ERRORS):
                raise cause from None
            if cause is error:
                raise error
            raise cause from error
        self._move(JobStatus.RESTARTING)
        line = self._engine.one_line(cause)
        _LOG.warning("restarting in %.1f s after: %s", delay, line)
        self._monitor.progress.update_failure(line)
        return delay

    def execute_once(self, strategy: RestartStrategy) -> bool:
        """One run: True when the job is over, False when it was cancelled; raises if it failed.

        Args:
            strategy: told of each epoch.
        """
        # Before the generation: a run that cannot do anything must not stop one that can.
        self._engine.require()
        monitor = self._monitor
        #: The sources of regions that have failed since the last progress.
        failed: list[frozenset[str]] = []
        self._counted.clear()

        def on_epoch(manifest: Manifest, acks: list[TaskAck], seconds: float) -> None:
            # Tasks that go on acknowledge checkpoints of nothing, too, up to the record that they
            # fail of again and again.
            if not self._engine.long_running_tasks or _have_read(acks, failed):
                failed.clear()
                strategy.on_progress()
            self._show_function_states(acks)
            self._history.checkpoint_completed(manifest, acks)
            figures = monitor.epoch_done(manifest, acks, seconds, self._engine.task_times())
            self._metrics.checkpoint_completed(manifest, acks, seconds, figures.checkpoint_bytes)

        def on_failure(error: Exception, sources: frozenset[str]) -> float:
            failed.append(sources)
            try:
                delay = self._delay(error, strategy)
            except Exception as final:
                self._final = final
                raise
            self._counted.append((error, delay))
            self._metrics.restarted()
            return delay

        run = self._run = Run(
            self._job,
            # Not before: a driver that cannot run must not take the lease from one that does.  Not
            # after recovery, which may take long: a standby would take over meanwhile.
            on_fenced=lambda: self._lease is None or self._lease.take(),
            on_recovered=self._recovered,
            on_epoch=on_epoch,
            on_pending=monitor.on_pending,
            on_begun=self._checkpoint_begun,
            on_acknowledged=self._history.acknowledged,
            on_aborted=self._checkpoint_failed,
            # Another driver may have taken the job over while this one waited to restart it.
            after=self._generation,
            tasks_at_work=self._engine.long_running_tasks,
            stop=self._stop,
            on_failure=on_failure,
            on_resumed=partial(self._move, JobStatus.RUNNING),
        )
        name = self._job.graph.job_name
        try:
            began = time.monotonic()
            begins = run.open()
            self._metrics.initialized(time.monotonic() - began)
            monitor.started(self._job.start)
            self._start = self._job.start
            if not begins:
                return True
            self._is_open = True
            return self._engine.execute(run, self._cancelled)
        except Exception as error:
            self._note_failed_checkpoint(error)
            lost = self._engine.lost()
            if lost is not None:
                raise lost from error
            if not isinstance(error, FencedError) and run.coordinator.is_fenced():
                said = self._engine.one_line(self._engine.original_error(error))
                message = (
                    f"a newer run has taken job {name!r} over, so this one does not start again"
                    f" after: {said}"
                )
                raise FencedError(message) from error
            raise
        finally:
            self._is_open = False
            self._remember(run.coordinator)
            run.close()

    def _recovered(self, manifest: Manifest) -> None:
        self._monitor.recovered(manifest)
        self._metrics.recovered(manifest)
        start = self._job.start
        path = start.savepoint if start.starts_from_savepoint else self._job.storage.location
        self._history.recovered(manifest.epoch, path, is_savepoint=start.starts_from_savepoint)

    def _checkpoint_begun(self, checkpoint: int, overtakes: bool) -> None:  # noqa: FBT001
        self._history.checkpoint_triggered(checkpoint, is_unaligned=overtakes)

    def _checkpoint_failed(self, checkpoint: int | None, reason: str) -> None:
        self._metrics.checkpoint_failed()
        self._history.checkpoint_failed(checkpoint, reason)

    def _note_failed_checkpoint(self, error: Exception) -> None:
        """Count the checkpoint that a run has failed with, if it has: a micro-batch is one."""
        expired = any(isinstance(each, CheckpointExpiredError) for each in causes_of(error))
        if expired or not (self._engine.long_running_tasks or self._cancelled.is_set()):
            self._checkpoint_failed(None, self._engine.one_line(error))
        else:
            self._history.checkpoint_failed(None, "the run was ended")

    def _write_last_savepoints(self) -> None:
        """Copy the last checkpoint for those who have stopped the job with a savepoint."""
        last = None if self._last is None else self._last.last
        for request in self._stop.savepoints:
            self._job.savepoints.stopped(request, last, drains=self._stop.drains)

    def _show_function_states(self, acks: list[TaskAck]) -> None:
        before, self._start = self._start, None
        if before is not None:
            self._job.start = before.with_function_states(acks)
            self._monitor.functions_opened(before, self._job.start)

    def _remember(self, coordinator: Coordinator) -> None:
        if coordinator.claimed_generation is not None:
            self._generation = coordinator.claimed_generation
        if coordinator.opened:
            self._last = coordinator


def _have_read(acks: list[TaskAck], failed: list[frozenset[str]]) -> bool:
    """Whether a checkpoint has any record, and if regions have failed, one of each of them."""
    sources = {split.source_uid for ack in acks for split in ack.splits if split.records}
    return all(region & sources for region in failed) if failed else bool(sources)
