"""The engines by name, each imported only when a job is to run on it.

What it is: what ``execution.target`` and ``millstream.execution`` may be.
What it is not: an import of any engine.

Read next: ``execution/engine.py``, ``engines/spark/engine.py``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.configuration import options

if TYPE_CHECKING:
    from millstream.execution.job_client import JobHandle
    from millstream.graph.model import JobGraph

__all__ = ["ENGINES", "submit"]

#: Target and execution -> the module whose ``submit`` starts jobs there.
ENGINES: Final = {
    ("spark", "epochs"): "millstream.engines.spark.engine",
    ("local", "epochs"): "millstream.engines.local.engine",
    ("spark", "pipelined"): "millstream.engines.spark.pipelined",
    ("local", "pipelined"): "millstream.engines.pipelined.engine",
}


class _Engine(Protocol):
    def submit(self, job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle: ...


def submit(job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle:
    """Check a job and start it on the engine that its options name.

    Args:
        job_graph: the job.
        spark_dataframes: the DataFrames of ``env.from_spark``, by their ``spark_index``.
    """
    configuration = job_graph.configuration
    choice = (configuration.get(options.TARGET), configuration.get(options.EXECUTION))
    engine = cast("_Engine", importlib.import_module(ENGINES[choice]))
    return engine.submit(job_graph, spark_dataframes=spark_dataframes)
