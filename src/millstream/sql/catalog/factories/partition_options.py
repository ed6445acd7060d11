"""Options of partitions of files: when they are complete, and what is done then.

What it is: ``sink.partition-commit.*`` and ``partition.time-extractor.*`` of a filesystem table,
read and checked.
What it is not: the commit (``connectors/files/partition_commit.py``).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.connectors.files.partition_commit import (
    PartitionCommit,
    PartitionCommitPolicy,
    PartitionContext,
    PartitionTime,
    SuccessFile,
)
from millstream.errors import ValidationError
from millstream.expressions.java.date_time_formatter import formatter_of
from millstream.sql.catalog.options import choice, duration, text

if TYPE_CHECKING:
    from millstream.sql.catalog.connectors import FactoryContext
    from millstream.sql.catalog.options import Options

__all__ = ["PARTITION_OPTIONS", "partition_commit"]

_COMMIT: Final = "sink.partition-commit."
_KIND: Final = _COMMIT + "policy.kind"
_CLASS: Final = _COMMIT + "policy.class"
_TIME: Final = "partition.time-extractor."
PARTITION_OPTIONS: Final = (
    choice(_COMMIT + "trigger", ("process-time", "partition-time"), "process-time"),
    duration(_COMMIT + "delay", 0),
    text(_COMMIT + "watermark-time-zone", "UTC"),
    text(_KIND),
    text(_CLASS),
    text(_CLASS + ".parameters"),
    text(_COMMIT + "success-file.name", "_SUCCESS"),
    choice(_TIME + "kind", ("default",), "default"),
    text(_TIME + "timestamp-pattern"),
    text(_TIME + "timestamp-formatter"),
)


@dataclass(frozen=True)
class _Custom(PartitionCommitPolicy):
    """A policy of the user: a class, or what makes one, by its place."""

    place: str
    parameters: tuple[str, ...] = ()

    def made(self) -> Any:
        """The user's policy."""
        module, _, name = self.place.rpartition(".")
        return getattr(importlib.import_module(module), name)(*self.parameters)

    def commit(self, context: PartitionContext) -> None:
        self.made().commit(context)


def partition_commit(context: FactoryContext, options: Options) -> PartitionCommit | None:
    """How partitions of a table are committed; None: they are not.

    Raises:
        ValidationError: the options contradict each other, or name what is not there.
    """
    given = [key for key in options.given if key.startswith(_COMMIT)]
    if not given:
        return None
    if not context.table.partition_keys:
        message = f"{context.owner}: '{given[0]}' is for tables PARTITIONED BY columns."
        raise ValidationError(message)
    if options[_KIND] is None:
        message = f"{context.owner}: '{given[0]}' needs '{_KIND}', or nothing is committed."
        raise ValidationError(message)
    zone = options[_COMMIT + "watermark-time-zone"]
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"{context.owner}: '{_COMMIT}watermark-time-zone': {error}"
        raise ValidationError(message) from error
    by_time = options[_COMMIT + "trigger"] == "partition-time"
    return PartitionCommit(
        context.identifier.parts,
        _policies(context, options),
        _time(context, options) if by_time else None,
        options[_COMMIT + "delay"],
        zone,
        options["partition.default-name"],
    )


def _policies(context: FactoryContext, options: Options) -> tuple[PartitionCommitPolicy, ...]:
    found: list[PartitionCommitPolicy] = []
    for kind in (each.strip() for each in options[_KIND].split(",")):
        if kind == "success-file":
            found.append(_success_file(context, options))
        elif kind == "custom":
            found.append(_custom(context, options))
        elif kind == "metastore":
            message = (
                "Can not configure a 'metastore' partition commit policy for a file system table. "
                "You can only configure 'metastore' partition commit policy for a hive table."
            )
            raise ValidationError(message)
        else:
            message = (
                f"{context.owner}: '{_KIND}' = '{kind}': it must be of success-file and custom."
            )
            raise ValidationError(message)
    return tuple(found)


def _success_file(context: FactoryContext, options: Options) -> SuccessFile:
    name = options[_COMMIT + "success-file.name"]
    if not name.startswith((".", "_")) or "/" in name:
        message = (
            f"{context.owner}: '{_COMMIT}success-file.name' = '{name}' must begin with '_' or '.', "
            "or it would be read as rows of the table."
        )
        raise ValidationError(message)
    return SuccessFile(name)


def _custom(context: FactoryContext, options: Options) -> _Custom:
    place, parameters = options[_CLASS], options[_CLASS + ".parameters"]
    if place is None:
        message = f"{context.owner}: '{_KIND}' = 'custom' needs '{_CLASS}': 'module.Class'."
        raise ValidationError(message)
    made = _Custom(place, () if parameters is None else tuple(parameters.split(";")))
    try:
        policy = made.made()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        message = f"{context.owner}: '{_CLASS}' = '{place}' cannot be made: {error}."
        raise ValidationError(message) from error
    if not callable(getattr(policy, "commit", None)):
        message = f"{context.owner}: '{_CLASS}' = '{place}' has no method commit(context)."
        raise ValidationError(message)
    return made


def _time(context: FactoryContext, options: Options) -> PartitionTime:
    formatter = options[_TIME + "timestamp-formatter"]
    if formatter is not None:
        try:
            formatter_of(formatter)
        except ValueError as error:
            message = f"{context.owner}: '{_TIME}timestamp-formatter': {error}"
            raise ValidationError(message) from error
    return PartitionTime(options[_TIME + "timestamp-pattern"], formatter)
