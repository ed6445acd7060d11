"""The temporal functions of Flink's reference.

What it is: the group, put together from the modules that hold its functions.
"""

from __future__ import annotations

from millstream.expressions.functions import (
    temporal_arithmetic,
    temporal_clock,
    temporal_formats,
    temporal_parts,
)
from millstream.expressions.functions.definition import FunctionGroup

functions = FunctionGroup("temporal")
for _module in (temporal_clock, temporal_parts, temporal_arithmetic, temporal_formats):
    for _definition in _module.functions.definitions:
        functions.add(_definition)
