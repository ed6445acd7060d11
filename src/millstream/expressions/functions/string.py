"""The string functions of Flink's reference.

What it is: the group, put together from the modules that hold its functions.
"""

from __future__ import annotations

from millstream.expressions.functions import (
    string_encodings,
    string_parts,
    string_patterns,
    string_search,
)
from millstream.expressions.functions.definition import FunctionGroup

functions = FunctionGroup("string")
for _module in (string_search, string_parts, string_patterns, string_encodings):
    for _definition in _module.functions.definitions:
        functions.add(_definition)
