"""Deprecated descriptors of a table's columns as properties; no method takes them, as in Flink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, Self

from millstream.errors import ProgramError, ValidationError
from millstream.sql.parser.parser import parse_type
from millstream.types.logical_types import LogicalType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.table.table_schema import TableSchema


#: Names of types before SQL's -> SQL's.
_OLD_TYPES: Final = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "LONG": "BIGINT",
    "SQL_DATE": "DATE",
    "SQL_TIME": "TIME(0)",
    "SQL_TIMESTAMP": "TIMESTAMP(3)",
}


class Descriptor:
    """Collect properties."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}

    def to_properties(self) -> dict[str, str]:
        """Return the properties by their keys."""
        return dict(self._properties)

    def _put(self, key: str, value: str) -> None:
        if key in self._properties:
            message = f"Property already present: {key}"
            raise ValidationError(message)
        self._properties[key] = value


class Rowtime(Descriptor):
    """Describe an event-time attribute: its timestamps and its watermarks."""

    def timestamps_from_field(self, field_name: str) -> Self:
        """Take timestamps from a column."""
        self._put("rowtime.timestamps.type", "from-field")
        self._put("rowtime.timestamps.from", field_name)
        return self

    def timestamps_from_source(self) -> Self:
        """Keep the timestamps that records have from their source."""
        self._put("rowtime.timestamps.type", "from-source")
        return self

    def timestamps_from_extractor(self, extractor: str) -> NoReturn:
        """Refuse an extractor, which is a class of Java.

        Raises:
            ProgramError: always.
        """
        self._refuse(extractor)

    def watermarks_periodic_ascending(self) -> Self:
        """Follow timestamps that never decrease."""
        self._put("rowtime.watermarks.type", "periodic-ascending")
        return self

    def watermarks_periodic_bounded(self, delay: int) -> Self:
        """Follow timestamps at a distance of ``delay`` milliseconds."""
        self._put("rowtime.watermarks.type", "periodic-bounded")
        self._put("rowtime.watermarks.delay", str(delay))
        return self

    def watermarks_from_source(self) -> Self:
        """Keep the watermarks of the source."""
        self._put("rowtime.watermarks.type", "from-source")
        return self

    def watermarks_from_strategy(self, strategy: str) -> NoReturn:
        """Refuse a strategy, which is a class of Java.

        Raises:
            ProgramError: always.
        """
        self._refuse(strategy)

    @staticmethod
    def _refuse(name: str) -> NoReturn:
        message = (
            f"'{name}' is a class of Java, which Millstream cannot load. Declare the watermark "
            "with Schema.new_builder().watermark(...) of millstream.table."
        )
        raise ProgramError(message)


class Schema(Descriptor):
    """Describe columns.

    Args:
        schema: names and types of columns.
        fields: further columns by name.
        rowtime: of the last column.
    """

    def __init__(
        self,
        schema: TableSchema | None = None,
        fields: Mapping[str, LogicalType | str] | None = None,
        rowtime: Rowtime | None = None,
    ) -> None:
        super().__init__()
        self._names: list[str] = []
        #: Whether the last column may still be given an origin or a time attribute.
        self._is_open = False
        if schema is not None:
            self.schema(schema)
        if fields is not None:
            self.fields(fields)
        if rowtime is not None:
            self.rowtime(rowtime)

    def schema(self, table_schema: TableSchema) -> Self:
        """Replace all columns."""
        self._properties.clear()
        self._names.clear()
        for column in table_schema.columns:
            self.field(column.name, column.type)
        return self

    def field(self, field_name: str, field_type: LogicalType | str) -> Self:
        """Add a column.

        Raises:
            ValidationError: there is a column of that name, or no such type.
        """
        if field_name in self._names:
            message = f"Duplicate field name {field_name}."
            raise ValidationError(message)
        kind = _checked(field_type) if isinstance(field_type, str) else _text_of(field_type)
        prefix = f"schema.{len(self._names)}"
        self._properties |= {f"{prefix}.name": field_name, f"{prefix}.data-type": kind}
        self._names.append(field_name)
        self._is_open = True
        return self

    def fields(self, fields: Mapping[str, LogicalType | str]) -> Self:
        """Add several columns.

        Raises:
            TypeError: it is no dict.
        """
        given: object = fields
        if not isinstance(given, dict):
            message = "fields must be stored in a dict or OrderedDict"
            raise TypeError(message)
        for name, kind in fields.items():
            self.field(name, kind)
        return self

    def from_origin_field(self, origin_field_name: str) -> Self:
        """Name the last column's field in the connector or format."""
        return self._describe_last({"from": origin_field_name})

    def proctime(self) -> Self:
        """Make the last column a processing-time attribute."""
        return self._describe_last({"proctime": "true"})

    def rowtime(self, rowtime: Rowtime) -> Self:
        """Make the last column an event-time attribute."""
        return self._describe_last(rowtime.to_properties())

    def _describe_last(self, properties: dict[str, str]) -> Self:
        if not self._is_open:
            message = "No field defined previously. Use field() before."
            raise ValidationError(message)
        self._is_open = False
        prefix = f"schema.{len(self._names) - 1}"
        self._properties |= {f"{prefix}.{key}": value for key, value in properties.items()}
        return self


def _text_of(kind: LogicalType) -> str:
    given: object = kind
    if not isinstance(given, LogicalType):
        message = f"A field needs a type of DataTypes or its text, not {given!r:.100}."
        raise TypeError(message)
    return kind.as_serializable_string()


def _checked(text: str) -> str:
    """Return the text of a type, with SQL's name if it is one from before."""
    if text in _OLD_TYPES:
        return _OLD_TYPES[text]
    parse_type(text)
    return text
