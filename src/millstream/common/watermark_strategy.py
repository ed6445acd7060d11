"""Watermark strategies under PyFlink's import path."""

from millstream.functions.watermark_strategy import (
    BoundedOutOfOrdernessWatermarks as BoundedOutOfOrdernessWatermarks,
)
from millstream.functions.watermark_strategy import FieldTimestampAssigner as FieldTimestampAssigner
from millstream.functions.watermark_strategy import NoWatermarks as NoWatermarks
from millstream.functions.watermark_strategy import TimeOrigin as TimeOrigin
from millstream.functions.watermark_strategy import TimestampAssigner as TimestampAssigner
from millstream.functions.watermark_strategy import WatermarkAlignment as WatermarkAlignment
from millstream.functions.watermark_strategy import WatermarkGenerator as WatermarkGenerator
from millstream.functions.watermark_strategy import WatermarkOutput as WatermarkOutput
from millstream.functions.watermark_strategy import WatermarkStrategy as WatermarkStrategy
from millstream.functions.watermark_strategy import field_timestamps as field_timestamps
