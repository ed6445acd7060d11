"""State that does not fit the program ends the job when it starts, also where no record comes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments, wait_until

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.common import Duration, Types, WatermarkStrategy
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import JobStatus, KeyedProcessFunction
from millstream.datastream.connectors import FileSource
from millstream.datastream.connectors.file_system import StreamFormat
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.datastream import JobClient, RuntimeContext
    from millstream.functions.descriptors import StateDescriptor

COUNT = ValueStateDescriptor("count", Types.LONG())
CHANGES = {
    "another type": (ValueStateDescriptor("count", Types.STRING()), "is now declared with"),
    "another kind": (ListStateDescriptor("count", Types.LONG()), "is now declared as list state"),
    "another name": (ValueStateDescriptor("total", Types.LONG()), "a state is found by its name"),
}


class Counts(KeyedProcessFunction):
    def __init__(self, descriptor: StateDescriptor) -> None:
        self.descriptor: Any = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        get: Any = runtime_context.get_state
        if isinstance(self.descriptor, ListStateDescriptor):
            get = runtime_context.get_list_state
        self.state = get(self.descriptor)

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        self.state.update(1)
        yield value


def start(directory: Path, execution: str, descriptor: StateDescriptor) -> JobClient:
    settings = {
        "execution.target": "local",
        "millstream.execution": execution,
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    env = environments(directory, settings)(1, settings)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(directory / "in")
    ).monitor_continuously(Duration.of_millis(20))
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines")
    counts = (
        lines.uid("lines").key_by(lambda line: line).process(Counts(descriptor), Types.STRING())
    )
    counts.uid("counts").sink_to(BlackholeSink()).uid("sink")
    return env.execute_async("counts")


def has_state(directory: Path) -> bool:
    last = ManifestLog(LocalStorage(directory / "checkpoints")).latest()
    return last is not None and bool(last.program["counts"].states)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_job_ends_without_a_restart_and_without_a_record(
    tmp_path: Path, execution: str, change: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("a\nb\n")
    running = start(tmp_path, execution, COUNT)
    try:
        wait_until(partial(has_state, tmp_path), "state in a checkpoint", 60)
    finally:
        running.cancel().result()
    descriptor, message = CHANGES[change]
    changed = start(tmp_path, execution, descriptor)
    try:
        wait_until(lambda: changed.get_job_status().result() is JobStatus.FAILED, "an end", 60)
        with pytest.raises(StateError, match=message) as caught:
            changed.get_job_execution_result().result()
    finally:
        changed.cancel().result()
    assert "operator" in str(caught.value)
