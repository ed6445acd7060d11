"""The names of ``pyflink.common`` are there, on PyFlink's import paths."""

from __future__ import annotations

import importlib

import pytest

import millstream.common


def test_everything_listed_is_there() -> None:
    for name in vars(millstream.common)["__all__"]:
        assert getattr(millstream.common, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = millstream.common.NoSuchName  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("types", ["Row", "RowKind"]),
        ("typeinfo", ["Types", "TypeInformation", "RowTypeInfo", "TupleTypeInfo"]),
        ("time", ["Duration", "Instant", "Time"]),
        ("watermark_strategy", ["WatermarkStrategy", "TimestampAssigner"]),
        ("configuration", ["Configuration"]),
    ],
)
def test_import_paths(module: str, names: list[str]) -> None:
    found = importlib.import_module(f"millstream.common.{module}")
    assert [name for name in names if not hasattr(found, name)] == []
