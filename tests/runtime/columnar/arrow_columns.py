"""Columns of all types for hypothesis."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["KINDS", "tables"]

numbers = st.integers(-(2**63), 2**63 - 1)
decimals = st.integers(-(10**20), 10**20).map(lambda n: Decimal(n).scaleb(-2))
KINDS: dict[pa.DataType, Any] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): numbers,
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(38, 2): decimals,
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.list_(pa.int32()): st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.integers(0, 9), "b": st.text(max_size=2)}
    ),
    pa.map_(pa.string(), pa.int32()): st.lists(
        st.tuples(st.text(max_size=2), st.integers(0, 9)), max_size=2, unique_by=lambda e: e[0]
    ),
}


@st.composite
def tables(draw: Any, kinds: list[pa.DataType]) -> list[pa.Array]:
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=10))
    count = draw(st.integers(0, 6))
    return [
        pa.array(
            draw(st.lists(st.one_of(st.none(), KINDS[kind]), min_size=count, max_size=count)), kind
        )
        for kind in chosen
    ]
