"""RestartStrategies: PyFlink's objects for the ``restart-strategy.*`` keys."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from millstream.configuration.options import RESTART_STRATEGY_PREFIX as _PREFIX
from millstream.types.time import DurationLike, milliseconds_of


@dataclass(frozen=True)
class RestartStrategyConfiguration:
    """A restart strategy as configuration entries."""

    entries: dict[str, str] = field(default_factory=dict)

    def get_description(self) -> str:
        """The strategy in words."""
        return ", ".join(f"{key}: {value}" for key, value in self.entries.items())

    def __hash__(self) -> int:
        """Equal strategies have equal hashes."""
        return hash(frozenset(self.entries.items()))


class _NoRestart(RestartStrategyConfiguration):
    """The first failure ends the job."""

    def __init__(self) -> None:
        super().__init__({f"{_PREFIX}.type": "none"})

    def get_description(self) -> str:
        return "Restart deactivated."


class _FixedDelay(RestartStrategyConfiguration):
    """So many restarts, each after the same time."""

    def __init__(
        self, restart_attempts: int, delay_between_attempts_interval: DurationLike
    ) -> None:
        delay = milliseconds_of(delay_between_attempts_interval)
        super().__init__(
            {
                f"{_PREFIX}.type": "fixed-delay",
                f"{_PREFIX}.fixed-delay.attempts": str(restart_attempts),
                f"{_PREFIX}.fixed-delay.delay": f"{delay} ms",
            }
        )

    def get_restart_attempts(self) -> int:
        """How many restarts there may be."""
        return int(self.entries[f"{_PREFIX}.fixed-delay.attempts"])

    def get_delay_between_attempts_interval(self) -> dt.timedelta:
        """The time before each of them."""
        return _length(self.entries[f"{_PREFIX}.fixed-delay.delay"])

    def get_description(self) -> str:
        delay = self.entries[f"{_PREFIX}.fixed-delay.delay"]
        return (
            f"Restart with fixed delay ({delay}). #{self.get_restart_attempts()} restart attempts."
        )


class _FailureRate(RestartStrategyConfiguration):
    """Restarts as long as failures are not too many in a length of time."""

    def __init__(
        self,
        max_failure_rate: int,
        failure_interval: DurationLike,
        delay_between_attempts_interval: DurationLike,
    ) -> None:
        interval = milliseconds_of(failure_interval)
        delay = milliseconds_of(delay_between_attempts_interval)
        prefix = f"{_PREFIX}.failure-rate"
        super().__init__(
            {
                f"{_PREFIX}.type": "failure-rate",
                f"{prefix}.max-failures-per-interval": str(max_failure_rate),
                f"{prefix}.failure-rate-interval": f"{interval} ms",
                f"{prefix}.delay": f"{delay} ms",
            }
        )

    def get_max_failure_rate(self) -> int:
        """How many failures there may be in the interval."""
        return int(self.entries[f"{_PREFIX}.failure-rate.max-failures-per-interval"])

    def get_failure_interval(self) -> dt.timedelta:
        """The interval."""
        return _length(self.entries[f"{_PREFIX}.failure-rate.failure-rate-interval"])

    def get_delay_between_attempts_interval(self) -> dt.timedelta:
        """The time before each restart."""
        return _length(self.entries[f"{_PREFIX}.failure-rate.delay"])

    def get_description(self) -> str:
        prefix = f"{_PREFIX}.failure-rate"
        return (
            f"Failure rate restart with maximum of {self.get_max_failure_rate()} failures within "
            f"interval {self.entries[f'{prefix}.failure-rate-interval']} and fixed delay "
            f"{self.entries[f'{prefix}.delay']}."
        )


class _Fallback(RestartStrategyConfiguration):
    """The strategy of the configuration, or Flink's default."""

    def __init__(self) -> None:
        super().__init__()

    def get_description(self) -> str:
        return "Cluster level default restart strategy"


class RestartStrategies:
    """Makes restart strategies; times are milliseconds, timedeltas or Durations."""

    NoRestartStrategyConfiguration = _NoRestart
    FixedDelayRestartStrategyConfiguration = _FixedDelay
    FailureRateRestartStrategyConfiguration = _FailureRate
    FallbackRestartStrategyConfiguration = _Fallback

    @staticmethod
    def no_restart() -> _NoRestart:
        """The first failure ends the job."""
        return _NoRestart()

    @staticmethod
    def fall_back_restart() -> _Fallback:
        """Return what the configuration of the job says."""
        return _Fallback()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: DurationLike
    ) -> _FixedDelay:
        """So many restarts, each after the same time."""
        return _FixedDelay(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: DurationLike, delay_interval: DurationLike
    ) -> _FailureRate:
        """Restarts, each after the same time, until there are too many in a length of time.

        Args:
            failure_rate: the most failures in the interval after which the job is run again.
            failure_interval: how far back failures count.
            delay_interval: the time before a restart.
        """
        return _FailureRate(failure_rate, failure_interval, delay_interval)

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: DurationLike,
        max_backoff: DurationLike,
        backoff_multiplier: float,
        reset_backoff_threshold: DurationLike,
        jitter_factor: float,
    ) -> RestartStrategyConfiguration:
        """Restarts after a time that grows, until there was no failure for the threshold."""
        prefix = f"{_PREFIX}.exponential-delay"
        return RestartStrategyConfiguration(
            {
                f"{_PREFIX}.type": "exponential-delay",
                f"{prefix}.initial-backoff": f"{milliseconds_of(initial_backoff)} ms",
                f"{prefix}.max-backoff": f"{milliseconds_of(max_backoff)} ms",
                f"{prefix}.backoff-multiplier": str(backoff_multiplier),
                f"{prefix}.reset-backoff-threshold": (
                    f"{milliseconds_of(reset_backoff_threshold)} ms"
                ),
                f"{prefix}.jitter-factor": str(jitter_factor),
            }
        )


def _length(text: str) -> dt.timedelta:
    return dt.timedelta(milliseconds=int(text.removesuffix(" ms")))
