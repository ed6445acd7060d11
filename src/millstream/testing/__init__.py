"""The test kit for programs, for connectors, and for Millstream itself.

Tests of programs import from here: ``StreamHarness`` (one operator, driven by hand),
``run_and_collect`` (a whole program without Spark), scripted sources and failing sinks.

Read next: ``docs/how-to/testing.md``, ``testing/stream_harness.py``; ``testing/crash.py`` (kill and
restart), ``testing/conformance.py`` (sources and sinks).
"""

from millstream import facade
from millstream.testing.harness import OperatorHarness as OperatorHarness
from millstream.testing.local_run import ManualClock as ManualClock
from millstream.testing.local_run import run_and_collect as run_and_collect
from millstream.testing.mini_cluster import MiniCluster as MiniCluster
from millstream.testing.sinks import FailingSink as FailingSink
from millstream.testing.sources import CRASH as CRASH
from millstream.testing.sources import EOF as EOF
from millstream.testing.sources import EPOCH as EPOCH
from millstream.testing.sources import KILL as KILL
from millstream.testing.sources import WATERMARK as WATERMARK
from millstream.testing.sources import At as At
from millstream.testing.sources import ScriptedSource as ScriptedSource
from millstream.testing.stream_harness import StreamHarness as StreamHarness

facade.complete(__name__)
