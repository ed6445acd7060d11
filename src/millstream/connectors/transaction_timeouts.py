"""Check, at submit, that a target keeps pre-committed output as long as an outage may last.

A transaction that begins with an epoch may have to wait for the slowest tasks, for the longest wait
before a restart, and for the new run to start.  With long-running tasks, it begins after the
barrier of the checkpoint before, and waits for the next trigger, and for as many checkpoints as may
fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration


#: Milliseconds for starting again after a failure: Spark, workers, recovery.
START_UP: Final = 60_000
#: Failed checkpoints in a row whose output a target is to have room for.
_MOST_FAILED: Final = 10


def require_outlives(configuration: Configuration, timeout: int, name: str, sink: str) -> int:
    """Check that a transaction outlives an outage.

    Args:
        configuration: the job's.
        timeout: milliseconds after which the target ends a transaction.
        name: what the user sets it by.
        sink: for the message.

    Returns:
        The least timeout, in milliseconds.

    Raises:
        ConfigurationError: an epoch that is published could be lost; with the numbers to set.
    """
    checkpoint = configuration.get(options.CHECKPOINTING_TIMEOUT)
    restart = _longest_restart(configuration)
    waiting, reasons = _waiting_for_barriers(configuration)
    needed = checkpoint + restart + START_UP + waiting
    if timeout < needed:
        message = (
            f"{name} of the {sink} is {timeout}, but up to {needed} ms may pass until its output is"
            f" committed: execution.checkpointing.timeout ({checkpoint}),{reasons} the longest"
            f" restart delay ({restart}) and {START_UP} to start again. Set {name} to {needed} or"
            " more, or those shorter."
        )
        raise ConfigurationError(message)
    return needed


def overlapping_epochs(configuration: Configuration) -> int:
    """How many epochs of a subtask may be pre-committed and not committed at a time.

    With long-running tasks, those of checkpoints in flight, and those of failed checkpoints.
    """
    if configuration.get(options.EXECUTION) != "pipelined":
        return 1
    failed = min(configuration.get(options.TOLERABLE_FAILURES), _MOST_FAILED)
    return configuration.get(options.MAX_CONCURRENT_CHECKPOINTS) + failed


def _waiting_for_barriers(configuration: Configuration) -> tuple[int, str]:
    """Milliseconds that a transaction waits besides with long-running tasks, and why, as text."""
    if configuration.get(options.EXECUTION) != "pipelined":
        return 0, ""
    interval = configuration.get(options.CHECKPOINTING_INTERVAL)
    pause = configuration.get(options.CHECKPOINTING_MIN_PAUSE)
    failures = configuration.get(options.TOLERABLE_FAILURES)
    waiting = interval + pause + failures * configuration.get(options.CHECKPOINTING_TIMEOUT)
    reasons = f" execution.checkpointing.interval ({interval}),"
    if pause:
        reasons += f" execution.checkpointing.min-pause ({pause}),"
    if failures:
        reasons += (
            f" the same for each of execution.checkpointing.tolerable-failed-checkpoints"
            f" ({failures}),"
        )
    return waiting, reasons


def _longest_restart(configuration: Configuration) -> int:
    """Milliseconds; 0 where somebody starts the job again by hand, whenever that may be."""
    kind = configuration.get(options.RESTART_STRATEGY)
    if kind in {"none", "off", "disable"}:
        return 0
    if kind.startswith("fixed"):
        return int(configuration.get(options.FIXED_DELAY_DELAY))
    longest = configuration.get(options.EXPONENTIAL_MAX_BACKOFF)
    return int(longest * (1 + configuration.get(options.EXPONENTIAL_JITTER)))
