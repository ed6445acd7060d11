"""Key columns: the keys of a batch as an Arrow column, and back.

What it is: the form that keys have in tables.  The column is int64 or string where keys are such
values and binary otherwise: then it holds keys encoded by ``state/key_codec.py``.  The same key
always has the same form, so that one table never holds what belongs to another.

Read next: ``runtime/columnar/partial_aggregates.py``, which groups by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.state.chunks import KEY, key_groups_of_column
from millstream.state.key_codec import cache_key, decode_key, encode_key

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.operators.keyed import KeyExtractor

__all__ = ["KEY", "key_columns", "key_groups_of_column", "keys_from_column"]

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def keys_from_column(keys: pa.Array) -> list[Any]:
    """Return the keys of a key column as Python values."""
    values: list[Any] = keys.to_pylist()
    return [decode_key(key) for key in values] if pa.types.is_binary(keys.type) else values


def key_columns(
    extractor: KeyExtractor, batch: Batch, context: OperatorContext
) -> list[tuple[pa.Array | None, pa.Array]]:
    """Return (positions, keys) per form of the key column; positions None: all records.

    Args:
        extractor: takes the keys out of the batch.
        batch: the records.
        context: the operator that messages name.

    Raises:
        UserFunctionError: the key selector raised.
    """
    column = extractor.column(batch)
    if column is not None and column.null_count == 0:
        if pa.types.is_integer(column.type) and column.type != pa.uint64():
            return [(None, column.cast(pa.int64()))]
        if pa.types.is_string(column.type):
            return [(None, column)]
    keys = extractor.keys(batch, context)
    kinds = set(map(type, keys))
    if kinds == {str}:
        return [(None, pa.array(keys, pa.string()))]
    if kinds == {int}:
        try:
            return [(None, pa.array(keys, pa.int64()))]
        except (OverflowError, pa.ArrowInvalid):
            pass
    return _mixed_keys(keys)


def _mixed_keys(keys: list[Any]) -> list[tuple[pa.Array | None, pa.Array]]:
    """Keys of several types, apart by the form of their column."""
    forms: dict[pa.DataType, tuple[list[int], list[Any]]] = {}
    for position, key in enumerate(map(cache_key, keys)):
        value: object = key
        if type(key) is int and _SMALLEST <= key <= _LARGEST:
            form = pa.int64()
        elif type(key) is str:
            form = pa.string()
        else:
            form, value = pa.binary(), key if type(key) is bytes else encode_key(key)
        positions, values = forms.setdefault(form, ([], []))
        positions.append(position)
        values.append(value)
    if len(forms) == 1:
        form, (_, values) = next(iter(forms.items()))
        return [(None, pa.array(values, form))]
    return [
        (pa.array(positions), pa.array(values, form)) for form, (positions, values) in forms.items()
    ]
