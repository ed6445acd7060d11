"""Schemas as users give them, as row types and as Arrow schemas.

What it is: one place that accepts a schema in any of the forms users have at hand.
What it is not: type inference from values or functions (``types/types.py``).

Read next: ``types/types.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.types.types import TypeInformation, Types, from_arrow_schema

__all__ = ["SchemaLike", "columns_of", "row_type_of", "type_of_schema"]

#: A ROW or DATACLASS type, an Arrow schema, a dataclass, or names with types.
SchemaLike: TypeAlias = "TypeInformation | pa.Schema | type | Mapping[str, TypeInformation]"


def type_of_schema(schema: SchemaLike) -> TypeInformation:
    """The record type that a schema describes.

    Raises:
        ProgramError: it is not a schema, or has no columns.
    """
    if isinstance(schema, pa.Schema):
        return row_type_of(schema)
    if isinstance(schema, Mapping):
        return Types.ROW_NAMED(list(schema), list(schema.values()))
    if isinstance(schema, type) and dataclasses.is_dataclass(schema):
        return Types.DATACLASS(schema)
    if isinstance(schema, TypeInformation):
        columns_of(schema)
        return schema
    message = (
        f"{schema!r} is not a schema; give Types.ROW_NAMED(names, types), a dataclass, "
        "a pyarrow.Schema or a mapping of names to types"
    )
    raise ProgramError(message)


def row_type_of(schema: pa.Schema) -> TypeInformation:
    """The ROW type of an Arrow schema; columns that hold nothing but nulls become strings."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema
    ]
    return from_arrow_schema(pa.schema(fields), list(schema.names))


def columns_of(type_info: TypeInformation) -> pa.Schema:
    """The Arrow columns of a record type.

    Raises:
        ProgramError: it has none.
    """
    schema = type_info.arrow_schema
    if schema is None:
        message = f"{type_info} has no columns: a schema needs types that Arrow can hold"
        raise ProgramError(message)
    return schema
