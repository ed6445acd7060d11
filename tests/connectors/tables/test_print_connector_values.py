"""The print connector writes values as Java does, also those that Python's types do not hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.connectors.basic.print_sink import RowTexts
from millstream.contracts.batch import Batch
from millstream.sql.stream_types import stream_type
from millstream.types.logical_types import (
    ArrayType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from millstream.types.text_values import parse_timestamp
from millstream.types.values import column_of

MOMENT = parse_timestamp("2024-01-02 03:04:05.123456789", 9)
WHOLE = parse_timestamp("2024-01-02 03:04:00", 9)
VALUES: list[tuple[LogicalType, Any, str]] = [
    (TimestampType(9), MOMENT, "2024-01-02T03:04:05.123456789"),
    (TimestampType(3), WHOLE, "2024-01-02T03:04"),
    (LocalZonedTimestampType(9), MOMENT, "2024-01-02T03:04:05.123456789Z"),
    (LocalZonedTimestampType(3), WHOLE, "2024-01-02T03:04:00Z"),
    (ArrayType(TimestampType(9)), (MOMENT, None), "[2024-01-02T03:04:05.123456789, null]"),
    (DateType(), 2_932_897, "10000-01-01"),
    (TimeType(3), 36_000_000_000_000, "10:00"),
    (TimeType(3), 36_001_500_000_000, "10:00:01.500"),
    (MapType(VarCharType(), DateType()), {"a": 0}, "{a=1970-01-01}"),
    (RowType.of(a=IntType(), b=DateType()), (1, 0), "+I[1, 1970-01-01]"),
    (DecimalType(10, 8), Decimal("1E-8"), "1E-8"),
    (VarBinaryType(), b"\x00\xff", "[0, -1]"),
    (BooleanType(), True, "true"),
    (DoubleType(), 1e7, "1.0E7"),
]


def test_values_are_those_of_java() -> None:
    row = RowType.of(**{f"c{at}": type_ for at, (type_, _, _) in enumerate(VALUES)})
    arrays = [column_of([value], type_) for type_, value, _ in VALUES]
    arrow = pa.RecordBatch.from_arrays(arrays, list(row.names))
    batch = Batch(stream_type(row), arrow=arrow, row_kinds=np.array([3], np.int8))
    [text] = RowTexts(row)(batch)
    assert text == f"-D[{', '.join(text for _, _, text in VALUES)}]"
