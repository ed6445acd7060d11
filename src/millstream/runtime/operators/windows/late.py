"""Records that an event-time window cannot take: without a timestamp, or late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import ProgramError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator

__all__ = ["check_timestamps", "drop_late"]


def check_timestamps(operator: Operator, timestamps: NDArray[np.int64]) -> None:
    """Refuse records without a timestamp, as Flink does.

    Raises:
        ProgramError: a record has none.
    """
    if int(timestamps.min()) == MIN_TIMESTAMP:
        message = (
            f"operator {operator.context.name!r} ({operator.context.location}): a record without "
            "a timestamp reached an event-time window; give the source a WatermarkStrategy with "
            "a timestamp assigner, or call assign_timestamps_and_watermarks()"
        )
        raise ProgramError(message)


def drop_late(
    operator: Operator,
    batch: Batch,
    positions: NDArray[np.int64],
    horizon: int,
    late_tag: str | None,
) -> int:
    """Send records that no window took to the late side output; return how many were dropped.

    A record above ``horizon`` is not late: it fell into a gap between windows.
    """
    late = positions[batch.timestamp_array[positions] <= max(horizon, MIN_TIMESTAMP)]
    if not len(late):
        return 0
    if late_tag is None:
        return len(late)
    operator.output.emit_side(late_tag, batch.take(late))
    return 0
