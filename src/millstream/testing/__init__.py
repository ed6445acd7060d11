"""The test kit for programs, for connectors, and for Millstream itself.

Tests of programs import from here: ``StreamHarness`` (one operator, driven by hand),
``run_and_collect`` (a whole program without Spark), scripted sources and failing sinks.

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
