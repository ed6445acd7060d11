"""State that expires is removed in the background, on both backends, whoever restores it."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from tests.state.conftest import MAX_PARALLELISM

from millstream.errors import StateError
from millstream.functions.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.state import key_context
from millstream.state.key_codec import key_group, key_group_range, subtask_of
from millstream.state.keyed import KeyedState
from millstream.state.serializers import dumps, set_moved_classes
from millstream.types.time import Time

if TYPE_CHECKING:
    from tests.state.conftest import World

    from millstream.contracts.key_value_store import KeyValueStore

TTL = 100


class Last:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        del accumulator
        return value

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Expiring:
    """One state of each kind, with a time to live, and a value without."""

    def __init__(
        self, key_groups: tuple[int, int] = (0, MAX_PARALLELISM), *, background: bool = True
    ) -> None:
        builder = StateTtlConfig.new_builder(Time.milliseconds(TTL)).update_ttl_on_read_and_write()
        if not background:
            builder.disable_cleanup_in_background()
        descriptors: list[Any] = [
            ValueStateDescriptor("value"), ListStateDescriptor("list"), MapStateDescriptor("map"),
            ReducingStateDescriptor("sum", int.__add__), AggregatingStateDescriptor("last", Last()),
        ]  # fmt: skip
        for descriptor in descriptors:
            descriptor.enable_time_to_live(builder.build())
        self.keyed = keyed = KeyedState(MAX_PARALLELISM, key_groups)
        self.value = keyed.get_state(descriptors[0])
        self.list = keyed.get_list_state(descriptors[1])
        self.map = keyed.get_map_state(descriptors[2])
        self.sum = keyed.get_reducing_state(descriptors[3])
        self.last = keyed.get_aggregating_state(descriptors[4])
        self.plain = keyed.get_state(ValueStateDescriptor("plain"))

    def write(self, key: object, number: int, *, plain: bool = False) -> None:
        self.keyed.set_current_key(key)
        self.value.update(number)
        self.list.add(number)
        self.map.put(number, number)
        self.sum.add(number)
        self.last.add(number)
        if plain:
            self.plain.update(number)

    def read(self, key: object) -> list[Any]:
        self.keyed.set_current_key(key)
        return [
            self.value.value(), list(self.list), dict(self.map.items()), self.sum.get(),
            self.last.get(), self.plain.value(),
        ]  # fmt: skip


def count(store: KeyValueStore) -> int:
    return len(list(store.scan(b"K", b"L")))


def test_keys_that_do_not_come_again_are_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_context, "AT_SNAPSHOTS", 20)
    state = Expiring()
    sizes = []
    for epoch in range(40):
        store = world.begin(state.keyed, 20 * epoch)
        for key in range(10):
            state.write(f"{epoch}.{key}", epoch)
        world.finish(state.keyed, store)
        store = world.open()
        sizes.append(count(store))
        store.close()
    alive = sizes[TTL // 20 - 1]
    assert alive == 250
    assert max(sizes) < 2.5 * alive


@pytest.mark.parametrize("background", [True, False])
def test_what_is_alive_stays(world: World, background: bool) -> None:
    state = Expiring(background=background)
    store = world.begin(state.keyed, 0)
    for key in range(20):
        state.write(key, 1, plain=True)
    world.finish(state.keyed, store)
    store = world.begin(state.keyed, 60)
    state.write(3, 2)
    assert state.read(4) == [1, [1], {1: 1}, 1, 1, 1]  # which prolongs its life
    world.finish(state.keyed, store)
    store = world.begin(state.keyed, 100)
    world.finish(state.keyed, store)
    store = world.open()
    # Of each key the plain value; of two all five.
    assert count(store) == (20 + 10 if background else 20 + 20 * 5 + 2)
    store.close()
    store = world.begin(state.keyed, 101)
    assert state.read(3) == [2, [2], {2: 2}, 3, 2, 1]
    assert state.read(4) == [1, [1], {1: 1}, 1, 1, 1]
    assert state.read(5) == [None, [], {}, None, None, 1]
    store.close()


def test_what_was_written_since_the_snapshot_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_context, "_AT_ONCE", 1)
    state = Expiring()
    store = world.begin(state.keyed, 0)
    state.keyed.live_on(True)
    for key in range(5):
        state.write(key, 1)
    state.keyed.flush()
    state.keyed.processing_time = 100
    state.write(2, 7)
    state.keyed.prefetch([2])  # the background looks, at what is not written yet
    state.keyed.flush()
    assert state.read(2) == [7, [7], {7: 7}, 7, 7, None]
    names = {name[9:18] for name, _ in store.scan(b"K", b"L")}
    assert len(names) == 1
    store.close()


@pytest.mark.parametrize("parallelism", [2, 3])
def test_restored_at_another_parallelism(
    world: World, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_context, "AT_SNAPSHOTS", 30)
    whole = Expiring()
    store = world.begin(whole.keyed, 0)
    for key in range(60):
        whole.write(key, key)
    world.finish(whole.keyed, store)
    store = world.begin(whole.keyed, 90)
    for key in range(0, 60, 6):
        whole.write(key, 1000)
    world.finish(whole.keyed, store)
    for subtask in range(parallelism):
        store = world.open(subtask, parallelism)
        part = Expiring(key_group_range(subtask, MAX_PARALLELISM, parallelism))
        part.keyed.begin_epoch(store, 120)
        for _ in range(20):
            part.keyed.flush()
        mine = [
            key
            for key in range(0, 60, 6)
            if subtask_of(key_group(key, MAX_PARALLELISM), MAX_PARALLELISM, parallelism) == subtask
        ]
        assert mine
        assert count(store) == 5 * len(mine)
        for key in mine:
            assert part.read(key) == [1000, [1000], {1000: 1000}, key + 1000, 1000, None]
        store.close()


class Gone:
    """A class that a later version of the program does not have."""


class Here:
    """Where Gone is in a later version of the program."""


def test_values_of_a_class_that_has_moved_are_removed(
    world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: set_moved_classes({}))
    state = Expiring()
    store = world.begin(state.keyed, 0)
    state.keyed.set_current_key("c")
    state.value.update(Gone())
    world.finish(state.keyed, store)
    store = world.open()
    # As early builds of 0.1.0 have written it, the time in the pickle.
    store.write([(entry, dumps((0, Gone()))) for entry, _ in store.scan(b"K", b"L")])
    world.handles = [store.snapshot()]
    store.close()
    monkeypatch.delattr("tests.state.test_expired.Gone")
    set_moved_classes({f"{__name__}.Gone": f"{__name__}.Here"})
    later = Expiring()
    store = world.begin(later.keyed, 200)
    later.keyed.flush()
    assert count(store) == 0
    store.close()


def test_what_cannot_be_read_any_more_is_left_to_whoever_asks_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Expiring()
    store = world.begin(state.keyed, 0)
    for key in "ab":
        state.write(key, 1)
    state.keyed.set_current_key("c")
    state.value.update(Gone())
    state.list.update([1, Gone()])
    state.map.put(1, Gone())
    state.map.put((Gone(),), 2)
    world.finish(state.keyed, store)
    monkeypatch.delattr("tests.state.test_expired.Gone")
    later = Expiring()
    store = world.begin(later.keyed, 200)
    later.keyed.flush()
    assert count(store) == 4, "of a and b nothing is left"
    later.keyed.set_current_key("c")
    with pytest.raises(StateError, match="Gone"):
        later.keyed.prefetch(["c"])
    store.close()


def test_a_snapshot_of_a_task_that_lives_on_looks_at_few_and_the_rest_is_looked_at_between_batches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_context, "AT_SNAPSHOTS", 10)
    monkeypatch.setattr(key_context, "SLICE", 50)
    state = Expiring()
    store = world.begin(state.keyed, 0)
    state.keyed.live_on(True)
    for key in range(400):
        state.keyed.set_current_key(key)
        state.value.update(key)
    state.keyed.flush()
    assert count(store) == 400
    state.keyed.processing_time = TTL + 1
    state.keyed.flush()  # 800 are owed
    state.keyed.flush()
    assert count(store) >= 400 - 2 * (10 + 50)
    state.keyed.set_current_key(7)
    assert state.value.value() is None
    state.value.update(8)
    before = count(store)
    assert state.keyed.write_some(0.0), "one slice, for the time is over"
    state.keyed.flush()
    assert before - 50 - (10 + 50) <= count(store) < before
    while state.keyed.write_some(0.0):
        pass
    state.keyed.flush()
    assert count(store) == 1
    state.keyed.set_current_key(7)
    assert state.value.value() == 8
    store.close()


def test_what_is_looked_at_is_not_held(world: World) -> None:
    state = Expiring()
    store = world.begin(state.keyed, 0)
    for key in range(20_000):
        state.keyed.set_current_key(key)
        state.value.update(1)
    state.keyed.flush()
    state.keyed.expired.forget()
    state.keyed.expired.wrote(20_000)
    tracemalloc.start()
    state.keyed.expired.look(at_all=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    store.close()
    assert peak < 1_000_000
