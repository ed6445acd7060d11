"""Partitions of files, ``column=value`` directories as Hive's and Flink's: their names and writers.

The columns of the partition are in the names alone, not in the files.
"""

from __future__ import annotations

import datetime as dt
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pyarrow as pa

from millstream.connectors.files.sink import BatchSplitter
from millstream.connectors.files.source import partition_of
from millstream.contracts.batch import Batch
from millstream.errors import ExpressionError, PermanentSinkError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_filter
from millstream.expressions.java.date_time_formatter import formatter_of
from millstream.types.logical_types import DateType
from millstream.types.types import RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from millstream.expressions.nodes import Expression
    from millstream.types.logical_types import LogicalType


#: What Flink does not write into names of directories.
_SPECIAL: Final = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def escaped(text: str) -> str:
    """A text as part of a directory's name."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def value_text(value: object, default_name: str) -> str:
    """The value of a column in the name of a directory."""
    if value is None or value == "":
        return default_name
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def shown_value(value: Any, kind: LogicalType) -> object:
    """A value of SQL as that of an Arrow column."""
    if value is not None and isinstance(kind, DateType):
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    return value


def directory_of(texts: Iterable[tuple[str, str]]) -> str:
    """The directory of a partition, by its columns and their texts."""
    return "/".join(f"{escaped(name)}={escaped(text)}" for name, text in texts)


def values_of(directory: str) -> dict[str, str]:
    """The texts of a partition's columns, by its directory below the table's."""
    parts = (each.partition("=") for each in directory.split("/"))
    return {unquote(name): unquote(value) for name, _, value in parts}


class PartitionSplitter(BatchSplitter):
    """Deals rows out to the directories of their partitions.

    Args:
        columns: of the partition, from the top directory down.
        default_name: stands for NULL and for the empty text.
    """

    def __init__(self, columns: tuple[str, ...], default_name: str) -> None:
        self._columns = columns
        self._default_name = default_name

    def split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        arrow, kind = batch.arrow, batch.type_info
        names = arrow.schema.names
        texts = [self._texts(arrow.column(names.index(name))) for name in self._columns]
        places: dict[tuple[str, ...], list[int]] = {}
        for at, place in enumerate(zip(*texts, strict=True)):
            places.setdefault(place, []).append(at)
        kept = [at for at, name in enumerate(names) if name not in self._columns]
        rest = batch
        if isinstance(kind, RowTypeInfo):
            types = kind.get_field_types()
            rest = Batch(
                RowTypeInfo([types[at] for at in kept], [names[at] for at in kept]),
                arrow=arrow.select(kept),
                timestamps=batch.raw_timestamps,
                row_kinds=batch.row_kinds,
            )
        for values, indices in places.items():
            directory = directory_of(zip(self._columns, values, strict=True))
            yield directory, rest if len(places) == 1 else rest.take(indices)

    def _texts(self, column: pa.Array) -> list[str]:
        return [value_text(value, self._default_name) for value in column.to_pylist()]


class PartitionFilter:
    """Whether a file is read, by its path.

    Args:
        base: the path below which directories are partitions.
        columns: name of a column of the partition -> what makes its value of the text in the path.
        types: of these columns.
        default_name: the text that stands for NULL.
        condition: over these columns, in their order.
        time_zone: of the session.
    """

    def __init__(
        self,
        base: str,
        columns: Mapping[str, Callable[[str], Any]],
        types: Sequence[pa.DataType],
        default_name: str,
        condition: Expression,
        time_zone: str,
    ) -> None:
        self._base = base
        self._columns = dict(columns)
        self._types = list(types)
        self._default_name = default_name
        self._condition = condition
        self._time_zone = time_zone
        self._known: dict[tuple[str, ...], bool] = {}

    def __call__(self, path: str) -> bool:
        found = partition_of(path.removeprefix(self._base))
        if not self._columns.keys() <= found.keys():
            return True  # reading it says what is wrong
        texts = tuple(found[name] for name in self._columns)
        if texts not in self._known:
            self._known[texts] = self._holds(texts)
        return self._known[texts]

    def _holds(self, texts: tuple[str, ...]) -> bool:
        try:
            values = [
                None if text == self._default_name else parse(text)
                for text, parse in zip(texts, self._columns.values(), strict=True)
            ]
        except (ValueError, ArithmeticError):
            return True
        arrays = [pa.array([v], kind) for v, kind in zip(values, self._types, strict=True)]
        row = pa.RecordBatch.from_arrays(arrays, names=list(self._columns))
        context = EvaluationContext(time_zone=self._time_zone)
        try:
            return bool(compile_filter(self._condition).evaluate(row, context)[0].as_py())
        except ExpressionError:
            return True  # what stands beside it may keep the filter from being asked of any row


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
    """What is done when a partition is complete; called in the driver, after its files' commit.

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
                f"partition {values} has no time: {text!r} does not match {wanted!r} ({error}); "
                "'partition.time-extractor.timestamp-pattern' defines how columns make one"
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
        delay: milliseconds after that time, or after the first file.
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
