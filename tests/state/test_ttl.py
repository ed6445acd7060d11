from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import ProgramError, StateError
from millstream.functions.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.state.keyed import KeyedState
from millstream.types.time import Duration, Time
from millstream.types.types import Row, Types

if TYPE_CHECKING:
    from tests.state.conftest import World


class Average:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Milliseconds:
    def __init__(self, length: int) -> None:
        self.length = length

    def to_milliseconds(self) -> int:
        return self.length


@pytest.mark.parametrize("on_read", [False, True])
def test_values_expire(world: World, on_read: bool) -> None:
    builder = StateTtlConfig.new_builder(Milliseconds(100))
    config = (
        builder.update_ttl_on_read_and_write()
        if on_read
        else builder.update_ttl_on_create_and_write()
    ).build()
    keyed = KeyedState(128, (0, 128))
    descriptors: list[Any] = [
        ValueStateDescriptor("value"), ListStateDescriptor("list"), MapStateDescriptor("map"),
        ReducingStateDescriptor("sum", int.__add__), AggregatingStateDescriptor("mean", Average()),
    ]  # fmt: skip
    for descriptor in descriptors:
        descriptor.enable_time_to_live(config)
    value, elements, entries = (
        keyed.get_state(descriptors[0]),
        keyed.get_list_state(descriptors[1]),
        keyed.get_map_state(descriptors[2]),
    )
    total, mean = (
        keyed.get_reducing_state(descriptors[3]),
        keyed.get_aggregating_state(descriptors[4]),
    )

    def read() -> list[Any]:
        return [value.value(), list(elements), dict(entries.items()), total.get(), mean.get()]

    store = world.begin(keyed, 1_000)
    keyed.set_current_key("k")
    value.update(1)
    elements.add(1)
    entries["a"] = 1
    total.add(1)
    mean.add(1)
    assert read() == [1, [1], {"a": 1}, 1, 1.0]
    world.finish(keyed, store)
    store = world.begin(keyed, 1_060)
    keyed.set_current_key("k")
    elements.add(2)
    entries["b"] = 2
    assert read() == [1, [1, 2], {"a": 1, "b": 2}, 1, 1.0]
    world.finish(keyed, store)
    store = world.begin(keyed, 1_120)
    keyed.set_current_key("k")
    if on_read:
        assert read() == [1, [1, 2], {"a": 1, "b": 2}, 1, 1.0]
    else:
        assert read() == [None, [2], {"b": 2}, None, None]
        assert "a" not in entries
    world.finish(keyed, store)
    store = world.begin(keyed, 2_000)
    keyed.set_current_key("k")
    assert read() == [None, [], {}, None, None]
    world.finish(keyed, store)
    store = world.open()
    assert not list(store.scan(b"K", b"L"))  # what has expired is removed
    store.close()


def test_expired_values_may_be_returned_once_more(world: World) -> None:
    config = (
        StateTtlConfig.new_builder(Milliseconds(100)).return_expired_if_not_cleaned_up().build()
    )
    descriptor = ValueStateDescriptor("value")
    descriptor.enable_time_to_live(config)
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(descriptor)
    store = world.begin(keyed, 0)
    keyed.set_current_key("k")
    handle.update(1)
    keyed.processing_time = 100
    assert [handle.value(), handle.value()] == [1, None]
    store.close()


def test_strategies_of_cleaning_up_are_kept() -> None:
    config = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .disable_cleanup_in_background()
        .build()
    )
    strategies = config.get_cleanup_strategies()
    assert isinstance(strategies, StateTtlConfig.CleanupStrategies)
    assert strategies.in_full_snapshot()
    assert not strategies.is_cleanup_in_background()
    incremental = strategies.get_incremental_cleanup_strategy()
    assert incremental is not None
    assert incremental.get_cleanup_size() == 10
    assert incremental.run_cleanup_for_every_record()
    assert strategies.get_rocksdb_compact_filter_cleanup_strategy() is None
    compacting = StateTtlConfig.new_builder(Time.seconds(1)).build().get_cleanup_strategies()
    default = compacting.get_rocksdb_compact_filter_cleanup_strategy()
    assert default is not None
    assert default.get_query_time_after_num_entries() == 1000
    assert default.get_periodic_compaction_time() == Duration.of_days(30)
    assert not compacting.in_full_snapshot()


def expiring(kind: Any, *, by_event_time: bool = False, full: bool = False) -> Any:
    """A value, list or map that expires after 100 ms."""
    builder = StateTtlConfig.new_builder(Milliseconds(100))
    builder = builder.use_event_time() if by_event_time else builder.use_processing_time()
    builder = builder.cleanup_full_snapshot() if full else builder
    kind.enable_time_to_live(builder.disable_cleanup_in_background().build())
    return kind


def kinds() -> list[Any]:
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    return [
        ValueStateDescriptor("value", row),
        ListStateDescriptor("list", row),
        MapStateDescriptor("map", Types.STRING(), row),
        ValueStateDescriptor("any"),
    ]


class Several:
    """States of several kinds on one subtask, with a key each."""

    def __init__(self, descriptors: list[Any]) -> None:
        self.keyed = KeyedState(128, (0, 128))
        #: Of the record.
        self.timestamp = MIN_TIMESTAMP
        self.keyed.timestamp = lambda: self.timestamp
        self.states: list[Any] = [self.keyed.handle_of(each) for each in descriptors]

    def write(self, key: str, number: int) -> None:
        value, elements, entries, anything = self.states
        self.keyed.set_current_key(key)
        value.update(Row(n=number))
        elements.add_all([Row(n=number), Row(n=number + 1)])
        entries.put("a", Row(n=number))
        anything.update({number})

    def read(self, key: str) -> list[Any]:
        value, elements, entries, anything = self.states
        self.keyed.set_current_key(key)
        return [value.value(), list(elements), dict(entries.items()), anything.value()]


NOTHING: list[Any] = [None, [], {}, None]


def kept(number: int) -> list[Any]:
    row = Row(n=number)
    return [row, [row, Row(n=number + 1)], {"a": row}, {number}]


def count(world: World) -> int:
    store = world.open()
    found = len(list(store.scan(b"K", b"L")))
    store.close()
    return found


def test_state_expires_by_the_watermark(world: World) -> None:
    several = Several([expiring(each, by_event_time=True) for each in kinds()])
    store = world.begin(several.keyed, 10**15)  # the clock does not matter
    several.timestamp = 1_000
    several.write("a", 1)
    several.keyed.event_time = 1_099
    several.timestamp = 1_200
    several.write("b", 2)
    assert several.read("a") == kept(1)
    several.keyed.event_time = 1_100
    assert several.read("a") == NOTHING
    several.timestamp = 900  # late: it lives from the watermark on
    several.write("a", 3)
    world.finish(several.keyed, store)
    again = Several([expiring(each, by_event_time=True) for each in kinds()])
    again.keyed.event_time = 1_199
    store = world.begin(again.keyed, 0)
    assert again.read("a") == kept(3)
    again.keyed.event_time = 1_200
    assert again.read("a") == NOTHING
    assert again.read("b") == kept(2)
    world.finish(again.keyed, store)


def test_event_time_without_a_timestamp_is_refused(world: World) -> None:
    several = Several([expiring(each, by_event_time=True) for each in kinds()])
    store = world.begin(several.keyed, 0)
    with pytest.raises(StateError, match="a record without a timestamp, before the first waterm"):
        several.write("a", 1)
    several.keyed.event_time = 5
    several.write("a", 1)
    store.close()
    with pytest.raises(ProgramError, match="'value' expires by event time, which keyed process"):
        KeyedState(128, (0, 128)).handle_of(expiring(kinds()[0], by_event_time=True))


def test_the_background_removes_what_the_watermark_has_passed(world: World) -> None:
    descriptors = kinds()
    for each in descriptors:
        builder = StateTtlConfig.new_builder(Milliseconds(100)).use_event_time()
        each.enable_time_to_live(builder.build())
    several = Several(descriptors)
    store = world.begin(several.keyed, 0)
    for number in range(20):
        several.timestamp = 1_000 + number
        several.write(str(number), number)
    world.finish(several.keyed, store)
    assert count(world) == 80
    store = world.begin(several.keyed, 0)
    several.keyed.event_time = 1_109
    world.finish(several.keyed, store)
    assert count(world) == 40


@pytest.mark.parametrize("by_event_time", [False, True])
def test_snapshots_may_be_without_expired_state(world: World, by_event_time: bool) -> None:
    """Also of keys that nobody reads, and without clean-up in the background."""
    for full, left in ((False, 8), (True, 4)):
        world.start_afresh()
        several = Several(
            [expiring(each, by_event_time=by_event_time, full=full) for each in kinds()]
        )
        store = world.begin(several.keyed, 1_000)
        several.timestamp = 1_000
        several.write("a", 1)
        world.finish(several.keyed, store)
        store = world.begin(several.keyed, 1_100)
        several.timestamp = several.keyed.event_time = 1_100
        several.write("b", 2)
        several.keyed.drop_expired()
        world.finish(several.keyed, store)
        assert count(world) == left
        store = world.begin(several.keyed, 1_100)
        assert several.read("b") == kept(2)
        store.close()


CLOCKS: list[str | None] = [None, "processing", "event"]


def clocked(clock: str | None) -> list[Any]:
    if clock is None:
        return kinds()
    return [expiring(each, by_event_time=clock == "event") for each in kinds()]


@pytest.mark.parametrize("before", CLOCKS)
@pytest.mark.parametrize("after", CLOCKS)
def test_time_to_live_may_be_changed(world: World, before: str | None, after: str | None) -> None:
    """Values that had no time of the clock get that of the restore."""
    several = Several(clocked(before))
    store = world.begin(several.keyed, 1_000)
    several.timestamp = 1_000
    several.write("a", 1)
    world.finish(several.keyed, store)
    several = Several(clocked(after))
    several.keyed.event_time = 1_050
    store = world.begin(several.keyed, 1_050)
    world.finish(several.keyed, store)
    lives_from = 1_000 if before == after else 1_050
    for now, is_over in ((lives_from + 99, False), (lives_from + 100, True)):
        several = Several(clocked(after))
        several.keyed.event_time = now if after == "event" else MIN_TIMESTAMP
        store = world.begin(several.keyed, now if after == "processing" else 0)
        assert several.read("a") == (NOTHING if is_over and after else kept(1))
        store.close()


def test_before_any_watermark_values_get_no_end(world: World) -> None:
    several = Several(clocked(None))
    store = world.begin(several.keyed, 1_000)
    several.write("a", 1)
    world.finish(several.keyed, store)
    several = Several(clocked("event"))
    store = world.begin(several.keyed, 1_000)
    several.keyed.event_time = 10**15
    assert several.read("a") == kept(1)
    several.timestamp = 10**15
    several.write("a", 1)
    several.keyed.event_time = 10**15 + 100
    assert several.read("a")[0] is None
    store.close()
