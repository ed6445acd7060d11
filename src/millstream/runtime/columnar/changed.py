"""Which values of two columns differ, where null equals null.

What it is: how an operator over changelogs sees that a result stayed the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["changed_rows"]


def changed_rows(after: pa.Array, before: pa.Array) -> NDArray[np.bool_]:
    """Return where two columns of one type and length differ."""
    kind = after.type
    if pa.types.is_nested(kind):
        pairs = zip(after.to_pylist(), before.to_pylist(), strict=True)
        return np.fromiter((one != other for one, other in pairs), np.bool_, len(after))
    differ = pc.not_equal(after, before)
    if differ.null_count:
        differ = pc.if_else(
            pc.or_(after.is_null(), before.is_null()),
            pc.not_equal(after.is_null(), before.is_null()),
            differ,
        )
    found: NDArray[np.bool_] = differ.to_numpy(zero_copy_only=False)
    return found
