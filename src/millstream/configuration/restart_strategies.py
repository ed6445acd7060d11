"""RestartStrategies: PyFlink 1's way to set what Configuration keys set in PyFlink 2.

What it is: values for ``env.set_restart_strategy``.  What it is not: the strategies themselves,
which are in ``execution/restart.py``.

Read next: ``execution/restart.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


@dataclass(frozen=True)
class RestartStrategyConfiguration:
    """A restart strategy as configuration entries."""

    entries: dict[str, str] = field(default_factory=dict)


class RestartStrategies:
    """Makes restart strategies; times are milliseconds."""

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """The first failure ends the job."""
        return RestartStrategyConfiguration({"restart-strategy.type": "none"})

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int
    ) -> RestartStrategyConfiguration:
        """So many restarts, each after the same time."""
        return RestartStrategyConfiguration(
            {
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": str(restart_attempts),
                "restart-strategy.fixed-delay.delay": f"{delay_between_attempts} ms",
            }
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: int,
        max_backoff: int,
        backoff_multiplier: float,
        reset_backoff_threshold: int,
        jitter_factor: float,
    ) -> RestartStrategyConfiguration:
        """Restarts after a time that grows, until there was no failure for the threshold."""
        prefix = "restart-strategy.exponential-delay"
        return RestartStrategyConfiguration(
            {
                "restart-strategy.type": "exponential-delay",
                f"{prefix}.initial-backoff": f"{initial_backoff} ms",
                f"{prefix}.max-backoff": f"{max_backoff} ms",
                f"{prefix}.backoff-multiplier": str(backoff_multiplier),
                f"{prefix}.reset-backoff-threshold": f"{reset_backoff_threshold} ms",
                f"{prefix}.jitter-factor": str(jitter_factor),
            }
        )
