"""Time attributes as milliseconds, and back.

What it is: what operators compare columns of TIMESTAMP with watermarks by.  A TIMESTAMP's clock has
no zone; it counts as that of UTC, as in Flink.

What it is not: arithmetic with time (``expressions/functions/``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import UserFunctionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["milliseconds_of", "timestamps_of"]

#: Of a millisecond, by the unit of a column.
_PARTS: Final = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}


def milliseconds_of(column: pa.Array, name: str) -> NDArray[np.int64]:
    """Return a column of TIMESTAMP in milliseconds since 1970, cut towards the past.

    Raises:
        UserFunctionError: a value is NULL; ``name`` says whose.
    """
    if column.null_count:
        message = f"{name}: the time attribute of a row is NULL"
        raise UserFunctionError(message)
    numbers: NDArray[np.int64] = column.view(pa.int64()).to_numpy()
    unit = column.type.unit
    if unit == "s":
        return numbers * 1_000
    return numbers // _PARTS[unit]


def timestamps_of(milliseconds: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Return milliseconds as a column of that type of TIMESTAMP."""
    return (
        pa.array(milliseconds, pa.int64())
        .view(pa.timestamp("ms"))
        .cast(pa.timestamp(kind.unit))
        .view(kind)
    )
