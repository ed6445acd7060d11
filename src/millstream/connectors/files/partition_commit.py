"""When a partition of files is complete, and what is done then: Flink's partition commit.

What it is: the policies (a ``_SUCCESS`` file, a class of the user), the time that the values of a
partition say, and the rule by which a partition is complete: so long after its first file, or when
the watermark has passed its time.
What it is not: the keeping of what is still open (``connectors/files/progress.py``).

Read next: ``connectors/files/table_sink.py``.
"""

from __future__ import annotations

import datetime as dt
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from millstream.connectors.files.partition_names import values_of
from millstream.errors import PermanentSinkError
from millstream.expressions.java.date_time_formatter import formatter_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = [
    "PartitionCommit",
    "PartitionCommitPolicy",
    "PartitionContext",
    "PartitionTime",
    "SuccessFile",
]

_PLAIN: Final = re.compile(
    r"(\d+)-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?"
)
_MILLI: Final = 1_000_000


@dataclass(frozen=True)
class PartitionContext:
    """What a policy is told: the names are those of Flink's ``PartitionCommitPolicy.Context``."""

    table: tuple[str, str, str]
    path: Path
    #: The texts of the columns, from the top directory down.
    spec: dict[str, str]

    def catalog_name(self) -> str:
        """The catalog of the table."""
        return self.table[0]

    def database_name(self) -> str:
        """The database of the table."""
        return self.table[1]

    def table_name(self) -> str:
        """The table."""
        return self.table[2]

    def partition_keys(self) -> list[str]:
        """The columns."""
        return list(self.spec)

    def partition_values(self) -> list[str]:
        """Their texts."""
        return list(self.spec.values())

    def partition_path(self) -> Path:
        """The directory."""
        return self.path

    def partition_spec(self) -> dict[str, str]:
        """The texts by the columns."""
        return dict(self.spec)


class PartitionCommitPolicy(ABC):
    """What is done when a partition is complete; called in the driver, behind its files' commit.

    It may be called again for the same partition: after a crash, and when late rows came.
    """

    @abstractmethod
    def commit(self, context: PartitionContext) -> None:
        """Do it; an exception fails the commit, which is tried again."""


@dataclass(frozen=True)
class SuccessFile(PartitionCommitPolicy):
    """An empty file that says that a partition is complete."""

    name: str = "_SUCCESS"

    def commit(self, context: PartitionContext) -> None:
        """Make it, or make it newer."""
        (context.partition_path() / self.name).touch()


@dataclass(frozen=True)
class PartitionTime:
    """The time that the values of a partition say.

    Args:
        pattern: a text with ``$column`` for values; None: the first value.
        formatter: Java's pattern of that text; None: ``yyyy-MM-dd[ HH:mm:ss]``.
    """

    pattern: str | None = None
    formatter: str | None = None

    def millis(self, values: dict[str, str], zone: str) -> int:
        """Milliseconds since 1970, of a clock in a time zone.

        Raises:
            PermanentSinkError: the values say no time.
        """
        text = self.pattern
        if text is None:
            text = next(iter(values.values()))
        else:
            text = self._named(values).sub(lambda found: values[found[1]], text)
        try:
            local = self._local(text)
            return round(local.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
        except (ValueError, ArithmeticError) as error:
            wanted = self.formatter or "yyyy-MM-dd HH:mm:ss"
            message = (
                f"partition {values} has no time: {text!r} is not as {wanted!r} says ({error}); "
                "'partition.time-extractor.timestamp-pattern' says how columns make one"
            )
            raise PermanentSinkError(message) from error

    def columns(self, names: Sequence[str]) -> list[str]:
        """The columns of a partition that say its time."""
        return list(names[:1]) if self.pattern is None else self._named(names).findall(self.pattern)

    @staticmethod
    def _named(names: Iterable[str]) -> re.Pattern[str]:
        """``$`` and a column, the longest that fits."""
        longest = sorted(names, key=len, reverse=True)
        return re.compile(rf"\$({'|'.join(map(re.escape, longest))})")

    def _local(self, text: str) -> dt.datetime:
        if self.formatter is not None:
            nanos = formatter_of(self.formatter).read(text)
            if nanos is None:
                message = "it does not match"
                raise ValueError(message)
            return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=nanos // _MILLI)  # noqa: DTZ001
        found = _PLAIN.fullmatch(text)
        if found is None:
            message = "no date"
            raise ValueError(message)
        *parts, fraction = found.groups()
        micros = int((fraction or "").ljust(6, "0")[:6])
        year, month, day, hour, minute, second = (int(each or 0) for each in parts)
        return dt.datetime(year, month, day, hour, minute, second, micros // 1000 * 1000)  # noqa: DTZ001


@dataclass(frozen=True)
class PartitionCommit:
    """How partitions of a table are committed.

    Args:
        table: catalog, database, name.
        policies: what is done.
        time: the time of partitions; None: they are complete by the clock.
        delay: milliseconds behind that time, or behind the first file.
        zone: the time zone of the watermark's clock.
        default_name: stands for NULL; a partition whose time would be made of it has none.
    """

    table: tuple[str, str, str]
    policies: tuple[PartitionCommitPolicy, ...]
    time: PartitionTime | None = None
    delay: int = 0
    zone: str = "UTC"
    default_name: str = ""

    def time_of(self, directory: str) -> int | None:
        """The time of a partition; None if it has none.

        Raises:
            PermanentSinkError: its values say no time.
        """
        values = values_of(directory)
        if self.time is None:
            return None
        if self.default_name in (values[each] for each in self.time.columns(list(values))):
            return None
        return self.time.millis(values, self.zone)

    def is_complete(self, directory: str, first: int, watermark: int | None, now: int) -> bool:
        """Whether a partition is complete.

        Args:
            directory: of the partition.
            first: when its first file came, in milliseconds.
            watermark: how far event time has got everywhere; None: nobody knows.
            now: the time of the clock.
        """
        if self.time is None:
            return self.delay == 0 or now > first + self.delay
        due = self.time_of(directory)
        return due is not None and watermark is not None and watermark > due + self.delay

    def run(self, base: Path, directory: str) -> None:
        """Do what is to be done with a partition that is complete."""
        context = PartitionContext(self.table, base / directory, values_of(directory))
        for policy in self.policies:
            policy.commit(context)
