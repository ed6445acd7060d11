"""PyFlink's ``Encoder`` of files, and serialization and deserialization schemas of messages."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Final, Generic, TypeVar

from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from millstream.types.types import TypeInformation


T = TypeVar("T")


#: What ``deserialize`` returns for a message that is to be passed over: None may be a record.
NO_RECORD: Final = object()


class Encoder(ABC):
    """Writes one record after the other to a stream.  Instances are pickled to the workers."""

    @abstractmethod
    def encode(self, element: object, stream: IO[bytes]) -> None:
        """Append ``element`` to ``stream``."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """An encoder that writes the text of each record and a line break."""
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder):
    """The text of a record and a line break."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        "".encode(charset_name)  # an unknown charset is refused here, by LookupError
        self.charset_name = charset_name

    def encode(self, element: object, stream: IO[bytes]) -> None:
        """Append ``str(element)`` and a line break."""
        stream.write(f"{element}\n".encode(self.charset_name))


class SerializationSchema(ABC):
    """Makes the bytes of a message from a record.  Instances are pickled to the workers."""

    @abstractmethod
    def serialize(self, element: object) -> bytes | None:
        """The bytes of a record.

        Raises:
            ValueError or TypeError: the record does not fit; reported with the record.
        """

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes] | None:
        """The bytes of each record of a batch that is available as columns.

        Returns:
            None: the schema has no way without Python objects; ``serialize`` is called instead.
        """
        del batch
        return None

    def validate(self) -> None:
        """Check, when a job is submitted, that records can be written; by default nothing.

        Raises:
            MillstreamError: they cannot.
        """


class DeserializationSchema(ABC):
    """Makes records from the bytes of messages.  Instances are pickled to the workers."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of the records."""

    @abstractmethod
    def deserialize(self, message: bytes) -> object:
        """The record of a message; ``NO_RECORD`` if it is to be passed over.

        Raises:
            ValueError (or a subclass): the message does not parse.
        """

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """The records of many messages as columns of ``produced_type``.

        Returns:
            One row per message, or None: the schema has no such way, or some message does not
            parse; each is then given to ``deserialize``.
        """
        del messages
        return None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Messages that are text."""

    def __init__(self, charset: str = "UTF-8") -> None:
        "".encode(charset)  # an unknown charset is refused here, by LookupError
        self.charset = charset

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def serialize(self, element: object) -> bytes:
        """The text of a record, which must be a string."""
        if not isinstance(element, str):
            message = f"SimpleStringSchema takes strings, not {type(element).__name__}"
            raise TypeError(message)
        return element.encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self.charset)

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        if type(self).deserialize is not SimpleStringSchema.deserialize or not self._is_utf8:
            return None
        return _column(messages, self.produced_type)

    @property
    def _is_utf8(self) -> bool:
        return codecs.lookup(self.charset).name == "utf-8"


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Messages as they are."""

    @property
    def produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    def serialize(self, element: object) -> bytes:
        """The record, which must be bytes."""
        if not isinstance(element, bytes | bytearray):
            message = f"ByteArraySchema takes bytes, not {type(element).__name__}"
            raise TypeError(message)
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        return message

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        if type(self).deserialize is not ByteArraySchema.deserialize:
            return None
        return _column(messages, self.produced_type)


def _column(messages: Sequence[bytes], kind: TypeInformation) -> pa.RecordBatch | None:
    """Messages as the only column of a type; None if one is not of it."""
    import pyarrow as pa

    schema = kind.arrow_schema
    if schema is None:
        return None
    try:
        column = pa.array(messages, schema.field(0).type)
    except (pa.ArrowException, ValueError):
        return None
    if not isinstance(column, pa.Array):
        return None  # too many bytes for one
    return pa.RecordBatch.from_arrays([column], schema=schema)


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which must be bytes, as the message; for keys of Kafka's records."""

    def __init__(self, field_index: int) -> None:
        """Take the position of the field.

        Raises:
            ValueError: it is negative.
        """
        if field_index < 0:
            message = f"Field index must be non-negative, got: {field_index}"
            raise ValueError(message)
        self.field_index = field_index

    def serialize(self, element: object) -> bytes | None:
        """The field of a row; None if it is None.

        Raises:
            TypeError: the record is no row, or the field is not bytes.
            ValueError: the row has no such field.
        """
        if not isinstance(element, list | tuple):
            message = f"RowFieldExtractorSchema takes rows, not {type(element).__name__}"
            raise TypeError(message)
        if self.field_index >= len(element):
            message = f"the row has {len(element)} fields and none at position {self.field_index}"
            raise ValueError(message)
        value = element[self.field_index]
        if value is not None and not isinstance(value, bytes | bytearray):
            message = (
                f"field {self.field_index} of the row must be bytes, not {type(value).__name__}"
            )
            raise TypeError(message)
        return None if value is None else bytes(value)


class TypeSerializer(ABC, Generic[T]):
    """Writes one value after the other to a stream, such as the windows of an own assigner."""

    @abstractmethod
    def serialize(self, element: T, stream: IO[bytes]) -> None:
        """Append a value."""

    @abstractmethod
    def deserialize(self, stream: IO[bytes]) -> T:
        """Read the next value."""

    def __eq__(self, other: object) -> bool:
        """Return whether both write values in the same way: same class, same settings."""
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        """Equal serializers have equal hashes."""
        return hash(type(self).__name__)

    def __repr__(self) -> str:
        """``Name()``."""
        return f"{type(self).__name__}()"
