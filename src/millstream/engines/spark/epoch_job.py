"""The Spark job of an epoch: the stages of the graph as a chain of ``mapInArrow`` and exchanges.

What it is: the frames of all stages, built once per run.  Making them took a seventh of an epoch
with little to read (each expression is some calls into the JVM, and Spark checks the whole chain),
and all that an epoch changes is its plan.  So the functions of the stages stay the same, and the
plan comes to the tasks as a local property, which Spark hands to every task of a job, also of a
stage that it runs again.

What it is not: reused output.  Each epoch is a query of its own over the same logical plan, with
shuffles of its own.

Read next: ``engines/spark/stage_function.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import functions
from pyspark.sql.types import StructType

from millstream.engines.spark.stage_function import (
    PLAN_PROPERTY,
    SPARK_SOURCE_DDL,
    PackSparkRows,
    StageFunction,
    plan_text,
)
from millstream.engines.spark.worker_homes import RUN_PROPERTY, keep_workers_aside
from millstream.runtime.frames import FRAME_DDL
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import Column, DataFrame

    from millstream.checkpoint.model import TaskAck
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

__all__ = ["EpochJob", "has_spark_sources", "spark_source_frame"]

#: Characters of a plan that travel as a property, with each task; longer ones (of many subtasks
#: with much state) are a part of the functions, which Spark sends once per executor.
_LONGEST_PROPERTY: Final = 64 * 1024


class EpochJob:
    """Runs the tasks of epochs, one at a time.

    Args:
        graph: the job graph.
        graph_broadcast: the same, pickled.
        careful: a worker was lost in the run before.
    """

    def __init__(
        self, graph: JobGraph, graph_broadcast: Broadcast[bytes], *, careful: bool = False
    ) -> None:
        self._careful = careful
        self._stages = graph.stages
        self._files = graph.files
        self._graph_broadcast = graph_broadcast
        #: Whether stage 0 reads the rows of a micro-batch, each of which is another DataFrame.
        self._spark_sources = has_spark_sources(graph)
        self._schema: Final = cast("StructType", StructType.fromDDL(FRAME_DDL))
        self._order: Final = [
            functions.col(name) for name in ("watermark", "edge", "channel", "sequence")
        ]
        self._targets: dict[int, Column] = {}
        #: Invariant: of the session that the rows of every epoch of the run are of.
        self._template: DataFrame | None = None
        #: Partitions have been given workers of their own, as far as that is possible.
        self._at_home = False

    def run(self, rows: DataFrame, plan: EpochPlan) -> list[TaskAck]:
        """Run the tasks of an epoch.

        Args:
            rows: the micro-batch.
            plan: the epoch.

        Returns:
            What the tasks acknowledge, one per subtask and stage.
        """
        context = rows.sparkSession.sparkContext
        context.setLocalProperty(RUN_PROPERTY, plan.run_id)
        try:
            return self._run(rows, plan)
        finally:
            context.setLocalProperty(RUN_PROPERTY, "")
            if not self._at_home:
                self._at_home = True  # now that there are workers
                keep_workers_aside(context)

    def _run(self, rows: DataFrame, plan: EpochPlan) -> list[TaskAck]:
        if self._spark_sources:
            return _acknowledged(self._chain(self._spark_input(rows), plan))
        text = plan_text(plan)
        if len(text) > _LONGEST_PROPERTY:
            return _acknowledged(self._chain(self._empty_input(rows), plan))
        if self._template is None:
            self._template = self._chain(self._empty_input(rows), None)
        context = rows.sparkSession.sparkContext
        context.setLocalProperty(PLAN_PROPERTY, text)
        try:
            # A new query: asking the template itself again would find the shuffled frames of the
            # epoch before.
            return _acknowledged(self._template.select("*"))
        finally:
            context.setLocalProperty(PLAN_PROPERTY, "")

    def _chain(self, data: DataFrame, plan: EpochPlan | None) -> DataFrame:
        for stage in self._stages:
            if stage.level > 0:
                data = self._shuffled(data, stage.parallelism)
            function = StageFunction(
                *(stage.level, self._graph_broadcast, plan, self._files), careful=self._careful
            )
            data = data.mapInArrow(function, self._schema)
        return data

    def _shuffled(self, frames: DataFrame, parallelism: int) -> DataFrame:
        """The frames at the subtasks of a stage, in processing order."""
        target = self._targets.get(parallelism)
        if target is None:
            target = functions.expr(f"cast(pmod(subtask, {parallelism}) as int)")
            self._targets[parallelism] = target
        return frames.repartitionById(parallelism, target).sortWithinPartitions(*self._order)

    def _empty_input(self, rows: DataFrame) -> DataFrame:
        """A task per subtask of stage 0, which reads splits."""
        first = self._stages[0].parallelism
        return rows.sparkSession.range(0, first, 1, first)

    def _spark_input(self, rows: DataFrame) -> DataFrame:
        """The packed rows of all Spark sources, on the subtasks of stage 0."""
        return (
            rows.where("payload is not null")
            .select("source", "subtask", "partition", "sequence", "payload")
            .repartitionById(self._stages[0].parallelism, functions.col("subtask"))
            .sortWithinPartitions("source", "partition", "sequence")
        )


def _acknowledged(frames: DataFrame) -> list[TaskAck]:
    return [cast("TaskAck", loads(bytes(row.payload))) for row in frames.collect()]


def has_spark_sources(graph: JobGraph) -> bool:
    """Whether Spark has rows of its own to read for a job: a DataFrame of ``env.from_spark``."""
    return any(node.spark_index is not None for node in graph.nodes.values())


def spark_source_frame(frame: DataFrame, node: int, parallelism: int) -> DataFrame:
    """A user's streaming DataFrame as rows for stage 0 (see ``PackSparkRows``)."""
    return frame.mapInArrow(PackSparkRows(node, parallelism), SPARK_SOURCE_DDL)
