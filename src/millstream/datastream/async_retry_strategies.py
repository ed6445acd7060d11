"""When asynchronous functions are tried again, under PyFlink's import path."""

from millstream.functions.async_functions import NO_RETRY_STRATEGY as NO_RETRY_STRATEGY
from millstream.functions.async_functions import (
    ExponentialBackoffDelayRetryStrategy as ExponentialBackoffDelayRetryStrategy,
)
from millstream.functions.async_functions import FixedDelayRetryStrategy as FixedDelayRetryStrategy
from millstream.functions.async_functions import NoRetryStrategy as NoRetryStrategy
from millstream.functions.async_functions import RetryPredicate as RetryPredicate
