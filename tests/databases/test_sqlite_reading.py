"""Values of SQLite as columns: times are texts there, with any number of digits."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from millstream.connectors.embedded.sqlite import column_of

TEXTS = ["2024-01-02 03:04:05.123456789", "9999-12-31 23:59:59.9999999", None, "1969-12-31 00:00"]
SECONDS = [1_704_164_645, 253_402_300_799, None, -86_400]
FRACTIONS = {"s": (0, 0), "ms": (123, 999), "us": (123_456, 999_999)}


@pytest.mark.parametrize("unit", list(FRACTIONS))
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_digits_that_a_column_does_not_have_are_cut(unit: str, zone: str | None) -> None:
    behind = "" if zone is None else "Z"
    texts = [None if each is None else each + behind for each in TEXTS]
    scale = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    fractions = (*FRACTIONS[unit], 0, 0)
    found = column_of(texts, pa.field("since", pa.timestamp(unit, zone)))
    assert found.cast(pa.int64()).to_pylist() == [
        None if seconds is None else seconds * scale + fraction
        for seconds, fraction in zip(SECONDS, fractions, strict=True)
    ]


def test_a_value_that_does_not_fit_names_its_column() -> None:
    with pytest.raises(ValueError, match=r"column .since. does not fit timestamp.*no time"):
        column_of(["no time"], pa.field("since", pa.timestamp("ms")))
    assert column_of([1, 0, None], pa.field("hot", pa.bool_())).to_pylist() == [True, False, None]
    assert column_of(["2024-01-02"], pa.field("day", pa.date32())).to_pylist() == [
        dt.date(2024, 1, 2)
    ]
