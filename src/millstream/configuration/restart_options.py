"""Options of restarts: what happens after a failure, when, and how often.

What it is: definitions that ``configuration/options.py`` gives on under their names.
What it is not: PyFlink's objects for them (``configuration/restart_strategies.py``), nor the
strategies (``execution/restart.py``).
"""

from __future__ import annotations

from typing import Final

from millstream.configuration.option import ConfigOption
from millstream.configuration.parsing import (
    parse_attempts,
    parse_duration,
    parse_float,
    parse_integer,
    parse_lowercase,
)

__all__ = [
    "EXPONENTIAL_ATTEMPTS",
    "EXPONENTIAL_INITIAL_BACKOFF",
    "EXPONENTIAL_JITTER",
    "EXPONENTIAL_MAX_BACKOFF",
    "EXPONENTIAL_MULTIPLIER",
    "EXPONENTIAL_RESET_THRESHOLD",
    "FAILURE_RATE_DELAY",
    "FAILURE_RATE_INTERVAL",
    "FAILURE_RATE_MAX",
    "FIXED_DELAY_ATTEMPTS",
    "FIXED_DELAY_DELAY",
    "RESTART_STRATEGY",
    "RESTART_STRATEGY_PREFIX",
    "USER_ERROR_MAX_REPEATS",
]

#: Of the keys of all restart strategies.
RESTART_STRATEGY_PREFIX: Final = "restart-strategy"
RESTART_STRATEGY: Final = ConfigOption(
    "restart-strategy.type",
    parse_lowercase,
    "",
    "what happens after a failure; exponential-delay if checkpointing is on, else none",
    aliases=("restart-strategy",),
    choices=(
        *("", "none", "off", "disable", "fixed-delay", "fixeddelay"),
        *("exponential-delay", "exponentialdelay", "failure-rate", "failurerate"),
    ),
)
FIXED_DELAY_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    parse_integer,
    1,
    "number of restarts",
    minimum=0,
)
FIXED_DELAY_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", parse_duration, 1000, "time before a restart", minimum=0
)
FAILURE_RATE_MAX: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    parse_integer,
    1,
    "most failures within the interval after which the job is run again",
    minimum=0,
)
FAILURE_RATE_INTERVAL: Final = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    parse_duration,
    60_000,
    "how far back failures count",
    minimum=1,
)
FAILURE_RATE_DELAY: Final = ConfigOption(
    "restart-strategy.failure-rate.delay", parse_duration, 1000, "time before a restart", minimum=0
)
EXPONENTIAL_INITIAL_BACKOFF: Final = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff",
    parse_duration,
    1000,
    "time before the first restart",
    minimum=0,
)
EXPONENTIAL_MAX_BACKOFF: Final = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff",
    parse_duration,
    60_000,
    "longest time before a restart",
    minimum=0,
)
EXPONENTIAL_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    parse_float,
    1.5,
    "factor from one restart to the next",
    minimum=1,
)
EXPONENTIAL_RESET_THRESHOLD: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    parse_duration,
    3_600_000,
    "time without failure after which the first delay is used again",
    minimum=0,
)
EXPONENTIAL_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    parse_float,
    0.1,
    "random part of a delay, 0 to 1",
    minimum=0,
)
EXPONENTIAL_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    parse_attempts,
    "infinite",
    "restarts in a row before the job fails for good",
)
USER_ERROR_MAX_REPEATS: Final = ConfigOption(
    "millstream.user-error.max-repeats",
    parse_integer,
    3,
    "how often the same error of user code, or a target that refuses for good, may repeat without"
    " progress before the job fails",
    minimum=1,
)
