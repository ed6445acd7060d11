"""Handles and timers over both backends, against plain dictionaries."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.errors import ProgramError, StateError, UnknownFormatError
from millstream.functions.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.state.key_codec import encode_key, key_group, key_group_range, subtask_of
from millstream.state.keyed import KeyedState
from millstream.state.rescale import chunk_key_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.state.conftest import World

MAX_PARALLELISM = 128
SETTINGS = examples(20)


class Average:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Subtask:
    """One operator instance with one state of each kind."""

    def __init__(self, number: int, parallelism: int) -> None:
        self.keyed = KeyedState(
            MAX_PARALLELISM, key_group_range(number, MAX_PARALLELISM, parallelism)
        )
        # In another order in each subtask, so that the states are numbered differently.
        makers: list[Callable[[], None]] = [
            self.add_value,
            self.add_list,
            self.add_map,
            self.add_folds,
        ]
        random.Random(number).shuffle(makers)
        for make in makers:
            make()

    def add_value(self) -> None:
        self.value = self.keyed.get_state(ValueStateDescriptor("value"))

    def add_list(self) -> None:
        self.list = self.keyed.get_list_state(ListStateDescriptor("list"))

    def add_map(self) -> None:
        self.map = self.keyed.get_map_state(MapStateDescriptor("map"))

    def add_folds(self) -> None:
        self.sum = self.keyed.get_reducing_state(ReducingStateDescriptor("sum", int.__add__))
        self.mean = self.keyed.get_aggregating_state(AggregatingStateDescriptor("mean", Average()))


class Cluster:
    """All subtasks of an operator, cut into epochs."""

    def __init__(self, world: World, parallelism: int) -> None:
        self.world = world
        self.start(parallelism)

    def start(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.subtasks = [Subtask(number, parallelism) for number in range(parallelism)]
        self.begin()

    def begin(self) -> None:
        self.stores = [self.world.open(n, self.parallelism) for n in range(self.parallelism)]
        for subtask, store in zip(self.subtasks, self.stores, strict=True):
            subtask.keyed.begin_epoch(store, 0)

    def end(self) -> None:
        for subtask in self.subtasks:
            subtask.keyed.flush()
        self.world.handles = [store.snapshot() for store in self.stores]
        self.close()

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def of(self, key: object) -> Subtask:
        group = key_group(key, MAX_PARALLELISM)
        subtask = self.subtasks[subtask_of(group, MAX_PARALLELISM, self.parallelism)]
        subtask.keyed.set_current_key(key)
        return subtask


USER_KEYS: list[Any] = [1, 2, -7, 2**70, "a", "b", "", (1, "x"), [1, 2], None, True, 1.0, b"1"]
MAP_KEYS: list[Any] = [0, 1, 300, "k", (1, 2), None, 2.5]
numbers = st.integers(-5, 5)
user_keys = st.integers(0, len(USER_KEYS) - 1)
map_keys = st.integers(0, len(MAP_KEYS) - 1)
OPERATIONS = st.one_of(
    st.tuples(st.just("update"), user_keys, st.one_of(st.none(), numbers, st.text(max_size=3))),
    st.tuples(st.just("append"), user_keys, numbers),
    st.tuples(st.just("append all"), user_keys, st.lists(numbers, max_size=3)),
    st.tuples(st.just("replace"), user_keys, st.lists(numbers, max_size=3)),
    st.tuples(st.just("read list"), user_keys, st.none()),
    st.tuples(st.just("put"), user_keys, st.tuples(map_keys, st.one_of(st.none(), numbers))),
    st.tuples(st.just("remove"), user_keys, map_keys),
    st.tuples(st.just("read entry"), user_keys, map_keys),
    st.tuples(st.just("read map"), user_keys, st.none()),
    st.tuples(st.just("clear map"), user_keys, st.none()),
    st.tuples(st.just("fold"), user_keys, numbers),
    st.tuples(st.just("clear folds"), user_keys, st.none()),
    st.tuples(st.just("prefetch"), st.just(0), st.none()),
    st.tuples(st.just("flush"), st.just(0), st.none()),
    st.tuples(st.just("epoch"), st.just(0), st.sampled_from([0, 0, 1, 2, 3])),
    st.tuples(st.just("lost attempt"), st.just(0), st.none()),
)


class Model:
    """The same with dictionaries."""

    def __init__(self) -> None:
        self.value: dict[int, Any] = {}
        self.list: dict[int, list[int]] = defaultdict(list)
        self.map: dict[int, dict[int, Any]] = defaultdict(dict)
        self.folded: dict[int, list[int]] = defaultdict(list)

    def check(self, cluster: Cluster) -> None:
        for number, key in enumerate(USER_KEYS):
            subtask = cluster.of(key)
            assert subtask.value.value() == self.value.get(number)
            assert list(subtask.list) == self.list[number]
            in_order = sorted(self.map[number], key=lambda n: encode_key(MAP_KEYS[n]))
            expected = [(MAP_KEYS[n], self.map[number][n]) for n in in_order]
            assert list(subtask.map.items()) == expected
            assert subtask.map.is_empty() == (not expected)
            folded = self.folded[number]
            assert subtask.sum.get() == (sum(folded) if folded else None)
            assert subtask.mean.get() == (sum(folded) / len(folded) if folded else None)

    def apply(  # noqa: C901 - one branch per operation
        self,
        subtask: Subtask,
        name: str,
        number: int,
        argument: Any,
    ) -> None:
        if name == "update":
            subtask.value.update(argument)
            self.value[number] = argument
        elif name == "append":
            subtask.list.add(argument)
            self.list[number].append(argument)
        elif name == "append all":
            subtask.list.add_all(argument)
            self.list[number].extend(argument)
        elif name == "replace":
            subtask.list.update(argument)
            self.list[number] = list(argument)
        elif name == "read list":
            assert list(subtask.list.get()) == self.list[number]
        elif name == "put":
            subtask.map[MAP_KEYS[argument[0]]] = argument[1]
            self.map[number][argument[0]] = argument[1]
        elif name == "remove":
            del subtask.map[MAP_KEYS[argument]]
            self.map[number].pop(argument, None)
        elif name == "read entry":
            assert (MAP_KEYS[argument] in subtask.map) == (argument in self.map[number])
            assert subtask.map[MAP_KEYS[argument]] == self.map[number].get(argument)
        elif name == "read map":
            assert set(map(encode_key, subtask.map)) == {
                encode_key(MAP_KEYS[n]) for n in self.map[number]
            }
        elif name == "clear map":
            subtask.map.clear()
            self.map[number].clear()
        elif name == "fold":
            subtask.sum.add(argument)
            subtask.mean.add(argument)
            self.folded[number].append(argument)
        elif name == "clear folds":
            subtask.sum.clear()
            subtask.mean.clear()
            self.folded[number].clear()


@SETTINGS
@given(st.lists(OPERATIONS, max_size=60), st.booleans())
def test_oracle_random_programs(  # noqa: C901, PLR0912 - one branch per operation
    world: World, operations: list[tuple[str, int, Any]], lose: bool
) -> None:
    world.start_afresh()
    model, cluster = Model(), Cluster(world, 1)
    for name, number, argument in operations:
        if name == "prefetch":
            for subtask in cluster.subtasks:
                subtask.keyed.prefetch(USER_KEYS)
        elif name == "flush":
            for subtask in cluster.subtasks:
                subtask.keyed.flush()
        elif name == "epoch":
            cluster.end()
            if lose:
                world.lose_local_copies()
            if argument:
                cluster.start(argument)
            else:
                cluster.begin()
        elif name == "lost attempt":
            cluster.end()
            cluster.begin()
            other = Cluster(world, cluster.parallelism)
            for key in USER_KEYS:
                other.of(key).value.update("never seen")
            kept = world.handles
            other.end()
            world.handles = kept
        else:
            model.apply(cluster.of(USER_KEYS[number]), name, number, argument)
    model.check(cluster)
    cluster.end()
    for parallelism in (1, 3, 2):
        world.lose_local_copies()
        cluster.start(parallelism)
        model.check(cluster)
        cluster.end()


TIMES = st.integers(-3, 12)
TIMER_OPERATIONS = st.one_of(
    st.tuples(st.just("register"), user_keys, TIMES, st.sampled_from([b"", b"w"])),
    st.tuples(st.just("register"), user_keys, TIMES, st.sampled_from([b"", b"w"])),
    st.tuples(st.just("delete"), user_keys, TIMES, st.sampled_from([b"", b"w"])),
    st.tuples(st.just("advance"), user_keys, TIMES, st.none()),
    st.tuples(st.just("flush"), user_keys, TIMES, st.none()),
    st.tuples(st.just("epoch"), user_keys, TIMES, st.sampled_from([0, 0, 1, 2, 3])),
)


@SETTINGS
@given(st.lists(TIMER_OPERATIONS, max_size=50))
def test_oracle_timers(world: World, operations: list[tuple[str, int, int, Any]]) -> None:
    world.start_afresh()
    cluster = Cluster(world, 1)
    model: set[tuple[int, bytes, bytes]] = set()
    for name, number, time, argument in operations:
        key = USER_KEYS[number]
        timers = cluster.of(key).keyed.timers
        if name == "register":
            timers.register_event_time(key, argument, time)
            model.add((time, encode_key(key), argument))
        elif name == "delete":
            timers.delete_event_time(key, argument, time)
            model.discard((time, encode_key(key), argument))
        elif name == "flush":
            cluster.of(key).keyed.flush()
        elif name == "epoch":
            cluster.end()
            world.lose_local_copies()
            cluster.start(argument or cluster.parallelism)
        else:
            check_advance(cluster, model, time)
    check_advance(cluster, model, MAX_TIMESTAMP)
    assert not model
    cluster.end()


def check_advance(cluster: Cluster, model: set[tuple[int, bytes, bytes]], time: int) -> None:
    fired = []
    for subtask in cluster.subtasks:
        mine = list(subtask.keyed.timers.advance_event_time(time))
        assert [at for at, _, _ in mine] == sorted(at for at, _, _ in mine)
        assert not list(subtask.keyed.timers.advance_processing_time(time))
        fired += [(at, encode_key(key), namespace) for at, key, namespace in mine]
    due = {timer for timer in model if timer[0] <= time}
    assert sorted(fired) == sorted(due)
    model -= due


def test_timers_registered_while_firing_fire_in_order(world: World) -> None:
    cluster = Cluster(world, 1)
    timers = cluster.subtasks[0].keyed.timers
    timers.register_event_time("k", b"", 10)
    cluster.end()
    cluster.begin()
    timers.register_event_time("k", b"", 30)
    fired = []
    for time, key, _ in timers.advance_event_time(30):
        fired.append(time)
        if time == 10:
            timers.register_event_time(key, b"", 20)
            timers.register_event_time(key, b"", 5)  # late: due at once
            timers.register_event_time(key, b"", 31)
            timers.delete_event_time(key, b"", 30)
            cluster.subtasks[0].keyed.flush()  # a long firing may flush in between
    assert fired == [10, 5, 20]
    assert timers.event.next_time() == 31
    cluster.end()


def test_timers_fire_in_one_order_however_epochs_are_cut(world: World) -> None:
    runs = []
    for cut in (False, True):
        world.start_afresh()
        cluster = Cluster(world, 1)
        timers = cluster.subtasks[0].keyed.timers
        for key in ("b", 5, "a", (1,), -1, 300):
            timers.register_event_time(key, b"", 7)
            if cut:
                cluster.end()
                cluster.begin()
        runs.append(list(timers.advance_event_time(7)))
        cluster.close()
    assert runs[0] == runs[1]


def test_lists_grow_without_being_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_list_state(ListStateDescriptor("list"))
    for number in range(20):
        store = world.begin(keyed)
        with monkeypatch.context() as patched:
            patched.setattr(store, "get", None)
            patched.setattr(store, "get_many", None)
            patched.setattr(KeyedState, "scan_prefix", None)
            keyed.set_current_key("k")
            handle.add(number)
            keyed.flush()
        world.finish(keyed, store)
    for _ in range(2):
        store = world.begin(keyed)
        keyed.set_current_key("k")
        assert list(handle) == list(range(20))
        world.finish(keyed, store)
    store = world.begin(keyed)
    assert len(list(store.scan(b"K", b"L"))) == 1  # reading a list of many chunks merges them
    store.close()


def test_memory_is_let_go_at_the_flush(world: World) -> None:
    keyed = KeyedState(128, (0, 128))
    handle: Any = keyed.get_state(ValueStateDescriptor("value"))
    store = world.begin(keyed)
    for key in range(100):
        keyed.set_current_key(key)
        handle.update([key])
    keyed.flush()
    assert handle.cached == 0
    keyed.set_current_key(7)
    assert handle.value() == [7]
    store.close()


def test_plain_values_stay_only_for_the_epoch_that_goes_on(world: World) -> None:
    keyed = KeyedState(128, (0, 128))
    handle: Any = keyed.get_state(ValueStateDescriptor("value"))
    for number in range(3):
        store = world.begin(keyed)
        assert handle.cached == (number > 0)
        keyed.set_current_key("k")
        handle.update(number)
        world.finish(keyed, store)
    before = world.handles
    store = world.begin(keyed)
    keyed.set_current_key("k")
    handle.update("lost")
    world.finish(keyed, store)
    world.handles = before  # another attempt won
    store = world.begin(keyed)
    assert handle.cached == 0
    keyed.set_current_key("k")
    assert handle.value() == 2
    handle.update("lost")
    store.close()  # it failed before its snapshot
    store = world.begin(keyed)
    keyed.set_current_key("k")
    assert handle.value() == 2
    store.close()


def test_prefetch_saves_single_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(ValueStateDescriptor("value"))
    keys: list[Any] = [1, "a", (1, 2), [3], None]
    store = world.begin(keyed)
    for number, key in enumerate(keys):
        keyed.set_current_key(key)
        handle.update(number)
    world.finish(keyed, store)
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(ValueStateDescriptor("value"))
    store = world.begin(keyed)
    monkeypatch.setattr(store, "get", None)
    keyed.prefetch([*keys, "absent"])
    for number, key in enumerate(keys):
        keyed.set_current_key(key)
        assert handle.value() == number
    keyed.set_current_key("absent")
    assert handle.value() is None
    store.close()


def test_map_entries_are_prefetched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = KeyedState(128, (0, 128))
    handle: Any = keyed.get_map_state(MapStateDescriptor("map"))
    store = world.begin(keyed)
    keyed.set_current_key("k")
    handle["a"] = 1
    keyed.flush()
    monkeypatch.setattr(store, "get", None)
    handle.prefetch_entries([("k", "a"), ("k", "b"), ("other", "a")])
    assert (handle["a"], handle["b"]) == (1, None)
    keyed.set_current_key("other")
    assert "a" not in handle
    store.close()


def test_state_outside_an_epoch_is_refused() -> None:
    keyed = KeyedState(128, (0, 128))
    with pytest.raises(StateError, match="not in open"):
        keyed.get_state(ValueStateDescriptor("value")).value()


def test_names_are_unique(world: World) -> None:
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(ValueStateDescriptor("x"))
    assert keyed.get_state(ValueStateDescriptor("x")) is handle
    with pytest.raises(ProgramError, match="declared twice"):
        keyed.get_list_state(ListStateDescriptor("x"))


def test_a_state_does_not_change_its_kind(world: World) -> None:
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(ValueStateDescriptor("x"))
    store = world.begin(keyed)
    keyed.set_current_key(1)
    handle.update(1)
    world.finish(keyed, store)
    changed = KeyedState(128, (0, 128))
    changed.get_list_state(ListStateDescriptor("x"))
    store = world.open()
    with pytest.raises(StateError, match=r"was kept as value state .* now declared as list state"):
        changed.begin_epoch(store)
    store.close()


def test_an_unknown_format_is_refused(world: World) -> None:
    store = world.open()
    store.write([(b"M\0format", b"99")])
    with pytest.raises(UnknownFormatError, match="version 99"):
        KeyedState(128, (0, 128)).begin_epoch(store)
    store.close()


def iter_nothing() -> Iterator[None]:
    yield


def test_what_cannot_be_pickled_is_named(world: World) -> None:
    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(ValueStateDescriptor("x"))
    store = world.begin(keyed)
    keyed.set_current_key(1)
    handle.update(iter_nothing())
    with pytest.raises(StateError, match=r"builtins\.generator cannot be pickled"):
        keyed.flush()
    store.close()


def test_values_of_classes_of_the_script_stay_small(world: World) -> None:
    @dataclass
    class Position:
        x: int

    keyed = KeyedState(128, (0, 128))
    handle = keyed.get_state(ValueStateDescriptor("x"))
    store = world.begin(keyed)
    keyed.set_current_key(1)
    handle.update(Position(5))
    world.finish(keyed, store)
    store = world.begin(keyed)
    keyed.set_current_key(1)
    assert handle.value() == Position(5)
    assert all(len(value) < 250 for _, value in store.scan(b"K", b"L"))
    store.close()


def test_chunks_count_each_key_group_once(world: World) -> None:
    """C entries mix key groups; after 1 -> 3 -> 2 subtasks each group counts exactly once."""
    name = b"C\xff\xf1" + bytes(8) + b"rest"
    store = world.open()
    store.write([(name, b"rows of all key groups")])
    world.handles = [store.snapshot()]
    store.close()
    for parallelism in (3, 2, 1, 4):
        stores = [world.open(number, parallelism) for number in range(parallelism)]
        counted = []
        for number, each in enumerate(stores):
            own = key_group_range(number, MAX_PARALLELISM, parallelism)
            for key, _ in each.scan(b"C", b"D"):
                ((_, counting),) = chunk_key_groups(key, len(name), (MAX_PARALLELISM, own))
                counted += list(range(*counting))
        assert sorted(counted) == list(range(MAX_PARALLELISM))
        world.handles = [each.snapshot() for each in stores]
        for each in stores:
            each.close()
