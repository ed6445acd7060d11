"""Values as text, as Flink prints them.

What it is: what ``print`` and the simple string encoder write.  Records of a typed stream are
written as Flink writes them (``+I[hi, 1]``, ``(hi,1)``, ``null``, ``true``); records of an untyped
stream are Python objects and are written as Python's ``str`` does, as in PyFlink.

What it is not: a format to be read back.

Read next: ``connectors/basic/print_sink.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.types.row import Row

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch

__all__ = ["texts_of_batch", "typed_text"]


def typed_text(value: object) -> str:  # noqa: PLR0911 - one return per kind of value
    """The text of a value of a typed stream."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{', '.join(typed_text(field) for field in value)}]"
    if isinstance(value, tuple):
        return f"({','.join(typed_text(field) for field in value)})"
    if isinstance(value, list):
        return f"[{', '.join(typed_text(item) for item in value)}]"
    if isinstance(value, dict):
        entries = (f"{typed_text(key)}={typed_text(item)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    return str(value)


def texts_of_batch(batch: Batch) -> list[str]:
    """The text of each record."""
    if batch.type_info.arrow_schema is None:
        return [str(value) for value in batch.values]
    return [typed_text(value) for value in batch.values]
