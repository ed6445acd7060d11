"""Sort keys: bytes in the order of values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.columnar.arrow_columns import KINDS, tables
from tests.support.examples import examples

from millstream.errors import ProgramError
from millstream.runtime.columnar.row_codec import sort_keys
from millstream.runtime.operators.table.specs import SortColumn


def place(value: Any, *, descending: bool, nulls_first: bool) -> tuple[Any, ...]:
    if value is None:
        return (0 if nulls_first else 2,)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        value = (*value, -1) if not descending else (*(-each for each in value), 1)
    return (1, -value if descending and not isinstance(value, tuple) else value)


SORTED = [kind for kind in KINDS if not pa.types.is_nested(kind)]


@examples(80)
@given(
    columns=tables(SORTED),
    descending=st.booleans(),
    nulls_first=st.sampled_from([None, True, False]),
)
def test_sort_keys_are_in_the_order_of_values(
    columns: list[pa.Array], descending: bool, nulls_first: bool | None
) -> None:
    order = [SortColumn(n, descending, nulls_first) for n in range(len(columns))]
    keys = sort_keys(columns, order)
    first = order[0].has_nulls_first
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    places = [
        tuple(place(v, descending=descending, nulls_first=first) for v in row) for row in rows
    ]
    for one, other in zip(keys, places, strict=True):
        for key, values in zip(keys, places, strict=True):
            assert (one < key) == (other < values)
            assert one == key or not key.startswith(one)


def test_lists_have_no_order() -> None:
    with pytest.raises(ProgramError, match="have no order"):
        sort_keys([pa.array([[1]])], [SortColumn(0)])
