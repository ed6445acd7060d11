"""Watermark strategies under PyFlink's import path."""

from __future__ import annotations

from millstream.functions.watermark_strategy import (
    BoundedOutOfOrdernessWatermarks,
    FieldTimestampAssigner,
    NoWatermarks,
    TimeOrigin,
    TimestampAssigner,
    WatermarkAlignment,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
    field_timestamps,
)

__all__ = [
    "BoundedOutOfOrdernessWatermarks",
    "FieldTimestampAssigner",
    "NoWatermarks",
    "TimeOrigin",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "field_timestamps",
]
