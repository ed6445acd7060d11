"""The function that Spark runs for each stage: from ``mapInArrow`` into ``runtime/task.py``."""

from __future__ import annotations

import base64
import gc
import pickle
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import cloudpickle
import pyarrow as pa
from pyspark import TaskContext

from millstream.contracts.source import SourceBatch
from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.last_given import begin_notes, end_careful_mode
from millstream.runtime.stage import StageInstance
from millstream.runtime.task import Task
from millstream.runtime.user_code import exit_error
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import Broadcast

    from millstream.graph.job_files import JobFiles
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan


#: The local property that carries the plan of an epoch to its tasks.
PLAN_PROPERTY: Final = "millstream.epoch.plan"

#: Rows of a Spark source on their way to stage 0.
SPARK_SOURCE_DDL: Final = "source int, subtask int, partition int, sequence bigint, payload binary"
_SPARK_SOURCE_SCHEMA: Final = pa.schema(
    [
        ("source", pa.int32()),
        ("subtask", pa.int32()),
        ("partition", pa.int32()),
        ("sequence", pa.int64()),
        ("payload", pa.binary()),
    ]
)
#: Stage instances kept per worker process; beyond it the one not used for longest is closed.
_KEPT_INSTANCES: Final = 64

_instances: OrderedDict[tuple[str, int, int], StageInstance] = OrderedDict()
_graphs: dict[str, JobGraph] = {}
#: The first epoch of a run in this process.
_first_epochs: dict[str, int] = {}


def plan_text(plan: EpochPlan) -> str:
    """A plan as the value of ``PLAN_PROPERTY``."""
    # By value, as Spark pickles functions: workers do not have the script of the user.
    return base64.b64encode(zlib.compress(dumps_by_value(plan), 1)).decode()


def _plan_of(context: TaskContext) -> EpochPlan:
    text = context.getLocalProperty(PLAN_PROPERTY)
    if not text:
        message = f"a task has neither a plan nor the property {PLAN_PROPERTY}"
        raise RuntimeError(message)
    plan: EpochPlan = pickle.loads(zlib.decompress(base64.b64decode(text)))
    return plan


class StageFunction:
    """Runs one stage, of one epoch or of all that a run has.

    Args:
        level: the stage.
        graph: the pickled job graph, sent to each executor once.
        plan: the epoch; None if each task is told by ``PLAN_PROPERTY``.
        files: of the job.
        careful: a worker was lost in the run before.
    """

    def __init__(
        self,
        level: int,
        graph: Broadcast[bytes],
        plan: EpochPlan | None,
        files: JobFiles,
        *,
        careful: bool = False,
    ) -> None:
        self._files = files
        self._careful = careful
        self._level = level
        self._graph = graph
        self._plan = plan

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of ``mapInArrow``."""
        context = TaskContext.get()
        if context is None:
            message = "a stage runs inside a Spark task"
            raise RuntimeError(message)
        subtask = context.partitionId()
        bring_files(self._files)  # before plan and graph, which may be of what they hold
        plan = _plan_of(context) if self._plan is None else self._plan
        key = (plan.run_id, self._level, subtask)
        self._begin_notes(plan)
        with working_directory(self._files):
            yield from self._run(key, plan, rows)

    def _begin_notes(self, plan: EpochPlan) -> None:
        first = _first_epochs.get(plan.run_id)
        if first is None:
            _first_epochs.clear()
            _first_epochs[plan.run_id] = plan.epoch
            begin_notes(plan.run_id, careful=self._careful)
        elif plan.epoch != first:
            end_careful_mode()

    def _run(
        self, key: tuple[str, int, int], plan: EpochPlan, rows: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        instance = self._instance(key)
        # While it runs, the instance is not in the cache: a failure leaves it unusable.
        reader = _SparkRows(rows) if self._level == 0 else None
        task = Task(instance, plan, reader)
        finished = False
        try:
            yield from task.run(rows)
            # A worker whose input is not read to its end is thrown away by Spark, and the next
            # epoch would wait for a new one to start.
            for _ in rows:
                pass
            finished = True
        except (SystemExit, KeyboardInterrupt) as error:
            # PySpark's worker would end with an exit code alone.
            raise exit_error(error) from error
        finally:
            if finished:
                _instances[key] = instance
            else:
                instance.give_up()
        while len(_instances) > _KEPT_INSTANCES:
            _instances.popitem(last=False)[1].close()

    def _instance(self, key: tuple[str, int, int]) -> StageInstance:
        for other in [other for other in _instances if other[0] != key[0]]:
            _instances.pop(other).give_up()  # left by an older run
        instance = _instances.pop(key, None)
        if instance is not None:
            return instance
        graph = _graphs.get(key[0])
        if graph is None:
            graph = cloudpickle.loads(self._graph.value)
            _graphs.clear()
            _graphs[key[0]] = graph
        instance = StageInstance(graph, self._level, key[2])
        instance.open()
        # Records are many short-lived objects without cycles: collecting them often only costs.
        gc.freeze()
        gc.set_threshold(200_000, 20, 100)
        return instance


class _SparkRows:
    """Batches of Spark sources, as they arrive sorted by source in stage 0."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = rows
        self._gathered: dict[int, list[bytes]] | None = None

    def __call__(self, source: int) -> Iterator[SourceBatch]:
        if self._gathered is None:
            self._gathered = {}
            for rows in self._rows:
                names = rows.schema.names
                if "payload" not in names:
                    continue  # the rows that only make stage 0 have a task per subtask
                for entry in rows.to_pylist():
                    if entry["payload"]:
                        self._gathered.setdefault(entry["source"], []).append(entry["payload"])
        for payload in self._gathered.pop(source, []):
            with pa.ipc.open_stream(payload) as reader:
                for batch in reader:
                    yield SourceBatch(arrow=batch)


class PackSparkRows:
    """Turns the rows of a user's DataFrame into one row per Arrow batch, for stage 0."""

    def __init__(self, source: int, parallelism: int) -> None:
        self._source = source
        self._parallelism = parallelism

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of ``mapInArrow``."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        for sequence, batch in enumerate(rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            row = [
                self._source,
                partition % self._parallelism,
                partition,
                sequence,
                sink.getvalue().to_pybytes(),
            ]
            arrays = [
                pa.array([value], type=field.type)
                for value, field in zip(row, _SPARK_SOURCE_SCHEMA, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_SPARK_SOURCE_SCHEMA)
