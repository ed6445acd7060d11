"""The workloads of SQL as statements, the same for Millstream and for Flink.

What it is: plain text over the table ``events`` (``key``, ``value``, ``ts``, and ``t``, which is
``ts`` as a time attribute).
"""

from __future__ import annotations

from typing import Final

__all__ = ["APPENDED", "TIME", "WATERMARK", "WORKLOADS"]

#: What ``t`` is computed by, and its watermark.
TIME: Final = "CAST(TO_TIMESTAMP_LTZ(ts, 3) AS TIMESTAMP(3))"
#: ``MAX_OUT_OF_ORDERNESS_MS`` of ``bench/data.py``, which Flink's environment cannot import.
WATERMARK: Final = "t - INTERVAL '0.5' SECOND"

_COUNTS: Final = "n BIGINT, total BIGINT"
_EVENT: Final = "`key` BIGINT, `value` BIGINT, ts BIGINT"
_WINDOWS: Final = (
    "SELECT `key`, CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS "
    "BIGINT) * 1000, COUNT(*), SUM(`value`) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(t), "
    "INTERVAL '10' SECOND)) GROUP BY `key`, window_start, window_end"
)
_AGGREGATE: Final = "SELECT `key`, COUNT(*), SUM(`value`) FROM events GROUP BY `key`"
_FILTER: Final = "SELECT `key`, `value` * 3, ts FROM events WHERE MOD(`value`, 2) = 0"
_JOIN: Final = (
    "SELECT a.`key`, a.n, b.total FROM (SELECT `key`, COUNT(*) AS n FROM events WHERE `value` < "
    "500 GROUP BY `key`) AS a JOIN (SELECT `key`, SUM(`value`) AS total FROM events WHERE `value` "
    ">= 500 GROUP BY `key`) AS b ON a.`key` = b.`key`"
)
_NUMBERED: Final = (
    "SELECT {} FROM (SELECT `key`, `value`, ts, ROW_NUMBER() OVER (PARTITION BY `key` ORDER BY {}) "
    "AS place FROM events) WHERE place <= {}"
)
#: Those whose result is only added to, so that it can be written to files.
APPENDED: Final = ("filter", "windows")
#: The columns of the result, and the query.
WORKLOADS: Final = {
    "filter": (_EVENT, _FILTER),
    "aggregate": (f"`key` BIGINT, {_COUNTS}", _AGGREGATE),
    "windows": (f"`key` BIGINT, `start` BIGINT, {_COUNTS}", _WINDOWS),
    "join": (f"`key` BIGINT, {_COUNTS}", _JOIN),
    "top_10": (
        "`key` BIGINT, `value` BIGINT, place BIGINT",
        _NUMBERED.format("`key`, `value`, place", "`value` DESC", 10),
    ),
    "last": (_EVENT, _NUMBERED.format("`key`, `value`, ts", "t DESC", 1)),
}
