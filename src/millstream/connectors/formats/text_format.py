r"""Lines of text as records of type STRING.

What it is: Flink's ``StreamFormat.text_line_format``.  ``\n`` and ``\r\n`` end a line; empty
lines are records.

What it is not: for encodings in which a line break is not the byte 10 (UTF-16); these are
refused, since such files cannot be cut at bytes.

Read next: ``connectors/formats/line_format.py``.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.connectors.formats.line_format import LineFormat
from millstream.errors import ConfigurationError
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.types import TypeInformation

__all__ = ["TextLineFormat"]


class TextLineFormat(LineFormat):
    """Lines of text in a charset."""

    blank_is_record = True

    def __init__(
        self, charset_name: str = "UTF-8", malformed: str | MalformedPolicy = MalformedPolicy.FAIL
    ) -> None:
        super().__init__(malformed)
        try:
            self.charset = codecs.lookup(charset_name).name
        except LookupError as error:
            message = f"unknown charset {charset_name!r}"
            raise ConfigurationError(message) from error
        if "\n".encode(self.charset) != b"\n":
            message = (
                f"charset {charset_name!r} does not end lines with the byte 10; convert to UTF-8"
            )
            raise ConfigurationError(message)

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def is_blank(self, record: bytes) -> bool:
        """No line is passed over: an empty line is an empty string."""
        del record
        return False

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        del path, header
        return self._split

    def _split(self, block: bytes) -> pa.Table:
        if self.charset not in {"utf-8", "ascii"}:
            block = block.decode(self.charset).encode()
        if b"\r\n" in block:
            block = block.replace(b"\r\n", b"\n")
        text = pa.array([block.removesuffix(b"\n")], pa.binary()).cast(pa.large_string())
        lines = pc.list_flatten(pc.split_pattern(text, "\n")).cast(pa.string())
        return pa.table({"f0": lines})
