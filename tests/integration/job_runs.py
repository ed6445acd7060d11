"""What the tests of whole jobs share: sources, watermarks, schedules, and running a job.

What it is: a *schedule* says how a job is run: where its epochs are cut, with which state backend,
at which parallelisms, when it is stopped, whether the workers' local copies of the state are
lost meanwhile, and on which engine it goes on.  No schedule may change a result.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from tests.support import examples as shared

from millstream.common import Types, WatermarkStrategy
from millstream.configuration import options
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.functions.watermark_strategy import WatermarkGenerator
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation

__all__ = [
    "EveryRecord",
    "Schedule",
    "SplitsSource",
    "collect",
    "collected",
    "environment",
    "event_time",
    "examples",
    "run_schedule",
    "schedules",
    "temporary_directory",
]


def examples(count: int) -> settings:
    """So many examples, the same ones each time; the example is printed if one fails."""
    return settings(
        shared.examples(count),
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """A new directory per example; pytest's is per test."""
    directory = Path(tempfile.mkdtemp(prefix="millstream-integration-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class SplitsSource(Source):
    """Lists of values, each a split; an offset is an index."""

    def __init__(
        self,
        splits: Sequence[Sequence[object]],
        type_info: TypeInformation | None = None,
        *,
        unbounded: bool = False,
    ) -> None:
        self.splits = [list(values) for values in splits]
        self._type = type_info or Types.PICKLED_BYTE_ARRAY()
        self._unbounded = unbounded

    @property
    def boundedness(self) -> Boundedness:
        if self._unbounded:
            return Boundedness.CONTINUOUS_UNBOUNDED
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def discover(self, known: KnownSplits) -> list[Split]:
        names = [f"split-{number}" for number in range(len(self.splits))]
        return [Split(name) for name in names if name not in known]

    def end_offset(self, split: Split) -> int:
        return len(self._values(split))

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        values = self._values(split)[start:stop]
        # Two batches, so that watermarks move within an epoch.
        middle = len(values) // 2
        for part in (values[:middle], values[middle:]):
            if part and self._type.arrow_schema is not None:
                yield SourceBatch(arrow=self._type.to_arrow(part))
            elif part:
                yield SourceBatch(values=part)

    def _values(self, split: Split) -> list[object]:
        return self.splits[int(split.id.rpartition("-")[2])]


class EveryRecord(WatermarkGenerator):
    """Punctuated: a watermark behind every record, ``bound`` ms behind the greatest timestamp."""

    def __init__(self, bound: int) -> None:
        self.bound = bound

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark(event_timestamp - self.bound - 1)

    def on_periodic_emit(self, output: Any) -> None:
        pass


@dataclass(frozen=True)
class _MakeEveryRecord:
    bound: int

    def __call__(self) -> WatermarkGenerator:
        return EveryRecord(self.bound)


def event_time(bound: int, *, punctuated: bool = True) -> WatermarkStrategy:
    """Event time is field 2 of the record."""
    if punctuated:
        strategy = WatermarkStrategy.for_generator(_MakeEveryRecord(bound))
    else:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound)
    return strategy.with_timestamp_assigner(lambda record, _: record[2])


@dataclass(frozen=True)
class Schedule:
    """How a job is run."""

    #: Units of source offset per epoch; the last holds for all further epochs.
    limits: tuple[int, ...]
    #: Shuffles tasks and the workers that forget their instances.
    seed: int
    backend: str
    #: One per run; the job is stopped between them.
    parallelisms: tuple[int, ...]
    #: After how many epochs it is stopped.
    epochs_per_run: int
    #: The local copies of the state are lost at each stop.
    forget_local: bool
    #: By turns: whether tasks live on, as in the pipelined engine; empty: what the test runs on.
    live_on: tuple[bool, ...] = ()


def schedules(*, rescale: bool = True) -> st.SearchStrategy[Schedule]:
    """Any schedule; without ``rescale`` all runs have one parallelism."""
    parallelism = st.sampled_from([1, 2, 3])
    fixed = st.tuples(parallelism, st.integers(1, 3)).map(lambda pair: (pair[0],) * pair[1])
    free = st.lists(parallelism, min_size=1, max_size=3).map(tuple)
    return st.builds(
        Schedule,
        limits=st.lists(st.integers(1, 25), max_size=3).map(lambda cuts: (*cuts, 20)),
        seed=st.integers(0, 1000),
        # A store of rocksdb takes about 20 times as long to open and close.
        backend=st.sampled_from(["hashmap"] * 5 + ["rocksdb"]),
        parallelisms=free if rescale else fixed,
        epochs_per_run=st.integers(1, 3),
        forget_local=st.booleans(),
        live_on=st.lists(st.booleans(), min_size=1, max_size=3).map(tuple),
    )


def environment(parallelism: int, **configuration: str) -> StreamExecutionEnvironment:
    """An environment of this parallelism."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    for key, value in configuration.items():
        env.get_configuration().set_string(key, value)
    return env


def collect(stream: DataStream, directory: Path, name: str = "out") -> None:
    """End a stream in a collect sink that is called ``name``."""
    stream.sink_to(CollectSink(directory / name, fsync=False)).uid(f"sink-{name}")


def collected(directory: Path, name: str = "out") -> list[Any]:
    """What the sink has committed, in order of epoch and subtask."""
    return list(read_collected(directory / name))


def run_schedule(
    build: Callable[[StreamExecutionEnvironment, Path], None],
    schedule: Schedule,
    directory: Path,
) -> Manifest:
    """Run the job that ``build`` makes to its end; returns the last manifest."""
    manifest: Manifest | None = None
    last = len(schedule.parallelisms) - 1
    for run, parallelism in enumerate(schedule.parallelisms):
        # Keys are of any type, and a run may have met only some of these so far.
        env = environment(parallelism, **{options.IGNORE_UNCLAIMED_STATE.key: "true"})
        build(env, directory)
        cluster = MiniCluster(
            env.get_job_graph("integration"),
            directory / "checkpoint",
            limits=schedule.limits,
            seed=schedule.seed + run,
            state_backend=schedule.backend,
            pipelined=schedule.live_on[run % len(schedule.live_on)] if schedule.live_on else None,
        )
        manifest = cluster.run() if run == last else cluster.run(schedule.epochs_per_run)
        if schedule.forget_local and run < last:
            shutil.rmtree(directory / "checkpoint" / "local", ignore_errors=True)
    assert manifest is not None
    assert manifest.final
    return manifest
