"""The test kit, for programs and connectors as well as for Millstream itself.

What it is: what tests of programs use can be imported from here: ``StreamHarness`` (a piece of a
program, fed by hand), ``run_and_collect`` (a whole program, without Spark), sources with a script
and sinks that fail.  What tests of connectors and of Millstream use is in one module per tool.

What it is not: needed at run time.

Read next: ``docs/how-to/testing.md``, ``testing/stream_harness.py``; ``testing/crash.py`` (kill and
restart), ``testing/conformance.py`` (sources and sinks).
"""

from __future__ import annotations

from millstream.testing.harness import OperatorHarness
from millstream.testing.local_run import ManualClock, run_and_collect
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sinks import FailingSink
from millstream.testing.sources import CRASH, EOF, EPOCH, KILL, WATERMARK, At, ScriptedSource
from millstream.testing.stream_harness import StreamHarness

__all__ = [
    "CRASH",
    "EOF",
    "EPOCH",
    "KILL",
    "WATERMARK",
    "At",
    "FailingSink",
    "ManualClock",
    "MiniCluster",
    "OperatorHarness",
    "ScriptedSource",
    "StreamHarness",
    "run_and_collect",
]
