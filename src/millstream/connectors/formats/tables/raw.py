"""Messages that are one value: the format ``raw``.

What it is: a table of one column, whose bytes are the message: a text in a character set, bytes,
or a number of fixed width.
What it is not: several columns.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.tables.codec import INSERT, RowDecoder, RowEncoder
from millstream.errors import ValidationError
from millstream.types.logical_types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DoubleType,
    FloatType,
    IntType,
    SmallIntType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.types.logical_types import LogicalType, RowType

__all__ = ["RawDecoder", "RawEncoder"]

#: Of the module ``struct``.
_WIDTHS: Final[dict[type, str]] = {
    BooleanType: "?",
    TinyIntType: "b",
    SmallIntType: "h",
    IntType: "i",
    BigIntType: "q",
    FloatType: "f",
    DoubleType: "d",
}


def _only(row: RowType) -> LogicalType:
    if len(row) != 1:
        names = ", ".join(row.names) or "none"
        message = f"The 'raw' format only supports single physical column. It has: {names}."
        raise ValidationError(message)
    kind = row.fields[0].type
    plain = (CharType, VarCharType, BinaryType, VarBinaryType)
    if not isinstance(kind, plain) and type(kind) not in _WIDTHS:
        message = f"The 'raw' format doesn't supports '{kind.as_summary_string()}' as column type."
        raise ValidationError(message)
    return kind


def _number(kind: LogicalType, *, little: bool) -> struct.Struct:
    return struct.Struct(("<" if little else ">") + _WIDTHS[type(kind)])


class RawDecoder(RowDecoder):
    """The message as the only column; a message without a value is a row with NULL.

    Raises:
        ValidationError: the table has other columns, or of another type.
    """

    def __init__(self, row: RowType, charset: str = "UTF-8", *, little: bool = False) -> None:
        super().__init__(row)
        self._kind, self._charset, self._little = _only(row), charset, little

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        return [(INSERT, (None if message is None else self._value(message),))]

    def _value(self, message: bytes) -> Any:
        kind = self._kind
        if isinstance(kind, BinaryType | VarBinaryType):
            return message
        if isinstance(kind, CharType | VarCharType):
            return message.decode(self._charset)
        form = _number(kind, little=self._little)
        if len(message) != form.size:
            reason = (
                f"Size of data received for deserializing {kind.as_summary_string()} type is not "
                f"{form.size}."
            )
            raise ValueError(reason)
        return form.unpack(message)[0]


class RawEncoder(RowEncoder):
    """The only column as the message; NULL is a message without a value."""

    def __init__(self, row: RowType, charset: str = "UTF-8", *, little: bool = False) -> None:
        super().__init__(row)
        self._kind, self._charset, self._little = _only(row), charset, little

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        del kinds
        write = self._writer()
        return [None if each is None else write(each) for each in columns.column(0).to_pylist()]

    def _writer(self) -> Callable[[Any], bytes]:
        kind, charset = self._kind, self._charset
        if isinstance(kind, BinaryType | VarBinaryType):
            return bytes
        if isinstance(kind, CharType | VarCharType):
            return lambda text: str(text).encode(charset)
        return _number(kind, little=self._little).pack
