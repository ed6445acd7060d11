"""The engines by name; each is imported only when a job is to run on it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.configuration import options

if TYPE_CHECKING:
    from millstream.execution.job_client import JobHandle
    from millstream.graph.model import JobGraph


#: Target and execution -> the module whose ``submit`` starts jobs there.
ENGINES: Final = {
    ("spark", "epochs"): "millstream.engines.spark.engine",
    ("local", "epochs"): "millstream.engines.local.engine",
    ("spark", "pipelined"): "millstream.engines.spark.pipelined",
    ("local", "pipelined"): "millstream.engines.pipelined.engine",
}


_LOCATIONS: Final = {"spark": "Spark", "local": "processes of this machine"}


class _Engine(Protocol):
    def submit(self, job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle: ...


def submit(job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle:
    """Check a job and start it on the engine that its options name.

    Args:
        job_graph: the job.
        spark_dataframes: the DataFrames of ``env.from_spark``, by their ``spark_index``.

    Returns:
        A handle; the job runs in a thread of this process, its tasks in others.

    Raises:
        SourceError, SinkError, ConfigurationError, CheckpointError, DirectoryError,
        UnpicklableFunctionError:
            the job cannot run as it is; nothing was written.
    """
    configuration = job_graph.configuration
    choice = (configuration.get(options.TARGET), configuration.get(options.EXECUTION))
    engine = cast("_Engine", importlib.import_module(ENGINES[choice]))
    return engine.submit(job_graph, spark_dataframes=spark_dataframes)


def describe_engine(job_graph: JobGraph) -> str:
    """On which engine a job would run, whether on the other, and why not; some lines of text."""
    from millstream.engines.pipelined.engine import why_not_pipelined
    from millstream.engines.spark.session import why_never

    configuration = job_graph.configuration
    target = configuration.get(options.TARGET)
    place = _LOCATIONS[target]
    reason = why_not_pipelined(job_graph)
    if reason is None and target == "spark":
        reason = why_never(configuration, job_graph.width)
    if configuration.get(options.EXECUTION) == "pipelined":
        lines = [f"pipelined, on {place}"]
        lines.append(f"refused: {reason}" if reason else "epochs would do, too")
    else:
        lines = [f"epochs, on {place}"]
        possible = "millstream.execution: pipelined would do, too (docs/concepts/engines.md)"
        lines.append(f"not pipelined: {reason}" if reason else possible)
    return "\n".join(["Engine", *(f"  {line}" for line in lines)])
