"""The names of a Python prompt for streaming programs: ``python -i -m millstream.shell``.

All of ``common``, ``datastream``, ``table`` and ``metrics`` is there, and two environments to begin
with. ``Schema`` is that of ``millstream.table``, not the deprecated one of its descriptors.
"""

# ruff: noqa: F403, F405 - the names are for whoever sits at the prompt

from __future__ import annotations

import platform

from millstream.common import *
from millstream.datastream import *
from millstream.metrics import *
from millstream.table import *  # type: ignore[assignment] # its AggregateFunction, as in PyFlink
from millstream.table.catalog import *
from millstream.table.descriptors import Rowtime
from millstream.table.window import *

__all__ = ["Rowtime", "s_env", "st_env"]

s_env = StreamExecutionEnvironment.get_execution_environment()
st_env = StreamTableEnvironment.create(s_env)

print(  # noqa: T201 - a prompt says what it has
    f"Millstream on Python {platform.python_version()}\n"
    "s_env: a StreamExecutionEnvironment; st_env: its StreamTableEnvironment."
)
