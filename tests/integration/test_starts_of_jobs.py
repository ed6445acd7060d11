"""How a start reports what it continues from, and what becomes of operators and states."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, environment, event_time
from tests.support.environments import environments, wait_until

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.cli.main import main
from millstream.common import Duration, Types, WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from millstream.datastream.connectors import DiscardingSink, FileSource
from millstream.datastream.connectors.file_system import StreamFormat
from millstream.datastream.state import ValueStateDescriptor
from millstream.execution.monitor import JobMonitor
from millstream.metrics.progress import SilentProgressReporter
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.time import Time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.execution.monitor import JobStart

    Build = Callable[[StreamExecutionEnvironment], None]

EVENTS = [(number % 4, number, number) for number in range(40)]
DROPS = {"execution.state-recovery.ignore-unclaimed-state": "true"}


class Count(KeyedProcessFunction):
    """Count the records of each key, in states of some names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def open(self, runtime_context: RuntimeContext) -> None:
        self.states: list[Any] = [
            runtime_context.get_state(ValueStateDescriptor(name, Types.LONG()))
            for name in self.names
        ]

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        del ctx
        for state in self.states:
            state.update((state.value() or 0) + 1)
        yield value[0], self.states[0].value()


def counts(*names: str, windows: str = "") -> Callable[[StreamExecutionEnvironment, Path], None]:
    """A program: counts by key, and if wanted windows under a uid."""

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        events = env.from_source(SplitsSource([EVENTS]), event_time(0), "events").uid("events")
        keyed = events.key_by(lambda event: event[0])
        if names:
            collect(keyed.process(Count(*names)).name("counts").uid("counts"), directory)
        if windows:
            window = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(1000)))
            window.reduce(max).name("sums").uid(windows).sink_to(DiscardingSink()).uid("nowhere")

    return build


def cluster_of(directory: Path, build: Any, **settings: str) -> MiniCluster:
    env = environment(2, **settings)
    build(env, directory)
    return MiniCluster(env.get_job_graph("started"), directory / "checkpoint", limits=[10] * 20)


def start_after(directory: Path, first: Any, second: Any, **settings: str) -> JobStart:
    """How the second program starts after two checkpoints of the first one."""
    cluster = cluster_of(directory, first)
    assert not cluster.job.start.continues
    cluster.run(2)
    cluster.coordinator.close()
    again = cluster_of(directory, second, **settings)
    start = again.job.start
    again.run(1)
    again.coordinator.close()
    return start


@pytest.mark.both_engines
def test_a_first_start_is_from_scratch(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, counts("count"))
    start = cluster.job.start
    cluster.coordinator.close()
    assert str(start) == (
        f"job 'started' starts from scratch: there is no checkpoint in {tmp_path / 'checkpoint'}"
    )
    assert start.lines() == [str(start)]


@pytest.mark.both_engines
def test_a_start_names_checkpoint_run_and_directory(tmp_path: Path) -> None:
    start = start_after(tmp_path, counts("count"), counts("count"))
    assert (start.checkpoint_id, start.run) == (1, 1)
    head, *rest = start.lines()
    assert head.startswith("job 'started' continues from checkpoint 1 of run 1, published 20")
    assert head.endswith(f", in {tmp_path / 'checkpoint'}")
    assert len(rest) == 2
    assert rest[0].startswith("  restored: source 'Source: events' (test_starts_of_jobs.py:")
    assert rest[0].endswith("; the position of 1 split")
    assert rest[1].startswith("  restored: operator 'counts' (test_starts_of_jobs.py:")
    assert "; state 'count'" in rest[1]
    assert not start.dropped


@pytest.mark.both_engines
def test_new_and_dropped_operators_are_named_with_their_states(tmp_path: Path) -> None:
    second = counts("count", windows="later")
    start = start_after(tmp_path, counts("count", windows="sums"), second, **DROPS)
    outcomes = {each.uid: each for each in start.operators}
    assert outcomes["counts"].outcome == "restored"
    assert outcomes["later"].outcome == "new"
    assert "windows" in " ".join(outcomes["later"].new)
    assert [each.uid for each in start.dropped] == ["sums"]
    assert str(outcomes["sums"]).startswith("dropped: operator 'sums' (")
    assert "windows" in " ".join(outcomes["sums"].dropped)


def shown_after(directory: Path, first: Any, second: Any) -> tuple[JobStart, list[str]]:
    """Return how the second program starts once its functions have opened, and the lines of it."""
    cluster = cluster_of(directory, first)
    cluster.run(2)
    cluster.coordinator.close()
    again = cluster_of(directory, second)
    acks = []
    again._run.on_epoch = lambda _, found, __: acks.append(found)
    again.run(1)
    again.coordinator.close()
    before = again.job.start
    start = before.with_function_states(acks[0])
    return start, start.function_states(before)


@pytest.mark.both_engines
def test_states_that_functions_add_are_named_at_the_first_checkpoint(tmp_path: Path) -> None:
    added = counts("total", "count", "greatest")
    start, [line] = shown_after(tmp_path, counts("count"), added)
    assert line.startswith("new: state 'greatest', state 'total' of operator 'counts' (")
    assert line.endswith(") began empty; the checkpoint has 'count' of it")
    [counted] = [each for each in start.operators if each.uid == "counts"]
    assert "state 'count'" in counted.restored
    assert counted.new[-2:] == ("state 'greatest'", "state 'total'")


@pytest.mark.both_engines
def test_states_that_the_function_does_not_name_any_more_are_not_restored(tmp_path: Path) -> None:
    start, [line] = shown_after(tmp_path, counts("count", "total"), counts("count"))
    assert line.startswith("kept unused: state 'total' of operator 'counts' (")
    [counted] = [each for each in start.operators if each.uid == "counts"]
    assert "state 'total'" not in counted.restored
    assert "state 'count'" in counted.restored
    assert counted.unused == ("state 'total'",)
    assert str(counted).endswith("; kept unused: state 'total'")


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_job_shows_its_start_as_its_functions_have_it(tmp_path: Path, execution: str) -> None:
    settings = {
        "execution.target": "local",
        "millstream.execution": execution,
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
    }
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("a\nb\n")

    def wait_for_start(wanted: tuple[str, ...], *names: str) -> None:
        env = environments(tmp_path, settings)(1, {})
        source = FileSource.for_record_stream_format(
            StreamFormat.text_line_format(), str(tmp_path / "in")
        ).monitor_continuously(Duration.of_millis(20))
        lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines")
        keyed = lines.uid("lines").key_by(lambda line: line[0])
        keyed.process(Count(*names)).uid("counts").sink_to(DiscardingSink()).uid("nowhere")
        client = env.execute_async("started")

        def unused() -> tuple[str, ...]:
            return next((e.unused for e in client.get_start().operators if e.uid == "counts"), ())

        try:
            wait_until(lambda: client.get_last_checkpoint() is not None, "a checkpoint", 60)
            wait_until(lambda: unused() == wanted, "the states that are not used", 60)
        finally:
            client.cancel().result()

    def has_state() -> bool:
        last = ManifestLog(LocalStorage(tmp_path / "checkpoints")).latest()
        return last is not None and len(last.program["counts"].states) == 2

    while not has_state():
        wait_for_start((), "count", "total")
    wait_for_start(("state 'total'",), "count")


def test_dropped_state_is_a_warning_where_starts_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = start_after(tmp_path, counts("count", windows="sums"), counts("count"), **DROPS)
    env = environment(1)
    env.from_collection([1]).print()
    monitor = JobMonitor(env.get_job_graph("prints"), {}, SilentProgressReporter())
    with caplog.at_level(logging.WARNING, "millstream"):
        monitor.started(start)
        monitor.started(start)  # a restart does not repeat it
    [record] = caplog.records
    assert "job 'started' leaves state unclaimed: dropped: operator 'sums' (" in record.message


# -- of whole jobs ---------------------------------------------------------------------------------


def execute(directory: Path, execution: str, *names: str, **settings: str) -> JobStart:
    """Run a program over all its input on the local engine."""
    engine = {"execution.target": "local", "millstream.execution": execution}
    kept = {"execution.checkpointing.dir": str(directory / "kept"), "millstream.progress": "auto"}
    env = environments(directory, engine)(1, {**kept, **settings})
    numbers = env.from_collection([(n % 4, n) for n in range(40)]).uid("numbers")
    counted = numbers.key_by(lambda event: event[0]).process(Count(*names)).name("counts")
    counted.uid("counts").sink_to(DiscardingSink()).uid("nowhere")
    client = env.execute_async("started")
    client.get_job_execution_result().result()
    return client.get_start()


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_job_logs_how_it_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, execution: str
) -> None:
    with caplog.at_level(logging.INFO, "millstream"):
        assert not execute(tmp_path, execution, "count").continues
    assert f"job 'started' starts from scratch: there is no checkpoint in {tmp_path}" in caplog.text
    caplog.clear()
    start = execute(tmp_path, execution, "count")
    assert start.final
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "job 'started' has finished before with checkpoint " in caplog.text
    assert "use another execution.checkpointing.dir" in caplog.text


def test_plan_shows_how_the_job_would_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\n"
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "from millstream.datastream.connectors import DiscardingSink\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "numbers = env.from_collection([1]).uid(sys.argv[1]).map(lambda n: n)\n"
        "numbers.sink_to(DiscardingSink()).uid('nowhere')\n"
        "env.execute('planned')\n"
    )

    def planned(*options: str, uid: str = "numbers") -> str:
        assert main(["plan", *options, str(program), uid]) == 0
        return capsys.readouterr().out.partition("\nStart\n")[2]

    assert "starts from scratch: execution.checkpointing.dir is not set" in planned()
    kept = ["--checkpoint-dir", str(tmp_path / "kept")]
    assert f"there is no checkpoint in {tmp_path / 'kept'}" in planned(*kept)
    assert not (tmp_path / "kept").exists()
    local = [*kept, "--target", "local", "-D", "millstream.checkpoint.fsync=false"]
    assert main(["run", *local, str(program), "numbers"]) == 0
    capsys.readouterr()
    assert "has finished before with checkpoint " in planned(*kept)
    refused = planned(*kept, uid="other")
    assert "refused: the program does not fit checkpoint" in refused
    assert "is gone" in refused
