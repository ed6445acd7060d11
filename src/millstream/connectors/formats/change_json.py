"""Changelogs of databases as JSON: ``debezium-json``, ``canal-json``, ``maxwell-json``."""

from __future__ import annotations

import re
from abc import abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.file_format import row_type_of
from millstream.connectors.formats.json_format import JsonColumns
from millstream.connectors.formats.json_messages import (
    JsonRowEncoder,
    json_as_text,
    parsed_json,
    readable_fields,
    row_reader,
    typed_arrays,
)
from millstream.connectors.formats.row_format import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Changes,
    RowDecoder,
    RowEncoder,
    arrow_schema,
)
from millstream.connectors.formats.texts import integer
from millstream.types.logical_types import (
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.connectors.formats.json_messages import JsonOptions
    from millstream.types.logical_types import RowType


@dataclass(frozen=True)
class Dialect:
    """Where the parts of a message stand."""

    #: The fields with the kind, the row as it was, and the row as it is.
    kind: str
    before: str
    after: str
    kinds: Mapping[str, int]
    #: Whether rows stand in lists.
    listed: bool = False
    #: Whether the row as it was holds what has changed alone, and a deleted one stands where one
    #: that is there does.
    partial: bool = False
    #: Whether a null in it is a value that was null.
    null_is_a_value: bool = False


#: Fewer messages are read sooner one by one.
_FEW: Final = 100

DEBEZIUM: Final = Dialect(
    kind="op",
    before="before",
    after="after",
    kinds={"c": INSERT, "r": INSERT, "u": UPDATE_AFTER, "d": DELETE},
)
CANAL: Final = Dialect(
    kind="type",
    before="old",
    after="data",
    kinds={"INSERT": INSERT, "UPDATE": UPDATE_AFTER, "DELETE": DELETE},
    listed=True,
    partial=True,
)
MAXWELL: Final = Dialect(
    kind="type",
    before="old",
    after="data",
    kinds={"insert": INSERT, "update": UPDATE_AFTER, "delete": DELETE},
    partial=True,
    null_is_a_value=True,
)


class ChangeBlocks:
    """Reads blocks of messages.

    Args:
        row: the table.
        dialect: of the messages.
        iso: the standard of times that are texts.
    """

    def __init__(self, row: RowType, dialect: Dialect, *, iso: bool) -> None:
        self._row, self._dialect, self._iso = row, dialect, iso
        self._schema = arrow_schema(row)
        fields = readable_fields(row)
        self._columns: JsonColumns | None = None
        if fields is not None:
            part = pa.list_(pa.struct(fields)) if dialect.listed else pa.struct(fields)
            parts = [(dialect.kind, pa.string()), (dialect.before, part), (dialect.after, part)]
            self._columns = JsonColumns(row_type_of(pa.schema(parts)), texts=True)

    def read(self, messages: Sequence[bytes]) -> Changes | None:
        """The changes; None: the messages are to be read one by one."""
        if (
            self._columns is None
            or len(messages) < _FEW
            or (self._dialect.null_is_a_value and any(b"null" in each for each in messages))
        ):
            return None
        table = self._columns.read_messages(messages)
        try:
            return None if table is None else self._changes(table)
        except (ValueError, pa.ArrowException):
            return None

    def _changes(self, table: pa.Table) -> Changes | None:
        dialect = self._dialect
        kinds = self._kinds(table.column(dialect.kind))
        if kinds is None:
            return None
        places: NDArray[np.int64] = np.arange(len(kinds), dtype=np.int64)
        before, after = (_chunk(table, name) for name in (dialect.before, dialect.after))
        if dialect.listed:
            lists = after, before
            updates = pa.array(kinds == UPDATE_AFTER)
            sizes = [pc.list_value_length(each) for each in lists]
            same = pc.fill_null(pc.equal(*sizes), False)  # noqa: FBT003
            if sizes[0].null_count or pc.any(pc.and_not(updates, same)).as_py():
                return None
            places = pc.list_parent_indices(after).to_numpy().astype(np.int64)
            kinds = kinds[places]
            before = self._aligned(before, kinds, places)
            after = after.flatten()
        new = self._cells(after)
        is_update = kinds == UPDATE_AFTER
        if dialect.partial:
            # A deletion has its row where an insert has it.
            missing = _is_missing(after)
            old = self._cells(before)
            old = [pc.if_else(pc.is_null(o), n, o) for o, n in zip(old, new, strict=True)]
            gone = new
            missing |= is_update & _is_missing(before)
        else:
            old = gone = self._cells(before)
            had = is_update | (kinds == DELETE)
            missing = had & _is_missing(before)
            missing |= (kinds != DELETE) & _is_missing(after)
        if missing.any():
            return None
        return self._ordered(kinds, places, (new, old, gone))

    def _aligned(
        self, before: pa.Array, kinds: NDArray[np.int8], places: NDArray[np.int64]
    ) -> pa.Array:
        """For each row that of the lists of what was; null where there is none."""
        is_update = kinds == UPDATE_AFTER
        parents = pc.list_parent_indices(before).to_numpy()
        kept = np.isin(parents, places[is_update])
        numbers = np.full(len(kinds), -1, dtype=np.int64)
        numbers[is_update] = np.flatnonzero(kept)
        return before.flatten().take(pa.array(numbers, mask=numbers < 0))

    def _kinds(self, column: pa.ChunkedArray) -> NDArray[np.int8] | None:
        known = self._dialect.kinds
        found = pc.index_in(column, pa.array(list(known))).combine_chunks()
        if found.null_count:
            return None
        kinds: NDArray[np.int8] = np.array(list(known.values()), np.int8)[found.to_numpy()]
        return kinds

    def _cells(self, rows: pa.StructArray) -> list[pa.Array]:
        return typed_arrays(rows.flatten(), self._row, iso=self._iso)

    def _ordered(
        self,
        kinds: NDArray[np.int8],
        places: NDArray[np.int64],
        cells: tuple[list[pa.Array], list[pa.Array], list[pa.Array]],
    ) -> Changes:
        """One row for each, two for each update, in order."""
        count = len(kinds)
        twice = np.repeat(np.arange(count), 1 + (kinds == UPDATE_AFTER))
        made = kinds[twice]
        made[:-1][twice[:-1] == twice[1:]] = UPDATE_BEFORE
        side = np.where(made == UPDATE_BEFORE, 1, np.where(made == DELETE, 2, 0))
        indices = pa.array(side * count + twice)
        arrays = [pa.concat_arrays(each).take(indices) for each in zip(*cells, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Changes(rows, made, places[twice])


def _chunk(table: pa.Table, name: str) -> pa.Array:
    (chunk,) = table.column(name).chunks
    return chunk


def _is_missing(rows: pa.Array) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = pc.is_null(rows).to_numpy(zero_copy_only=False)
    return missing.copy()


_STRING: Final = VarCharType()
_TIME: Final = LocalZonedTimestampType(precision=3)
Change = tuple[int, "Sequence[Any]"]


class _ChangeDecoder(RowDecoder):
    """Base of the three: reads rows, and judges messages that do not parse."""

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
        """Return whether ``old`` says what a field was."""
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
