"""Options of connectors and formats: their types, defaults and validation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import option
from millstream.configuration.flink_options import FlinkOption, accept
from millstream.contracts.lookup import LookupCaching
from millstream.errors import MillstreamError, ValidationError
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


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
        "all files of the path are read; give them a separate directory",
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
        "millstream.commit-retry.attempts sets how often, for all sinks",
    ),
)
_WHOLE: Final = "the snapshot is read as a whole, within one checkpoint"
_CDC: Final = (
    _ignored("scan.incremental.snapshot.enabled", "boolean", "false", _WHOLE),
    _ignored("scan.incremental.snapshot.chunk.size", "int", "8096", _WHOLE),
    _ignored("scan.incremental.snapshot.chunk.key-column", "string", "", _WHOLE),
    _ignored("scan.incremental.snapshot.backfill.skip", "boolean", "false", _WHOLE),
    _ignored("scan.incremental.close-idle-reader.enabled", "boolean", "false", _WHOLE),
    _ignored("scan.snapshot.fetch.size", "int", "1024", "rows are fetched in batches"),
    _ignored("connect.timeout", "duration", "30 s", "connecting is limited to 10 s"),
    _ignored("connect.max-retries", "int", "3", "set restart-strategy for the job"),
    _ignored("connection.pool.size", "int", "20", "a task has one connection"),
    _ignored(
        "scan.lsn-commit.checkpoints-num-delay",
        "int",
        "3",
        "each completed checkpoint confirms its position",
    ),
    _refused(
        "scan.read-changelog-as-append-only.enabled",
        "boolean",
        "false",
        "leave the option out; rows are changes",
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
    "postgres-cdc": (*_SCANS, *_CDC),
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


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a connector or format."""

    key: str
    parse: Callable[[str], Any]
    default: Any = None
    required: bool = False
    #: The values that it may have, if they are few.
    choices: tuple[str, ...] = ()
    #: Whether its value is a map; an entry may be an option that begins with the key and a dot.
    is_map: bool = False


def text(key: str, default: str | None = None, *, required: bool = False) -> Option:
    """An option that is a text."""
    return Option(key, str, default, required)


def mapping(key: str) -> Option:
    """An option that is a map: ``'k' = 'a:1,b:2'``, or ``'k.a' = '1'`` for an entry."""
    return Option(key, option.parse_map, is_map=True)


def integer(key: str, default: int | None = None) -> Option:
    """An option that is a whole number."""
    return Option(key, option.parse_integer, default)


def number(key: str, default: float | None = None) -> Option:
    """An option that is a number."""
    return Option(key, option.parse_float, default)


def boolean(key: str, default: bool | None = None) -> Option:  # noqa: FBT001 - a value
    """An option that is true or false."""
    return Option(key, option.parse_boolean, default, choices=("true", "false"))


def duration(key: str, default: int | None = None) -> Option:
    """An option that is a length of time; its value is in milliseconds."""
    return Option(key, option.parse_duration, default)


#: Of tables with ``WATERMARK FOR``; read where watermarks are made.
IDLE_TIMEOUT: Final = duration("scan.watermark.idle-timeout")


def choice(key: str, values: Sequence[str], default: str | None = None) -> Option:
    """An option that is one of some words."""

    def parse(given: str) -> str:
        if given.lower() in values:
            return given.lower()
        hint = did_you_mean(given, values)
        message = f"it must be one of {', '.join(values)}, not '{given}'.{hint}"
        raise ValidationError(message)

    return Option(key, parse, default, choices=tuple(values))


class Options:
    """The options of one table, read by a factory.

    Args:
        owner: who reads them, for errors: ``connector 'kafka'``.
        given: the table's options.
        known: what the factory has.
        prefixes: options that begin so are taken as they are.

    Raises:
        ValidationError: one is unknown, missing or has no sensible value.
    """

    def __init__(
        self,
        owner: str,
        given: Mapping[str, str],
        known: Sequence[Option],
        prefixes: Sequence[str] = (),
    ) -> None:
        self.owner = owner
        self.given = given
        self._known = {option.key: option for option in known}
        self.prefixes = (*prefixes, *(f"{each.key}." for each in known if each.is_map))
        for key in given:
            if key not in self._known and not key.startswith(self.prefixes or ("\0",)):
                self._check_unapplied(key)
        missing = [key for key, each in self._known.items() if each.required and key not in given]
        if missing:
            word = "options" if len(missing) > 1 else "the option"
            named = listed(f"'{key}'" for key in missing)
            message = f"{owner} needs {word} {named}."
            raise ValidationError(message)
        self._values = {key: self._parsed(key) for key in self._known}

    def _check_unapplied(self, key: str) -> None:
        """Log or refuse an option that is not one of the factory's.

        Raises:
            ValidationError: it is refused, or Flink does not have it either.
        """
        unapplied = unapplied_option(self.owner, key)
        if unapplied is None:
            raise self._unknown(key)
        unapplied.check(self.owner, key, self.given[key])

    def _unknown(self, key: str) -> ValidationError:
        hint = did_you_mean(key, self._known)
        known = listed(sorted(f"'{each}'" for each in self._known)) or "none"
        return ValidationError(f"{self.owner} has no option '{key}'.{hint} It has {known}.")

    def _parsed(self, key: str) -> Any:
        option = self._known[key]
        if option.is_map:
            return self._map(option)
        if key not in self.given:
            return option.default
        try:
            return option.parse(self.given[key])
        except (MillstreamError, ValueError) as error:
            message = f"{self.owner}: invalid value for option '{key}': {error}"
            raise ValidationError(message) from error

    def _map(self, option: Option) -> dict[str, str]:
        whole = option.parse(self.given[option.key]) if option.key in self.given else {}
        return {**whole, **self.under(f"{option.key}.")}

    def __getitem__(self, key: str) -> Any:
        """The value of an option, or its default."""
        return self._values[key]

    def under(self, prefix: str) -> dict[str, str]:
        """The options that begin with a prefix, without it."""
        return {
            key[len(prefix) :]: value for key, value in self.given.items() if key.startswith(prefix)
        }


_PARTIAL: Final = "lookup.partial-cache."

LOOKUP_OPTIONS: Final[tuple[Option, ...]] = (
    choice("lookup.cache", ("none", "partial"), "none"),
    integer(_PARTIAL + "max-rows"),
    duration(_PARTIAL + "expire-after-access"),
    duration(_PARTIAL + "expire-after-write"),
    boolean(_PARTIAL + "cache-missing-key", default=True),
    integer("lookup.max-retries", 3),
)


def caching_of(options: Options) -> LookupCaching | None:
    """Return what a table's options say of the cache; None: there is none.

    Raises:
        ValidationError: it would grow for good, or a number makes no sense.
    """
    retries = options["lookup.max-retries"]
    if retries < 0:
        message = f"{options.owner}: 'lookup.max-retries' is {retries}; it must be at least 0."
        raise ValidationError(message)
    if options["lookup.cache"] == "none":
        return None
    limits = [options[_PARTIAL + each] for each in ("max-rows", "expire-after-access")]
    limits.append(options[_PARTIAL + "expire-after-write"])
    if all(each is None for each in limits):
        message = (
            f"{options.owner}: a partial cache needs '{_PARTIAL}max-rows', "
            f"'{_PARTIAL}expire-after-access' or '{_PARTIAL}expire-after-write'."
        )
        raise ValidationError(message)
    if any(each is not None and each <= 0 for each in limits):
        message = f"{options.owner}: limits of the partial cache must be greater than 0."
        raise ValidationError(message)
    rows, access, write = limits
    return LookupCaching(rows, access, write, options[_PARTIAL + "cache-missing-key"])
