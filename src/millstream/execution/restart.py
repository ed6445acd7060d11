"""Restart strategies: whether, and when, what has failed is run again.

The driver asks for its job, and a supervisor for its driver, without importing what a driver needs.
"""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from pickle import PickleError
from typing import TYPE_CHECKING, Final

from millstream import errors
from millstream.configuration import options
from millstream.errors import CheckpointExpiredError, PermanentSinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.configuration.configuration import Configuration
    from millstream.configuration.option import ConfigOption


_LOG: Final = logging.getLogger("millstream")
_MILLISECONDS: Final = 1000
#: What users may write, as in Flink.
_NONE: Final = ("none", "off", "disable")
_FIXED_DELAY: Final = ("fixed-delay", "fixeddelay")
_FAILURE_RATE: Final = ("failure-rate", "failurerate")
#: Java's largest int is what Flink's documentation gives for "no limit".
_UNLIMITED: Final = ("infinite", str(2**31 - 1))


class Recovery(Enum):
    """The treatment of a class of failures by running the job again."""

    #: Nothing, or it must not be done: the job ends.
    NEVER = "never"
    #: Nothing if the failure comes again without progress in between.
    UNLESS_REPEATED = "unless repeated"
    #: It may help: as often as the restart strategy says.
    MAY_HELP = "may help"


#: Every class of ``millstream.errors``, one by one: a subclass does not inherit this unseen.
_RECOVERY: Final[dict[type[BaseException], Recovery]] = {
    errors.MillstreamError: Recovery.UNLESS_REPEATED,
    # The program, its options or what it is to continue from are wrong, and stay so.
    errors.ConfigurationError: Recovery.NEVER,
    errors.ProgramError: Recovery.NEVER,
    errors.MissingMethodError: Recovery.NEVER,
    errors.UnpicklableFunctionError: Recovery.NEVER,
    errors.TypeMismatchError: Recovery.NEVER,
    errors.ValidationError: Recovery.NEVER,
    errors.ArgumentValueError: Recovery.NEVER,
    errors.ArgumentTypeError: Recovery.NEVER,
    errors.ElementValueError: Recovery.NEVER,
    errors.ElementTypeError: Recovery.NEVER,
    errors.CatalogError: Recovery.NEVER,
    errors.DatabaseAlreadyExistError: Recovery.NEVER,
    errors.DatabaseNotEmptyError: Recovery.NEVER,
    errors.DatabaseNotExistError: Recovery.NEVER,
    errors.FunctionAlreadyExistError: Recovery.NEVER,
    errors.FunctionNotExistError: Recovery.NEVER,
    errors.PartitionAlreadyExistsError: Recovery.NEVER,
    errors.PartitionNotExistError: Recovery.NEVER,
    errors.PartitionSpecInvalidError: Recovery.NEVER,
    errors.TableAlreadyExistError: Recovery.NEVER,
    errors.TableNotExistError: Recovery.NEVER,
    errors.TableNotPartitionedError: Recovery.NEVER,
    errors.SqlParserError: Recovery.NEVER,
    errors.UnsupportedSqlError: Recovery.NEVER,
    errors.StateError: Recovery.NEVER,
    errors.CheckpointError: Recovery.NEVER,
    errors.ForeignCheckpointError: Recovery.NEVER,
    errors.IncompatibleProgramError: Recovery.NEVER,
    errors.UnknownFormatError: Recovery.NEVER,
    errors.CorruptCheckpointError: Recovery.NEVER,
    errors.SignatureError: Recovery.NEVER,
    # There is nothing left to run it on.
    errors.EngineError: Recovery.NEVER,
    # A restart would fence the newer run in turn.
    errors.FencedError: Recovery.NEVER,
    # The same record, or the same output, may fail at every replay; a function may ask a service.
    errors.UserFunctionError: Recovery.UNLESS_REPEATED,
    errors.ExpressionError: Recovery.UNLESS_REPEATED,
    errors.MalformedRecordError: Recovery.UNLESS_REPEATED,
    errors.PermanentSinkError: Recovery.UNLESS_REPEATED,
    errors.RequirementsError: Recovery.UNLESS_REPEATED,
    # A server, a machine, a disk or a network comes back, or somebody sees to it.
    errors.SourceError: Recovery.MAY_HELP,
    errors.SinkError: Recovery.MAY_HELP,
    errors.SchemaRegistryError: Recovery.MAY_HELP,
    errors.DirectoryError: Recovery.MAY_HELP,
    errors.ObjectStoreError: Recovery.MAY_HELP,
    errors.StateStoreError: Recovery.MAY_HELP,
    errors.LocalCopyError: Recovery.MAY_HELP,
    errors.WorkerLostError: Recovery.MAY_HELP,
    errors.SlotLostError: Recovery.MAY_HELP,
    # Whoever else connects to a run's port must not be able to end the job for good.
    errors.AuthenticationError: Recovery.MAY_HELP,
    errors.JobError: Recovery.MAY_HELP,
    errors.CheckpointExpiredError: Recovery.MAY_HELP,
    errors.InconsistentEpochError: Recovery.MAY_HELP,
    # Of Python: code that is wrong, or modules that workers do not have.
    **dict.fromkeys(
        (ImportError, SyntaxError, NameError, AttributeError, TypeError, NotImplementedError),
        Recovery.UNLESS_REPEATED,
    ),
    PickleError: Recovery.UNLESS_REPEATED,
}


def recovery_of(error: BaseException) -> Recovery:
    """What running the job again can do about an error of this class, its causes left out."""
    known = (_RECOVERY[each] for each in type(error).__mro__ if each in _RECOVERY)
    return next(known, Recovery.MAY_HELP)


class RestartStrategy(ABC):
    """Decides after each failure of one job.

    Contract:
      1. ``next_delay`` is called once per failure, with times that do not go back.  (driver)
      2. ``on_progress`` is called for each epoch that was published.  (driver)
    """

    @abstractmethod
    def next_delay(self, now: float, error: BaseException) -> float | None:
        """Return what to do about a failure.

        Args:
            now: seconds on a clock that never goes back.
            error: what ended the run.

        Returns:
            Seconds to wait before the job is run again; None: it has failed for good.
        """

    def on_progress(self) -> None:
        """An epoch was published."""


class NoRestart(RestartStrategy):
    """The first failure is final."""

    def next_delay(self, now: float, error: BaseException) -> float | None:
        del now, error
        return None


@dataclass(slots=True)
class FixedDelay(RestartStrategy):
    """A number of restarts over the life of the job, each after the same time."""

    attempts: int
    #: Seconds.
    delay: float
    _failures: int = field(default=0, init=False)

    def next_delay(self, now: float, error: BaseException) -> float | None:
        del now, error
        self._failures += 1
        return self.delay if self._failures <= self.attempts else None


@dataclass(slots=True)
class FailureRate(RestartStrategy):
    """Restarts, each after the same time, until too many failures fall into a length of time."""

    #: The most failures within ``interval`` after which the job is run again.
    max_failures: int
    #: Seconds.
    interval: float
    delay: float
    #: When the last failures were: one more than may fall into the interval.
    _failures: deque[float] = field(default_factory=deque, init=False)

    def next_delay(self, now: float, error: BaseException) -> float | None:
        """``delay``, unless the interval before ``now`` holds more failures than it may."""
        del error
        self._failures.append(now)
        if len(self._failures) <= self.max_failures:
            return self.delay
        return self.delay if now - self._failures.popleft() > self.interval else None


@dataclass(slots=True)
class ExponentialDelay(RestartStrategy):
    """Restarts after a time that grows from failure to failure, and is reset by a quiet time."""

    #: Seconds.
    initial_backoff: float = 1.0
    max_backoff: float = 60.0
    backoff_multiplier: float = 1.5
    #: Seconds without failure after which the next one waits ``initial_backoff`` again.
    reset_backoff_threshold: float = 3600.0
    #: The wait is varied by up to this fraction of it, so that jobs do not restart in step.
    jitter_factor: float = 0.1
    #: None: no limit.
    attempts_before_reset_backoff: int | None = None
    random: random.Random = field(default_factory=random.Random, repr=False)
    _failures: int = field(default=0, init=False)
    _backoff: float = field(default=0.0, init=False)
    #: When the last restart was to happen.
    _restarted: float = field(default=0.0, init=False)

    def next_delay(self, now: float, error: BaseException) -> float | None:
        """The next, longer time, jitter included; at most ``max_backoff``.

        What fails before the restart of the last failure waits for that, and is not counted.
        """
        del error
        if self._failures and now <= self._restarted:
            return self._restarted - now
        if self._failures == 0 or now - self._restarted >= self.reset_backoff_threshold:
            self._failures = 0
            self._backoff = self.initial_backoff
        else:
            self._backoff = min(self._backoff * self.backoff_multiplier, self.max_backoff)
        self._failures += 1
        limit = self.attempts_before_reset_backoff
        if limit is not None and self._failures > limit:
            return None
        jitter = self._backoff * self.jitter_factor
        delay = min(self._backoff + self.random.uniform(-jitter, jitter), self.max_backoff)
        self._restarted = now + delay
        return delay


@dataclass(slots=True)
class TolerateExpired(RestartStrategy):
    """Another strategy, which is not asked about the first epochs in a row that took too long.

    They are run again at once, as Flink continues after a checkpoint that it tolerates to fail.
    """

    strategy: RestartStrategy
    tolerated: int
    _expired: int = field(default=0, init=False)

    def next_delay(self, now: float, error: BaseException) -> float | None:
        """0 for an epoch that is tolerated, else what the inner strategy says."""
        if any(isinstance(cause, CheckpointExpiredError) for cause in causes_of(error)):
            self._expired += 1
            if self._expired <= self.tolerated:
                return 0.0
            self._expired = 0  # as in Flink: what follows a restart is counted again
        return self.strategy.next_delay(now, error)

    def on_progress(self) -> None:
        self._expired = 0
        self.strategy.on_progress()


@dataclass(slots=True)
class GiveUpOnRepeats(RestartStrategy):
    """Another strategy, but no restart where it cannot help.

    That is: the program, its configuration or the checkpoint directory is wrong; the engine is
    gone; a newer run has taken over (a restart would fence that run in turn); or user code failed
    with the same message ``max_repeats`` times in a row without any progress, so it will fail on
    that record for ever.

    What a target refuses for good counts without its message: of several records that it refuses
    each try may meet another one first, and names in the message may be those of one attempt.
    """

    strategy: RestartStrategy
    max_repeats: int = 3
    _message: str | None = field(default=None, init=False)
    _repeats: int = field(default=0, init=False)

    def next_delay(self, now: float, error: BaseException) -> float | None:
        """Return what the inner strategy says, or None."""
        causes = [(cause, recovery_of(cause)) for cause in causes_of(error)]
        if any(recovery is Recovery.NEVER for _, recovery in causes):
            return None
        repeatable = _repeatable(causes)
        message = None if repeatable is None else _identity(repeatable)
        self._repeats = self._repeats + 1 if message == self._message else 1
        self._message = message
        if message is not None and self._repeats >= self.max_repeats:
            _LOG.error(
                "no restart after %d failures of one kind without progress between them (%s = %d)",
                self._repeats,
                options.USER_ERROR_MAX_REPEATS.key,
                self.max_repeats,
            )
            return None
        return self.strategy.next_delay(now, error)

    def on_progress(self) -> None:
        self._message = None
        self._repeats = 0
        self.strategy.on_progress()


def _repeatable(causes: list[tuple[BaseException, Recovery]]) -> BaseException | None:
    """The error to compare with the one before; None if what comes again may still pass.

    Errors of ours say what failed.  Python's own count only where none of ours explains them: a
    ``SinkError`` from a ``TypeError`` of a client library is a ``SinkError``.
    """
    ours = [each for each in causes if isinstance(each[0], errors.MillstreamError)]
    repeated = Recovery.UNLESS_REPEATED
    return next((cause for cause, recovery in ours or causes if recovery is repeated), None)


def _identity(error: BaseException) -> str:
    """Return what two failures of one kind have in common."""
    return type(error).__name__ if isinstance(error, PermanentSinkError) else str(error)


def restart_strategy(
    configuration: Configuration,
    *,
    checkpointing: bool = True,
    long_running_tasks: bool = False,
) -> RestartStrategy:
    """Make the strategy that a job's options ask for, guarded by ``GiveUpOnRepeats``.

    Args:
        configuration: the job's; read are ``restart-strategy.*``, with Flink's names and
            defaults, and ``millstream.user-error.max-repeats``.
        checkpointing: whether the job is checkpointed.  If no strategy is named, such a job gets
            ``exponential-delay`` and any other ``none``, as in Flink.
        long_running_tasks: whether the engine itself tolerates checkpoints that take too long.

    Raises:
        ConfigurationError: an option makes no sense.
    """
    kind = configuration.get(options.RESTART_STRATEGY)
    if not kind:
        kind = "exponential-delay" if checkpointing else "none"
    strategy: RestartStrategy
    if kind in _NONE:
        strategy = NoRestart()
    elif kind in _FIXED_DELAY:
        strategy = FixedDelay(
            attempts=configuration.get(options.FIXED_DELAY_ATTEMPTS),
            delay=_seconds(configuration, options.FIXED_DELAY_DELAY),
        )
    elif kind in _FAILURE_RATE:
        strategy = FailureRate(
            max_failures=configuration.get(options.FAILURE_RATE_MAX),
            interval=_seconds(configuration, options.FAILURE_RATE_INTERVAL),
            delay=_seconds(configuration, options.FAILURE_RATE_DELAY),
        )
    else:
        strategy = _exponential(configuration)
    tolerated = configuration.get(options.TOLERABLE_FAILURES)
    if tolerated and not long_running_tasks:
        strategy = TolerateExpired(strategy, tolerated)
    return GiveUpOnRepeats(strategy, configuration.get(options.USER_ERROR_MAX_REPEATS))


def _exponential(configuration: Configuration) -> ExponentialDelay:
    attempts = configuration.get(options.EXPONENTIAL_ATTEMPTS)
    unlimited = attempts in _UNLIMITED
    strategy = ExponentialDelay(
        initial_backoff=_seconds(configuration, options.EXPONENTIAL_INITIAL_BACKOFF),
        max_backoff=_seconds(configuration, options.EXPONENTIAL_MAX_BACKOFF),
        backoff_multiplier=configuration.get(options.EXPONENTIAL_MULTIPLIER),
        reset_backoff_threshold=_seconds(configuration, options.EXPONENTIAL_RESET_THRESHOLD),
        jitter_factor=configuration.get(options.EXPONENTIAL_JITTER),
        attempts_before_reset_backoff=None if unlimited else int(attempts),
    )
    if strategy.initial_backoff > strategy.max_backoff:
        message = (
            f"{options.EXPONENTIAL_INITIAL_BACKOFF.key} is longer than"
            f" {options.EXPONENTIAL_MAX_BACKOFF.key}"
        )
        raise errors.ConfigurationError(message)
    if strategy.jitter_factor > 1:
        message = (
            f"{options.EXPONENTIAL_JITTER.key} is {strategy.jitter_factor}; it lies between 0 and 1"
        )
        raise errors.ConfigurationError(message)
    return strategy


def _seconds(configuration: Configuration, option: ConfigOption[int]) -> float:
    return configuration.get(option) / _MILLISECONDS


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, as far as it was said with ``raise ... from``."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__
