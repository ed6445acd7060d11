"""Decimal columns as integers: their digits without the point, and back.

What it is: how kernels compute with DECIMAL exactly: in 64 bits where all digits fit, else in
Python's integers, which numpy holds as objects and computes with in the same expressions.

What it is not: the arithmetic of expressions (``expressions/functions/arithmetic.py``).

Read next: ``runtime/columnar/changelog_aggregates.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["decimals_of", "divided_half_up", "integers_of"]

_FITS: Final = 2**62


def integers_of(column: pa.Array) -> NDArray[Any]:
    """Return the digits of decimals as integers, 0 where null; int64 if all fit, else objects."""
    data = np.frombuffer(column.buffers()[1], np.int64)
    halves = data[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    nulls = None
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        low, high = np.where(nulls, 0, low), np.where(nulls, 0, high)
    if bool(((low >> 63) == high).all()):
        return low.copy()
    whole: NDArray[Any] = high.astype(object) * 2**64 + low.view(np.uint64).astype(object)
    return whole


def decimals_of(integers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return integers as the digits of decimals; null where they have more digits than the type."""
    bound = 10**kind.precision
    if integers.dtype != object:
        halves = np.stack([integers, integers >> 63], axis=1).astype(np.int64, copy=False)
        overflows = np.abs(integers) >= bound if bound < _FITS else None
        return _from_halves(np.ascontiguousarray(halves), kind, overflows)
    overflows = np.array([not -bound < each < bound for each in integers], dtype=np.bool_)
    kept = np.where(overflows, 0, integers)
    data = b"".join([each.to_bytes(16, "little", signed=True) for each in map(int, kept)])
    return _from_halves(np.frombuffer(data, np.int64), kind, overflows)


def _from_halves(
    halves: NDArray[np.int64], kind: pa.DataType, nulls: NDArray[np.bool_] | None
) -> pa.Array:
    validity = None
    if nulls is not None and nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    count = halves.size // 2
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(halves)])


def divided_half_up(
    dividends: NDArray[Any], divisors: NDArray[np.int64], digits: int
) -> NDArray[Any]:
    """Return quotients with so many more digits than the dividends, rounded half away from zero.

    Args:
        dividends: integers.
        divisors: positive integers.
        digits: how many digits more (or fewer, if negative) the quotients are to have.
    """
    factor = 10 ** abs(digits)
    if dividends.dtype != object:
        largest = int(np.abs(dividends).max(initial=0)), int(divisors.max(initial=1))
        if 2 * max(largest) * factor >= _FITS:
            dividends = dividends.astype(object)
    if dividends.dtype == object:
        divisors = divisors.astype(object)
    sizes = np.abs(dividends)
    sizes, divisors = (sizes * factor, divisors) if digits >= 0 else (sizes, divisors * factor)
    quotients = (2 * sizes + divisors) // (2 * divisors)
    signed: NDArray[Any] = np.where(dividends < 0, -quotients, quotients)
    return signed
