"""Programs that were changed between two runs: key groups, operators, types of state.

What it is: jobs on a MiniCluster, stopped and gone on with in another form.  What fits goes on as
if nothing had happened; what does not is refused by name, with a way that works.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time

from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.checkpoint.program import labelled, labels
from millstream.cli.main import main
from millstream.common import Types
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import KeyedProcessFunction, TumblingEventTimeWindows
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.errors import IncompatibleProgramError, StateError
from millstream.execution.job import program_of
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment

KEYS = 40
EVENTS = [(number % KEYS, number, number) for number in range(160)]


class Count(KeyedProcessFunction):
    """How many records of the key there were."""

    def __init__(self, *descriptors: Any) -> None:
        self.descriptors = descriptors or (ValueStateDescriptor("count", Types.LONG()),)

    def open(self, runtime_context: RuntimeContext) -> None:
        get: dict[str, Any] = {
            "value": runtime_context.get_state,
            "list": runtime_context.get_list_state,
            "map": runtime_context.get_map_state,
        }
        self.states: Any = [get[each.kind](each) for each in self.descriptors]

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self.states[0].value() or 0) + 1
        self.states[0].update(count)
        for state in self.states[1:]:
            state.put(value[1], value[1])
        yield value[0], count


def expected() -> Counter[Any]:
    return Counter((key, count + 1) for key in range(KEYS) for count in range(160 // KEYS))


class Job:
    """A program on a checkpoint directory; each run may build it differently."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(
        self,
        build: Callable[[StreamExecutionEnvironment], DataStream | None],
        parallelism: int = 2,
        options: dict[str, str] | None = None,
    ) -> MiniCluster:
        env = environment(parallelism, **(options or {}))
        stream = build(env)
        if stream is not None:
            collect(stream, self.directory)
        graph = env.get_job_graph("changed")
        return MiniCluster(graph, self.directory / "checkpoint", limits=[60] * 100)

    def stop(self, build: Callable[[StreamExecutionEnvironment], DataStream | None]) -> None:
        """Run two epochs of a program, and end cleanly."""
        cluster = self.start(build)
        cluster.run(2)
        cluster.coordinator.close()

    def refusal(
        self,
        build: Callable[[StreamExecutionEnvironment], DataStream | None],
        parallelism: int = 2,
    ) -> str:
        """Why a program is refused."""
        log = sorted((self.directory / "checkpoint" / "log").iterdir())
        with pytest.raises(IncompatibleProgramError) as caught:
            self.start(build, parallelism)
        assert sorted((self.directory / "checkpoint" / "log").iterdir()) == log
        return str(caught.value)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def source(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_source(SplitsSource([EVENTS]), event_time(0), "events").uid("events")


def counting(
    groups: int | None = None, of_operator: int | None = None
) -> Callable[[StreamExecutionEnvironment], DataStream]:
    """The job, with max parallelism set for all of it or for the operator."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        if groups is not None:
            env.set_max_parallelism(groups)
        counts = source(env).key_by(lambda event: event[0]).process(Count()).name("counts")
        if of_operator is not None:
            counts.set_max_parallelism(of_operator)
        return counts.uid("counts")

    return build


# -- max parallelism (a key's state lies in its key group) -----------------------------------------


@pytest.mark.both_engines
@pytest.mark.parametrize("stored", [counting(64), counting(of_operator=64)])
def test_max_parallelism_is_taken_from_the_checkpoint(job: Job, stored: Any) -> None:
    job.stop(stored)
    manifest = job.start(counting(), 3).run()
    assert manifest is not None
    assert manifest.operators["counts"][-1].state is not None
    assert manifest.operators["counts"][-1].state["key_groups"][1] == 64
    assert Counter(collected(job.directory)) == expected()


@pytest.mark.extended
def test_max_parallelism_that_was_derived_from_another_parallelism_stays(job: Job) -> None:
    def wide(env: StreamExecutionEnvironment) -> DataStream:
        return counting()(env).set_parallelism(300)

    hashmap = {"state.backend.type": "hashmap"}
    cluster = job.start(wide, 1, hashmap)
    cluster.run(2)
    cluster.coordinator.close()
    manifest = job.start(counting(), 1, hashmap).run()
    assert manifest is not None
    assert manifest.operators["counts"][-1].state is not None
    assert manifest.operators["counts"][-1].state["key_groups"][1] == 512
    assert Counter(collected(job.directory)) == expected()


@pytest.mark.both_engines
@pytest.mark.parametrize("changed", [counting(64), counting(of_operator=64)])
def test_keys_are_hashed_again_at_another_max_parallelism(job: Job, changed: Any) -> None:
    job.stop(counting())
    cluster = job.start(changed, 3)
    manifest = cluster.run()
    assert manifest is not None
    assert [ack.state["key_groups"] for ack in manifest.operators["counts"] if ack.state] == [
        (0, 22),
        (22, 43),
        (43, 64),
    ]
    assert Counter(collected(job.directory)) == expected()


@pytest.mark.both_engines
def test_a_failure_before_the_first_checkpoint_hashes_again(job: Job) -> None:
    """The checkpoint is still that of the other max parallelism."""
    job.stop(counting())
    job.start(counting(20)).coordinator.close()  # nothing ran
    job.stop(counting(300))
    job.start(counting(), 3).run()
    assert Counter(collected(job.directory)) == expected()


@pytest.mark.both_engines
def test_more_subtasks_than_stored_key_groups_hash_keys_again(job: Job) -> None:
    job.stop(counting(3))
    manifest = job.start(counting(), 4).run()
    assert manifest is not None
    assert manifest.operators["counts"][-1].state is not None
    assert manifest.operators["counts"][-1].state["key_groups"][1] == 128
    assert Counter(collected(job.directory)) == expected()


@pytest.mark.both_engines
def test_operators_without_state_may_have_any_max_parallelism(job: Job) -> None:
    def build(groups: int) -> Callable[[StreamExecutionEnvironment], DataStream]:
        def made(env: StreamExecutionEnvironment) -> DataStream:
            events = source(env).map(lambda event: event).uid("map").set_max_parallelism(groups)
            return events.key_by(lambda event: event[0]).process(Count()).uid("counts")

        return made

    job.stop(build(64))
    job.start(build(32)).run()
    assert Counter(collected(job.directory)) == expected()


# -- parallelism of one operator -------------------------------------------------------------------


@pytest.mark.both_engines
def test_an_operator_is_rescaled_within_a_stage_that_stays_as_wide(job: Job) -> None:
    """Its old subtasks leave the checkpoint: their state would come back in the next epoch."""
    told: list[dict[str, int]] = []
    for shrinks, grows in ((4, 2), (2, 4), (1, 3)):
        env = environment(4)
        events = source(env)
        for name, parallelism in (("stays", 4), ("shrinks", shrinks), ("grows", grows)):
            counts = events.key_by(lambda event: event[0]).process(Count()).name(name).uid(name)
            collect(counts.set_parallelism(parallelism), job.directory, f"{name}-out")
        graph = env.get_job_graph("branches")
        assert graph.stages[1].parallelism == 4
        cluster = MiniCluster(graph, job.directory / "checkpoint", limits=[20] * 100)
        manifest = cluster.run() if told[1:] else cluster.run(3)
        cluster.coordinator.close()
        assert manifest is not None
        names = ("stays", "shrinks", "grows")
        told.append({name: len(manifest.operators[name]) for name in names})
    for name in ("stays", "shrinks", "grows"):
        assert Counter(collected(job.directory, f"{name}-out")) == expected(), name
    assert [list(each.values()) for each in told] == [[4, 4, 2], [4, 2, 4], [4, 1, 3]]


# -- operators that came, went or moved ------------------------------------------------------------


def plain(env: StreamExecutionEnvironment) -> DataStream:
    events = env.from_source(SplitsSource([EVENTS]), event_time(0), "events").uid("events")
    return events.key_by(lambda event: event[0]).process(Count()).name("counts")


def mapped(uid: str | None) -> Callable[[StreamExecutionEnvironment], DataStream]:
    """``plain`` with an operator before the one with state."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        clean = source(env).map(lambda event: event).name("clean")
        counts = clean.key_by(lambda event: event[0]).process(Count()).name("counts")
        return counts if uid is None else counts.uid(uid)

    return build


@pytest.mark.both_engines
def test_a_changed_program_without_uids_gets_names_and_a_way_that_works(job: Job) -> None:
    job.stop(plain)
    message = job.refusal(mapped(None))
    lines = message.splitlines()
    assert re.fullmatch(r"the program does not fit checkpoint 1 in \S+/checkpoint:", lines[0])
    place = r"\(test_changed_programs\.py:\d+\)"
    moved = next(line for line in lines if line.startswith("  ~ "))
    assert re.match(rf"  ~ operator 'counts' {place}, made at test_changed_programs\.py:\d+", moved)
    assert "reads 'clean' and not 'Source: events' any more" in moved
    assert "the checkpoint has keyed state of it" in moved
    assert any(re.fullmatch(rf"  \+ operator 'clean' {place} is new", line) for line in lines)
    assert "belongs to another job" not in message
    uid = re.search(r"to keep that, give it its old uid: \.uid\('(\w+)'\)", message)
    assert uid is not None
    job.start(mapped(uid[1])).run()
    assert Counter(collected(job.directory)) == expected()


@pytest.mark.both_engines
def test_an_operator_with_state_that_is_gone(job: Job) -> None:
    job.stop(counting())

    def without(env: StreamExecutionEnvironment) -> DataStream:
        return source(env).map(lambda event: (event[0], 1)).uid("ones")

    message = job.refusal(without)
    assert "  - operator 'counts' (test_changed_programs.py:" in message
    assert "is gone; the checkpoint has keyed state of it" in message
    assert "execution.state-recovery.ignore-unclaimed-state" in message
    ignoring = {"execution.state-recovery.ignore-unclaimed-state": "true"}
    manifest = job.start(without, options=ignoring).run()
    assert manifest is not None
    assert "counts" not in manifest.operators
    assert sum(Counter(collected(job.directory)).values()) == len(EVENTS)


@pytest.mark.both_engines
def test_operators_may_be_added(job: Job) -> None:
    job.stop(counting())

    def more(env: StreamExecutionEnvironment) -> DataStream:
        counts = counting()(env)
        sums = counts.key_by(lambda each: each[0]).process(Count()).name("again")
        collect(sums, job.directory, "again")
        return counts

    job.start(more).run()
    assert Counter(collected(job.directory)) == expected()
    assert max(count for _, count in collected(job.directory, "again")) < 160 // KEYS


@pytest.mark.both_engines
def test_a_sink_that_is_another_or_gone(job: Job) -> None:
    job.stop(counting())

    def other(env: StreamExecutionEnvironment) -> None:
        counting()(env).sink_to(BlackholeSink()).uid("sink-out").name("results")

    message = job.refusal(other)
    assert "sink 'results' (test_changed_programs.py:" in message
    assert "is a BlackholeSink and was a CollectSink" in message

    def gone(env: StreamExecutionEnvironment) -> None:
        counting()(env).sink_to(BlackholeSink()).uid("nothing")

    assert re.search(r"  - sink .* is gone; the checkpoint has \d+ committables", job.refusal(gone))


@pytest.mark.both_engines
def test_another_kind_of_operator_under_the_same_uid(job: Job) -> None:
    job.stop(counting())

    def windows(env: StreamExecutionEnvironment) -> DataStream:
        keyed = source(env).key_by(lambda event: event[0])
        return (
            keyed.window(TumblingEventTimeWindows.of(10))
            .reduce(lambda one, _: one)
            .uid("counts")
            .name("windows")
        )

    def running(env: StreamExecutionEnvironment) -> DataStream:
        keyed = source(env).key_by(lambda event: event[0])
        return keyed.reduce(lambda one, _: one).uid("counts").name("running")

    message = job.refusal(running)
    assert "would not find its states of the function 'count'" in message
    assert "looked for:  running value" in message
    cluster = job.start(windows)
    cluster.coordinator.close()


# -- states of a function --------------------------------------------------------------------------


def with_states(*descriptors: Any) -> Callable[[StreamExecutionEnvironment], DataStream]:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        keyed = source(env).key_by(lambda event: event[0])
        return keyed.process(Count(*descriptors)).name("counts").uid("counts")

    return build


COUNT = ValueStateDescriptor("count", Types.LONG())


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("descriptor", "reason"),
    [
        (ValueStateDescriptor("count", Types.STRING()), "type Long and is now declared with "),
        (ListStateDescriptor("count", Types.LONG()), "kept as value state .*declared as "),
    ],
)
def test_a_state_of_another_type_is_refused(job: Job, descriptor: Any, reason: str) -> None:
    job.stop(with_states(COUNT))
    with pytest.raises(StateError, match=rf"operator 'counts' \(.*\): state 'count' .*{reason}"):
        job.start(with_states(descriptor)).run()
    job.start(with_states(ValueStateDescriptor("count"))).run()
    assert Counter(collected(job.directory)) == expected()


@pytest.mark.both_engines
def test_a_state_that_is_not_named_any_more_is_kept(job: Job) -> None:
    seen = MapStateDescriptor("seen", Types.LONG(), Types.LONG())
    job.stop(with_states(COUNT, seen))
    cluster = job.start(with_states(COUNT))
    cluster.run(1)
    cluster.coordinator.close()
    (counts,) = (
        each for each in inspect_checkpoint(cluster.storage).operators if each.uid == "counts"
    )
    assert "'seen': map state of Long -> Long" in counts.keeps
    job.start(with_states(COUNT, seen)).run()
    assert Counter(collected(job.directory)) == expected()


# -- what people are shown -------------------------------------------------------------------------


@pytest.mark.both_engines
def test_inspect_names_operators(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.stop(plain)
    assert main(["checkpoints", str(job.directory / "checkpoint"), "inspect"]) == 0
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.startswith("counts "))
    assert "test_changed_programs.py:" in line
    assert "'count': value state of Long" in shown


def test_names_stand_for_generated_uids() -> None:
    """In accumulators, the lag, and what is pending."""
    env = environment(1)
    for name in ("one", "two", "two"):
        env.from_source(SplitsSource([EVENTS]), event_time(0), name).sink_to(BlackholeSink())
    named = env.from_source(SplitsSource([EVENTS]), event_time(0), "three").uid("my.uid")
    named.sink_to(BlackholeSink()).uid("nothing").name("out")
    program = program_of(env.get_job_graph("names"))
    names = labels(program)
    found = {record.name: names[uid] for uid, record in program.items() if "two" not in record.name}
    assert found["Source: one"] == "Source: one"
    assert found["Source: three"] == "my.uid"
    assert found["out"] == "nothing"
    twice = sorted(names[uid] for uid, record in program.items() if "two" in record.name)
    assert all(re.fullmatch(r"Source: two \([0-9a-f]{8}\)", name) for name in twice)
    assert len(set(twice)) == 2
    one = next(uid for uid, record in program.items() if record.name == "Source: one")
    totals = {f"{one}.numRecordsIn": 1, "my.uid.a.b": 2, "gone.numRecordsIn": 3}
    wanted = {"Source: one.numRecordsIn": 1, "my.uid.a.b": 2, "gone.numRecordsIn": 3}
    assert labelled(totals, names) == wanted
