"""Schemas of messages, and serializers of a program's own."""

from __future__ import annotations

import io
import pickle
import struct
from typing import IO, Any

import pytest

import millstream.common
from millstream.common import Row, SimpleStringSchema, TypeSerializer
from millstream.common.serialization import BulkWriterFactory, RowFieldExtractorSchema
from millstream.connectors.formats.parquet_format import ParquetWriterFactory
from millstream.datastream.formats.json import JsonRowSerializationSchema
from millstream.datastream.window import (
    CountWindowSerializer,
    GlobalWindowSerializer,
    TimeWindowSerializer,
)
from millstream.functions.window import CountWindow, GlobalWindow, TimeWindow, Window
from millstream.state.key_codec import WindowCodec


def test_a_field_of_a_row_is_the_message() -> None:
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize(Row(b"key", b"value")) == b"value"
    assert schema.serialize(Row(b"key", bytearray(b"value"))) == b"value"
    assert schema.serialize(Row(b"key", None)) is None
    assert pickle.loads(pickle.dumps(schema)).serialize((1, b"x")) == b"x"


@pytest.mark.parametrize(
    ("record", "error", "words"),
    [
        (Row(b"key", "text"), TypeError, "field 1 of the row must be bytes, not str"),
        (Row(b"key"), ValueError, "the row has 1 fields and none at position 1"),
        ("text", TypeError, "takes rows, not str"),
    ],
)
def test_what_has_no_such_field_is_refused(
    record: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        RowFieldExtractorSchema(1).serialize(record)


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(ValueError, match="non-negative, got: -1"):
        RowFieldExtractorSchema(-1)


def test_row_schemas_are_in_common_as_well() -> None:
    assert millstream.common.JsonRowSerializationSchema is JsonRowSerializationSchema
    assert issubclass(ParquetWriterFactory, BulkWriterFactory)


class Shift(Window):
    """A window with a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def max_timestamp(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shift) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


class ShiftSerializer(TypeSerializer[Shift]):
    def __init__(self, form: str = ">q") -> None:
        self.form = form

    def serialize(self, element: Shift, stream: IO[bytes]) -> None:
        stream.write(struct.pack(self.form, element.number))

    def deserialize(self, stream: IO[bytes]) -> Shift:
        return Shift(struct.unpack(self.form, stream.read(8))[0])


def test_windows_are_written_by_the_serializer_of_their_assigner() -> None:
    codec = WindowCodec(ShiftSerializer())
    encoded = codec.encode(Shift(7))
    assert struct.pack(">q", 7) in encoded
    assert codec.decode(encoded) == Shift(7)


def test_serializers_compare_by_class_and_settings() -> None:
    assert ShiftSerializer() == ShiftSerializer()
    assert hash(ShiftSerializer()) == hash(ShiftSerializer())
    assert ShiftSerializer() != ShiftSerializer("<q")
    assert ShiftSerializer() != SimpleStringSchema()
    assert repr(ShiftSerializer()) == "ShiftSerializer()"
    stream = io.BytesIO()
    for number in (1, 2):
        ShiftSerializer().serialize(Shift(number), stream)
    stream.seek(0)
    assert [ShiftSerializer().deserialize(stream).number for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("serializer", "windows"),
    [
        (TimeWindowSerializer(), [TimeWindow(-5, 10), TimeWindow(0, 2**62)]),
        (CountWindowSerializer(), [CountWindow(0), CountWindow(2**40)]),
        (GlobalWindowSerializer(), [GlobalWindow(), GlobalWindow()]),
    ],
)
def test_pyflinks_serializers_of_windows(
    serializer: TypeSerializer[Any], windows: list[Window]
) -> None:
    stream = io.BytesIO()
    for window in windows:
        serializer.serialize(window, stream)
    stream.seek(0)
    assert [serializer.deserialize(stream) for _ in windows] == windows
    assert stream.read() == b""
    codec = WindowCodec(serializer)
    assert [codec.decode(codec.encode(window)) for window in windows] == windows
