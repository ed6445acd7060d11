"""Options of Flink's connectors and formats that tables here do not apply.

As options of jobs (``configuration/flink_options.py``): one is refused where it would change
results, and logged once as having no effect otherwise.  ``tests/options`` checks them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.configuration.accepted import accept
from millstream.configuration.flink_options import FlinkOption
from millstream.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["UnappliedOption", "unapplied_option", "unapplied_options"]


@dataclass(frozen=True, slots=True)
class UnappliedOption:
    """An option of Flink's of which only the default is taken, or that has no effect."""

    option: FlinkOption
    #: Why it has none, or what holds and what to do instead.
    reason: str
    is_refused: bool = False

    def check(self, owner: str, key: str, value: str) -> None:
        """Log that the option has no effect.

        Args:
            owner: the table's connector, as in errors.
            key: as the table has it.
            value: the text that it is set to.

        Raises:
            ValidationError: it is refused.
        """
        if self.option.is_default(value):
            return
        if self.is_refused:
            message = f"{owner}: option '{key}' = '{value}' is not in this release: {self.reason}."
            raise ValidationError(message)
        accept(f"{owner}: '{key}'", self.reason)


def _ignored(key: str, kind: str, default: str, reason: str) -> UnappliedOption:
    return UnappliedOption(FlinkOption(key, kind, default, ()), reason)


def _refused(key: str, kind: str, default: str, instead: str) -> UnappliedOption:
    return UnappliedOption(FlinkOption(key, kind, default, ()), instead, is_refused=True)


_VERSION: Final = _ignored("property-version", "int", "1", "tables have one version of options")
_ALIGNMENT: Final = "sources of tables are not aligned; state waits for the slower one"
_SCANS: Final = (
    _VERSION,
    _ignored("scan.parallelism", "int", "", "sources have the parallelism of the job"),
    _ignored("scan.watermark.alignment.group", "string", "", _ALIGNMENT),
    _ignored("scan.watermark.alignment.max-drift", "duration", "", _ALIGNMENT),
    _ignored("scan.watermark.alignment.update-interval", "duration", "1 s", _ALIGNMENT),
    _refused(
        "scan.watermark.emit.strategy",
        "enum",
        "on-periodic",
        "watermarks follow every batch of rows; leave the option out",
    ),
)
_FILE_PER_CHECKPOINT: Final = "a task writes one file, or one per partition, for each checkpoint"
_RELOADED: Final = "set lookup.full-cache.periodic-reload.interval"
_FILES: Final = (
    _ignored("auto-compaction", "boolean", "false", _FILE_PER_CHECKPOINT),
    _ignored("compaction.file-size", "memory", "", _FILE_PER_CHECKPOINT),
    _ignored("compaction.parallelism", "int", "", _FILE_PER_CHECKPOINT),
    _ignored("sink.rolling-policy.check-interval", "duration", "1 min", _FILE_PER_CHECKPOINT),
    _ignored("sink.rolling-policy.file-size", "memory", "128 mb", _FILE_PER_CHECKPOINT),
    _ignored("sink.rolling-policy.inactivity-interval", "duration", "30 min", _FILE_PER_CHECKPOINT),
    _ignored("sink.rolling-policy.rollover-interval", "duration", "30 min", _FILE_PER_CHECKPOINT),
    _ignored("sink.shuffle-by-partition.enable", "boolean", "false", _FILE_PER_CHECKPOINT),
    _ignored("source.report-statistics", "enum", "all", "plans do without statistics of files"),
    _refused(
        "source.path.regex-pattern",
        "string",
        "",
        "all files of the path are read; give them a directory of their own",
    ),
    _refused(
        "partition.time-extractor.class",
        "string",
        "",
        "Java classes are not called; set partition.time-extractor.timestamp-pattern",
    ),
    _ignored(
        "lookup.full-cache.periodic-reload.schedule-mode",
        "enum",
        "fixed_delay",
        "the next reload is an interval after the last one",
    ),
    _refused("lookup.full-cache.timed-reload.iso-time", "string", "", _RELOADED),
    _refused("lookup.full-cache.timed-reload.interval-in-days", "int", "1", _RELOADED),
)
_CONNECTIONS: Final = "connections are libpq's; set its parameters in the url"
_TRANSACTIONS: Final = "rows of a checkpoint are written in one transaction"
_CACHE: Final = "set lookup.cache to partial, and"
_JDBC: Final = (
    _ignored("compatible-mode", "string", "", "the database is PostgreSQL"),
    _ignored("connection.max-retry-timeout", "duration", "1 min", _CONNECTIONS),
    _ignored("scan.fetch-size", "int", "0", "rows are fetched in batches"),
    _ignored("scan.auto-commit", "boolean", "true", "rows are fetched in batches"),
    _ignored("filter.handling.policy", "enum", "always", "filters are computed in the job"),
    _refused(
        "scan.partition.lower-bound",
        "long",
        "",
        "all rows are read, by ranges that are found in the table; filter in the query",
    ),
    _refused(
        "scan.partition.upper-bound",
        "long",
        "",
        "all rows are read, by ranges that are found in the table; filter in the query",
    ),
    _refused("lookup.cache.max-rows", "long", "-1", f"{_CACHE} lookup.partial-cache.max-rows"),
    _refused(
        "lookup.cache.ttl", "duration", "10 s", f"{_CACHE} lookup.partial-cache.expire-after-write"
    ),
    _refused(
        "lookup.cache.caching-missing-key",
        "boolean",
        "true",
        f"{_CACHE} lookup.partial-cache.cache-missing-key",
    ),
    _ignored("sink.buffer-flush.max-rows", "int", "100", _TRANSACTIONS),
    _ignored("sink.buffer-flush.interval", "duration", "1 s", _TRANSACTIONS),
    _ignored(
        "sink.max-retries",
        "int",
        "3",
        "millstream.commit-retry.attempts says how often, for all sinks",
    ),
)
_KAFKA: Final = (
    _ignored(
        "sink.transaction-naming-strategy",
        "enum",
        "incrementing",
        "transactions are named so that a restarted job finds its own",
    ),
)
_CONNECTORS: Final[dict[str, tuple[UnappliedOption, ...]]] = {
    "blackhole": (_VERSION,),
    "datagen": _SCANS,
    "filesystem": (*_SCANS, *_FILES),
    "jdbc": (*_SCANS, *_JDBC),
    "kafka": (*_SCANS, *_KAFKA),
    "print": (_VERSION,),
    "upsert-kafka": (*_SCANS, *_KAFKA),
}
_FORMATS: Final[dict[str, tuple[UnappliedOption, ...]]] = {
    "csv": (
        _refused(
            "allow-trailing-comma", "boolean", "true", "a delimiter at the end of a line is taken"
        ),
        _refused("empty-string-as-null", "boolean", "false", "use NULLIF(column, '')"),
        _refused(
            "fail-on-missing-columns", "boolean", "false", "columns that a line lacks are NULL"
        ),
        _refused("trim-spaces", "boolean", "false", "use TRIM(column)"),
        _refused(
            "write-bigdecimal-in-scientific-notation",
            "boolean",
            "true",
            "cast the column to STRING for another form",
        ),
    ),
    "json": (
        _ignored("decode.json-parser.enabled", "boolean", "true", "there is one parser of JSON"),
    ),
    "parquet": (
        _refused("utc-timezone", "boolean", "false", "timestamps are written without a time zone"),
    ),
}
_FORMAT_KEY: Final = re.compile(r"(?:(?:key|value)\.)?([a-z]+)\.(.+)")


def unapplied_option(owner: str, key: str) -> UnappliedOption | None:
    """Return what a table does with an option that its factory does not have.

    Args:
        owner: the factory, as errors name it: ``connector 'kafka'``.
        key: the option.

    Returns:
        None if Flink does not have it either.
    """
    for each in _CONNECTORS.get(owner.removeprefix("connector ").strip("'"), ()):
        if each.option.key == key:
            return each
    match = _FORMAT_KEY.fullmatch(key)
    found = () if match is None else _FORMATS.get(match[1], ())
    return next((each for each in found if match and each.option.key == match[2]), None)


def unapplied_options() -> Iterator[tuple[str, str, UnappliedOption]]:
    """Yield connector or format, key and option, for the list of all."""
    owners: Mapping[str, tuple[UnappliedOption, ...]] = {**_CONNECTORS, **_FORMATS}
    for owner, options in owners.items():
        for each in options:
            prefix = f"{owner}." if owner in _FORMATS else ""
            yield owner, prefix + each.option.key, each
