"""Encoders: how one record is written to a row-format file.

What it is: PyFlink's ``pyflink.common.Encoder``, used with ``FileSink.for_row_format``.
What it is not: how records travel between operators (``common/typeinfo.py``).

Read next: ``connectors/file_sink.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import IO

__all__ = ["Encoder", "SimpleStringEncoder"]


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
