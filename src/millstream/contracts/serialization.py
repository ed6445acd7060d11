"""How one record becomes bytes and back: encoders of files, schemas of messages.

What it is: PyFlink's ``pyflink.common.Encoder``, used with ``FileSink.for_row_format``, and
``SerializationSchema`` and ``DeserializationSchema`` for systems whose records are bytes.

What it is not: how records travel between operators (``types/typeinfo.py``).

Read next: ``connectors/files/sink.py``, ``connectors/formats/message_formats.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING

from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from millstream.types.typeinfo import TypeInformation

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "SerializationSchema",
    "SimpleStringEncoder",
    "SimpleStringSchema",
]


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
        """The bytes of each record of a batch that is at hand as columns.

        Returns:
            None: the schema has no way without Python objects; ``serialize`` is called instead.
        """
        del batch
        return None


class DeserializationSchema(ABC):
    """Makes records from the bytes of messages.  Instances are pickled to the workers."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of the records."""

    @abstractmethod
    def deserialize(self, message: bytes) -> object:
        """The record of a message.

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
        """STRING."""
        return Types.STRING()

    def serialize(self, element: object) -> bytes:
        """The text of a record, which must be a string."""
        if not isinstance(element, str):
            message = f"SimpleStringSchema takes strings, not {type(element).__name__}"
            raise TypeError(message)
        return element.encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        """The text of a message."""
        return message.decode(self.charset)


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Messages as they are."""

    @property
    def produced_type(self) -> TypeInformation:
        """Bytes."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    def serialize(self, element: object) -> bytes:
        """The record, which must be bytes."""
        if not isinstance(element, bytes | bytearray):
            message = f"ByteArraySchema takes bytes, not {type(element).__name__}"
            raise TypeError(message)
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """The message."""
        return message
