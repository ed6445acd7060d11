"""JSON lines as rows: one JSON object per line.

What it is: pyarrow's JSON reader on blocks of whole lines.  Fields that the schema does not name
are ignored, fields that a line lacks are null.

What it is not: for JSON documents that span lines.

Read next: ``connectors/formats/line_format.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.connectors.formats.file_format import MalformedPolicy, SchemaFormat
from millstream.connectors.formats.json_columns import JsonColumns, read_json
from millstream.connectors.formats.line_format import LineFormat, head_of_file
from millstream.connectors.formats.schema import row_type_of, type_of_schema
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors.formats.schema import SchemaLike

__all__ = ["JsonLinesFormat"]


class JsonLinesFormat(SchemaFormat, LineFormat):
    """Lines that are JSON objects.

    Args:
        schema: the columns; None infers them from the head of the first file.
        malformed: "fail" or "dead-letter".
    """

    def __init__(
        self,
        schema: SchemaLike | None = None,
        malformed: str | MalformedPolicy = MalformedPolicy.FAIL,
    ) -> None:
        super().__init__(malformed)
        self.type_info = None if schema is None else type_of_schema(schema)

    def prepare(self, path: str) -> None:
        if self.type_info is not None:
            return
        head, complete = head_of_file(path)
        if not complete:
            head = head[: head.rfind(b"\n") + 1] or head
        try:
            schema = read_json(head, None).schema
        except (ValueError, pa.ArrowException):
            # Some line is malformed: the ones that are not still tell the schema.
            schema = _schema_of_good_lines(head)
        if len(schema) == 0:
            message = f"cannot infer a schema from {path!r}; give schema=..."
            raise SourceError(message)
        self.type_info = row_type_of(schema)

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        del path, header
        return JsonColumns(self.produced_type, texts=False).read


def _schema_of_good_lines(head: bytes) -> pa.Schema:
    schemas = []
    for line in head.splitlines(keepends=True)[:10_000]:
        try:
            schemas.append(read_json(line, None).schema)
        except (ValueError, pa.ArrowException):
            continue
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (ValueError, pa.ArrowException):
        return schemas[0]
