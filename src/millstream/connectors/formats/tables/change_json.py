"""Changes of databases as JSON: ``debezium-json``, ``canal-json``, ``maxwell-json``.

What it is: what the three tools write of a table's changes, read as a changelog with both halves
of each update, and a changelog written as they would, as Flink does.
What it is not: a client of a database.

Read next: ``connectors/formats/tables/json_rows.py``.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.connectors.formats.tables.change_blocks import (
    CANAL,
    DEBEZIUM,
    MAXWELL,
    ChangeBlocks,
)
from millstream.connectors.formats.tables.codec import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    RowDecoder,
    RowEncoder,
)
from millstream.connectors.formats.tables.json_rows import (
    JsonRowEncoder,
    json_as_text,
    parsed_json,
    row_reader,
)
from millstream.connectors.formats.tables.texts import integer
from millstream.types.logical_types import (
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.connectors.formats.tables.change_blocks import Dialect
    from millstream.connectors.formats.tables.codec import Changes
    from millstream.connectors.formats.tables.json_options import JsonOptions
    from millstream.types.logical_types import RowType

__all__ = [
    "CanalDecoder",
    "CanalEncoder",
    "DebeziumDecoder",
    "DebeziumEncoder",
    "MaxwellDecoder",
    "MaxwellEncoder",
]

_STRING: Final = VarCharType()
_TIME: Final = LocalZonedTimestampType(precision=3)
Change = tuple[int, "Sequence[Any]"]


class _ChangeDecoder(RowDecoder):
    """What the three share: reading rows, and what becomes of messages that do not parse."""

    dialect: ClassVar[Dialect]
    #: Key of metadata -> type, and where it stands in a message.
    known: ClassVar[Mapping[str, tuple[LogicalType, tuple[str, ...]]]] = {}

    def __init__(self, row: RowType, options: JsonOptions, metadata: Sequence[str] = ()) -> None:
        super().__init__(row)
        self._options = replace(options, fail_on_missing_field=False)
        self._wanted = tuple(metadata)
        self._reader: Callable[[Any], dict[str, Any]] | None = None
        self._blocks: ChangeBlocks | None = None
        #: Whether nothing of a message counts but what its dialect says.
        self._is_plain = True
        row_reader(row, self._options)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made of closures."""
        return self.__dict__ | {"_reader": None, "_blocks": None}

    def decode(self, message: bytes | None) -> list[Change]:
        if not message:
            return []
        try:
            root = parsed_json(message)
            if not isinstance(root, dict):
                reason = "it is no JSON object"
                raise ValueError(reason)  # noqa: TRY004, TRY301 - as all that does not parse
            found = self.changes(root)
            if self._wanted and found:
                more = tuple(self._said(root, key) for key in self._wanted)
                found = [(kind, (*values, *more)) for kind, values in found]
        except ValueError:
            if self._options.ignore_parse_errors:
                return []
            raise
        return found

    def changes_at_once(self, messages: Sequence[bytes]) -> Changes | None:
        if self._wanted or not self._is_plain:
            return None
        if self._blocks is None:
            self._blocks = ChangeBlocks(self.row, self.dialect, iso=bool(self._options.iso))
        return self._blocks.read(messages)

    def narrowed(self, row: RowType) -> RowDecoder:
        """Those fields alone of the rows in a message."""
        made = copy(self)
        made.row, made._reader, made._blocks = row, None, None  # noqa: SLF001 - of the same class
        return made

    @abstractmethod
    def changes(self, root: dict[str, Any]) -> list[Change]:
        """The changes of a message."""

    def values(self, node: Any, where: str) -> list[Any]:
        """A row of the table."""
        if node is None:
            message = f"the field {where!r} is missing or null"
            raise ValueError(message)
        if self._reader is None:
            self._reader = row_reader(self.row, self._options)
        return list(self._reader(node).values())

    def _said(self, root: Any, key: str) -> Any:
        kind, path = self.known[key]
        for step in path:
            root = root.get(step) if isinstance(root, dict) else None
        if root is None:
            return None
        if isinstance(kind, LocalZonedTimestampType):
            return integer(json_as_text(root), 64)
        if not isinstance(kind, MapType):
            return json_as_text(root)
        if not isinstance(root, dict):
            message = f"the field {path[-1]!r} is no object"
            raise ValueError(message)  # noqa: TRY004 - as all that does not parse
        return [(name, None if each is None else json_as_text(each)) for name, each in root.items()]


def _unknown_kind(*, field: str, value: Any) -> ValueError:
    return ValueError(f'unknown "{field}" value {value!r}')


class DebeziumDecoder(_ChangeDecoder):
    """Envelopes of Debezium: ``before``, ``after``, ``op``.

    Args:
        row: the table.
        options: of JSON.
        schema_include: whether the envelope stands in ``payload`` beside a ``schema``.
        metadata: keys that are wanted.
    """

    dialect = DEBEZIUM
    known: ClassVar[Mapping[str, tuple[LogicalType, tuple[str, ...]]]] = {
        "schema": (_STRING, ("schema",)),
        "ingestion-timestamp": (_TIME, ("ts_ms",)),
        "source.timestamp": (_TIME, ("source", "ts_ms")),
        "source.database": (_STRING, ("source", "db")),
        "source.schema": (_STRING, ("source", "schema")),
        "source.table": (_STRING, ("source", "table")),
        "source.properties": (MapType(_STRING, _STRING), ("source",)),
    }

    def __init__(
        self,
        row: RowType,
        options: JsonOptions,
        *,
        schema_include: bool,
        metadata: Sequence[str] = (),
    ) -> None:
        super().__init__(row, options, metadata)
        self._schema_include = schema_include
        self._is_plain = not schema_include

    def changes(self, root: dict[str, Any]) -> list[Change]:
        envelope = root.get("payload") if self._schema_include else root
        if not isinstance(envelope, dict):
            message = "the field 'payload' is missing or no object"
            raise ValueError(message)  # noqa: TRY004 - as all that does not parse
        kind = envelope.get("op")
        if kind in {"c", "r"}:
            return [(INSERT, self.values(envelope.get("after"), "after"))]
        if kind == "u":
            before = self._before(envelope, "UPDATE")
            return [
                (UPDATE_BEFORE, before),
                (UPDATE_AFTER, self.values(envelope.get("after"), "after")),
            ]
        if kind == "d":
            return [(DELETE, self._before(envelope, "DELETE"))]
        raise _unknown_kind(field="op", value=kind)

    def _before(self, envelope: dict[str, Any], kind: str) -> list[Any]:
        before = envelope.get("before")
        if before is None:
            message = (
                f'The "before" field of {kind} message is null, if you are using Debezium '
                "Postgres Connector, please check the Postgres table has been set REPLICA "
                "IDENTITY to FULL level."
            )
            raise ValueError(message)
        return self.values(before, "before")

    def _said(self, root: Any, key: str) -> Any:
        # The schema stands beside the payload, all else in it.
        inside = self._schema_include and key != "schema"
        return super()._said(root.get("payload") if inside else root, key)


class _NamedDecoder(_ChangeDecoder):
    """Messages that name what was done by ``type``, with rows in ``data`` and ``old``."""

    def _updated(self, after: Any, old: Any) -> list[Change]:
        """``old`` holds what has changed alone."""
        new = self.values(after, "data")
        before = self.values(old, "old")
        given = old if isinstance(old, dict) else {}
        before = [
            value if self.is_changed(value, given, name) else new[place]
            for place, (name, value) in enumerate(zip(self.row.names, before, strict=True))
        ]
        return [(UPDATE_BEFORE, before), (UPDATE_AFTER, new)]

    @staticmethod
    def is_changed(value: Any, old: Mapping[str, Any], name: str) -> bool:
        """Whether ``old`` says what a field was."""
        return value is not None or name in old


class CanalDecoder(_NamedDecoder):
    """Messages of Canal: lists of rows in ``data`` and ``old``, and ``type``.

    Args:
        row: the table.
        options: of JSON.
        database: a regular expression that the database's whole name must match; None: any.
        table: the same of the table.
        metadata: keys that are wanted.
    """

    known: ClassVar[Mapping[str, tuple[LogicalType, tuple[str, ...]]]] = {
        "database": (_STRING, ("database",)),
        "table": (_STRING, ("table",)),
        "ingestion-timestamp": (_TIME, ("ts",)),
        "event-timestamp": (_TIME, ("es",)),
    }
    dialect = CANAL

    def __init__(
        self,
        row: RowType,
        options: JsonOptions,
        *,
        database: str | None = None,
        table: str | None = None,
        metadata: Sequence[str] = (),
    ) -> None:
        super().__init__(row, options, metadata)
        pairs = (("database", database), ("table", table))
        self._filters = [(name, re.compile(each)) for name, each in pairs if each is not None]
        self._is_plain = not self._filters

    def changes(self, root: dict[str, Any]) -> list[Change]:
        for name, pattern in self._filters:
            if not pattern.fullmatch(str(root.get(name))):
                return []
        kind, data = root.get("type"), root.get("data")
        if kind == "CREATE":  # a statement of the database's, without rows
            return []
        if kind not in {"INSERT", "UPDATE", "DELETE"}:
            raise _unknown_kind(field="type", value=kind)
        if not isinstance(data, list):
            message = "the field 'data' is missing or no list"
            raise ValueError(message)  # noqa: TRY004 - as all that does not parse
        if kind == "UPDATE":
            old = root.get("old")
            if not isinstance(old, list) or len(old) != len(data):
                message = "the field 'old' is missing or not as long as 'data'"
                raise ValueError(message)
            pairs = zip(data, old, strict=True)
            return [change for pair in pairs for change in self._updated(*pair)]
        meant = INSERT if kind == "INSERT" else DELETE
        return [(meant, self.values(each, "data")) for each in data]

    @staticmethod
    def is_changed(value: Any, old: Mapping[str, Any], name: str) -> bool:
        # As Flink: a field that was null counts as one that has not changed.
        del old, name
        return value is not None


class MaxwellDecoder(_NamedDecoder):
    """Messages of Maxwell: a row in ``data`` and one in ``old``, and ``type``."""

    dialect = MAXWELL

    known: ClassVar[Mapping[str, tuple[LogicalType, tuple[str, ...]]]] = {
        "database": (_STRING, ("database",)),
        "table": (_STRING, ("table",)),
    }

    def changes(self, root: dict[str, Any]) -> list[Change]:
        kind = root.get("type")
        if kind == "update":
            return self._updated(root.get("data"), root.get("old"))
        if kind in {"insert", "delete"}:
            meant = INSERT if kind == "insert" else DELETE
            return [(meant, self.values(root.get("data"), "data"))]
        raise _unknown_kind(field="type", value=kind)


class _ChangeEncoder(RowEncoder):
    """Writes a row that is there as inserted, one that is not any more as deleted."""

    #: Around the row, of what is there and of what is not.
    there: tuple[str, str]
    gone: tuple[str, str]

    def __init__(self, row: RowType, options: JsonOptions) -> None:
        super().__init__(row)
        self._rows = JsonRowEncoder(row, options)

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        texts = self._rows.texts(columns)
        removed = [False] * len(texts) if kinds is None else (kinds & 1).astype(bool).tolist()
        made = []
        for text, is_gone in zip(texts, removed, strict=True):
            opening, closing = self.gone if is_gone else self.there
            made.append(f"{opening}{text}{closing}".encode())
        return made


class DebeziumEncoder(_ChangeEncoder):
    """Envelopes without a schema, of inserts and deletions."""

    there = '{"before":null,"after":', ',"op":"c"}'
    gone = '{"before":', ',"after":null,"op":"d"}'


class CanalEncoder(_ChangeEncoder):
    """Messages with one row each."""

    there = '{"data":[', '],"type":"INSERT"}'
    gone = '{"data":[', '],"type":"DELETE"}'


class MaxwellEncoder(_ChangeEncoder):
    """Messages with one row each."""

    there = '{"data":', ',"type":"insert"}'
    gone = '{"data":', ',"type":"delete"}'
