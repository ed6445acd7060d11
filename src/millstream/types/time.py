"""``Duration``, ``Instant`` and PyFlink 1's ``Time``, and their conversion to milliseconds."""

from __future__ import annotations

import datetime as dt
from functools import total_ordering
from typing import Final, TypeAlias

from millstream.errors import ConfigurationError

#: Milliseconds.  As in Flink: a record without a timestamp has the minimum, the watermark that
#: ends a bounded input is the maximum.
MIN_TIMESTAMP: Final = -(2**63)
MAX_TIMESTAMP: Final = 2**63 - 1

_NANOS_PER_MILLI: Final = 1_000_000
_NANOS_PER_SECOND: Final = 1_000_000_000


@total_ordering
class Duration:
    """A length of time, exact to the nanosecond; may be negative.  Immutable."""

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int) -> None:
        """Take a length in nanoseconds; the ``of_`` methods read better."""
        self._nanos = nanos

    @staticmethod
    def of_days(days: int) -> Duration:
        """A length of standard days of 24 hours."""
        return Duration.of_hours(days * 24)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """A length in hours."""
        return Duration.of_minutes(hours * 60)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """A length in minutes."""
        return Duration.of_seconds(minutes * 60)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """A length in seconds."""
        return Duration(round(seconds * _NANOS_PER_SECOND))

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """A length in milliseconds."""
        return Duration(round(millis * _NANOS_PER_MILLI))

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """A length in nanoseconds."""
        return Duration(nanos)

    def to_milliseconds(self) -> int:
        """The length in whole milliseconds, rounded towards minus infinity."""
        return self._nanos // _NANOS_PER_MILLI

    def to_millis(self) -> int:
        """The same, under Java's name."""
        return self.to_milliseconds()

    def to_nanos(self) -> int:
        """The length in nanoseconds."""
        return self._nanos

    def __eq__(self, other: object) -> bool:
        """Return whether both are durations of the same length."""
        return isinstance(other, Duration) and self._nanos == other._nanos

    def __lt__(self, other: Duration) -> bool:
        """Return whether this one is shorter."""
        return self._nanos < other._nanos

    def __hash__(self) -> int:
        """Equal durations have equal hashes."""
        return hash(self._nanos)

    def __repr__(self) -> str:
        """In the largest unit that divides it: ``Duration(10 s)``."""
        for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
            if self._nanos and self._nanos % (size * _NANOS_PER_MILLI) == 0:
                return f"Duration({self._nanos // (size * _NANOS_PER_MILLI)} {unit})"
        if self._nanos % _NANOS_PER_MILLI == 0:
            return f"Duration({self.to_milliseconds()} ms)"
        return f"Duration({self._nanos} ns)"


class Time(Duration):
    """A length of time under the names of PyFlink 1: ``Time.seconds(5)``."""

    __slots__ = ()

    def __init__(self, milliseconds: int) -> None:
        super().__init__(milliseconds * _NANOS_PER_MILLI)

    def __str__(self) -> str:
        """``5000 ms``, as PyFlink prints it."""
        return f"{self.to_milliseconds()} ms"

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """A length in milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """A length in seconds."""
        return Time.milliseconds(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """A length in minutes."""
        return Time.seconds(minutes * 60)

    @staticmethod
    def hours(hours: int) -> Time:
        """A length in hours."""
        return Time.minutes(hours * 60)

    @staticmethod
    def days(days: int) -> Time:
        """A length of standard days of 24 hours."""
        return Time.hours(days * 24)


#: What stands for a length of time; an integer is milliseconds.
DurationLike: TypeAlias = Duration | dt.timedelta | int


def milliseconds_of(length: DurationLike) -> int:
    """A length of time in whole milliseconds.

    Args:
        length: a Duration, Time or timedelta, or milliseconds.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(length, Duration):
        return length.to_milliseconds()
    if isinstance(length, dt.timedelta):
        return length // dt.timedelta(milliseconds=1)
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    message = (
        f"{length!r} is not a length of time: give a Duration, a timedelta or milliseconds (int)"
    )
    raise TypeError(message)


class Instant:
    """A point of time: seconds since 1970 (UTC) and nanoseconds within the second."""

    __slots__ = ("nanos", "seconds")

    def __init__(self, seconds: int, nanos: int) -> None:
        """Take seconds since 1970 and nanoseconds (0 to 999,999,999)."""
        self.seconds = seconds
        self.nanos = nanos

    def to_epoch_milli(self) -> int:
        """Whole milliseconds since 1970, rounded towards minus infinity."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MILLI

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """The point that many milliseconds after the start of 1970."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same point."""
        return (
            isinstance(other, Instant)
            and self.seconds == other.seconds
            and self.nanos == other.nanos
        )

    def __hash__(self) -> int:
        """Equal instants have equal hashes."""
        return hash((self.seconds, self.nanos))

    def __repr__(self) -> str:
        """As PyFlink prints it."""
        return f"Instant<{self.seconds}, {self.nanos}>"


def milliseconds(time: Time | Duration | int) -> int:
    """Return a length of time in milliseconds; plain integers are that already.

    Raises:
        ConfigurationError: it is not a length of time.
    """
    if isinstance(time, int):
        return time
    to_milliseconds = getattr(time, "to_milliseconds", None)
    if to_milliseconds is None:
        message = f"{time!r} is not a length of time; give a Duration, a Time or milliseconds"
        raise ConfigurationError(message)
    return int(to_milliseconds())
