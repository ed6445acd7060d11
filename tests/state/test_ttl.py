from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import StateError
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


def test_time_to_live_is_not_switched_on_unnoticed(world: World) -> None:
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(ValueStateDescriptor("x"))
    store = world.begin(keyed)
    keyed.set_current_key(1)
    handle.update(1)
    world.finish(keyed, store)
    descriptor = ValueStateDescriptor("x")
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Milliseconds(1)).build())
    changed = KeyedState(128, (0, 128))
    changed.get_state(descriptor)
    store = world.open()
    with pytest.raises(StateError, match="without time to live and is now"):
        changed.begin_epoch(store)
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
