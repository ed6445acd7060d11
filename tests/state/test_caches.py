"""State that stays in memory behind snapshots: evicted, written ahead and restored at random."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.tiers import sampled

from millstream.functions.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.functions.functions import AggregateFunction
from millstream.state import keyed as keyed_module
from millstream.state.keyed import KeyedState
from millstream.state.namespaced_state import ABSENT, NamespacedValues
from millstream.state.serializers import loads
from millstream.testing.memory_store import MemoryStore
from millstream.types.time import Time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.state.conftest import World

    from millstream.contracts.key_value_store import KeyValueStore

GROUPS = (0, 128)
LIFE = 50
KEYS: list[Any] = [*range(10), -1, 2**63, -(2**70), "a", "b", ("tuple", 1), 2.5]
#: Bytes that may stay in memory, and how many changed entries wait for a snapshot.
BOUNDS = [(0, 0), (8_000, 2), (8_000, 1_000_000), (1 << 30, 0), (1 << 30, 1_000_000)]


class Sum(AggregateFunction):
    """A sum in a list, which is changed in place."""

    def create_accumulator(self) -> Any:
        return [0]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] += value
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0]


class Subject:
    """One of each kind of state, and what each is to hold by key."""

    def __init__(self, chance: random.Random, bounds: tuple[int, int]) -> None:
        self.chance = chance
        self.keyed = KeyedState(128, GROUPS)
        self.keyed.most_bytes = bounds[0]
        self.now = 0
        #: state -> key -> what is held.
        self.model: dict[str, dict[Any, Any]] = {}
        self.timers: set[tuple[int, Any]] = set()
        expiry = StateTtlConfig.new_builder(Time.milliseconds(LIFE)).build()
        expiring: list[Any] = [
            ValueStateDescriptor("ttl-value", None),
            MapStateDescriptor("ttl-map", None, None),
            ListStateDescriptor("ttl-list", None),
        ]
        for descriptor in expiring:
            descriptor.enable_time_to_live(expiry)
        keyed = self.keyed
        self.handles: dict[str, Any] = {
            "value": keyed.get_state(ValueStateDescriptor("value", None)),
            "list": keyed.get_list_state(ListStateDescriptor("list", None)),
            "map": keyed.get_map_state(MapStateDescriptor("map", None, None)),
            "reducing": keyed.get_reducing_state(
                ReducingStateDescriptor("reducing", lambda a, b: a + b, None)
            ),
            "aggregating": keyed.get_aggregating_state(
                AggregatingStateDescriptor("aggregating", Sum(), None)
            ),
            "ttl-value": keyed.get_state(expiring[0]),
            "ttl-map": keyed.get_map_state(expiring[1]),
            "ttl-list": keyed.get_list_state(expiring[2]),
        }
        self.windows = NamespacedValues(keyed, "\0windows")
        keyed.add_state(self.windows)
        self.acts: list[Callable[[Any], None]] = [
            self.change_value, self.change_list, self.change_map, self.change_sums,
            self.change_windows, self.change_expiring, self.change_timers,
        ]  # fmt: skip

    def held(self, state: str, key: Any, default: Any) -> Any:
        return self.model.setdefault(state, {}).get(key, default)

    def hold(self, state: str, key: Any, content: Any) -> None:
        self.model.setdefault(state, {})[key] = content

    def step(self) -> None:
        keys = self.chance.choices(KEYS, k=self.chance.randrange(1, 6))
        if self.chance.random() < 0.7:
            self.keyed.prefetch(keys)
        for key in keys:
            self.keyed.set_current_key(key)
            self.chance.choice(self.acts)(key)
            if self.chance.random() < 0.3:
                self.check(key)

    def change_value(self, key: Any) -> None:
        new = self.chance.choice([None, self.chance.randrange(100), ["in", "place"]])
        if isinstance(self.held("value", key, None), list):
            kept = self.handles["value"].value()
            kept.append(self.chance.randrange(10))  # changed in place, and said so
            self.handles["value"].update(kept)
            self.hold("value", key, list(kept))
        else:
            self.handles["value"].update(new)
            self.hold("value", key, list(new) if isinstance(new, list) else new)

    def change_list(self, key: Any) -> None:
        handle, act = self.handles["list"], self.chance.random()
        new = [self.chance.randrange(100) for _ in range(self.chance.randrange(3))]
        if act < 0.6:
            handle.add_all(new)
            self.hold("list", key, [*self.held("list", key, []), *new])
        elif act < 0.8:
            handle.update(new)
            self.hold("list", key, new)
        elif act < 0.85:
            handle.clear()
            self.hold("list", key, [])
        else:
            handle.add(7)
            self.hold("list", key, [*self.held("list", key, []), 7])

    def change_map(self, key: Any) -> None:
        handle, act = self.handles["map"], self.chance.random()
        entries = dict(self.held("map", key, {}))
        at = self.chance.randrange(6)
        if act < 0.5:
            entries[at] = self.chance.randrange(100)
            handle.put(at, entries[at])
        elif act < 0.7:
            handle.remove(at)
            entries.pop(at, None)
        elif act < 0.8:
            handle.clear()
            entries = {}
        else:
            assert handle.contains(at) == (at in entries)
            assert handle.get(at) == entries.get(at)
        self.hold("map", key, entries)

    def change_sums(self, key: Any) -> None:
        amount = self.chance.randrange(1, 9)
        for name in ("reducing", "aggregating"):
            if self.chance.random() < 0.1:
                self.handles[name].clear()
                self.hold(name, key, None)
            else:
                self.handles[name].add(amount)
                self.hold(name, key, (self.held(name, key, None) or 0) + amount)

    def change_windows(self, key: Any) -> None:
        slot = (self.keyed.cache_key, b"w%d" % self.chance.randrange(3))
        new = self.chance.choice([ABSENT, None, self.chance.randrange(100)])
        assert self.windows.get(slot) == self.held("windows", slot, ABSENT)
        self.windows.put(slot, new)
        self.hold("windows", slot, new)

    def change_expiring(self, key: Any) -> None:
        new = self.chance.randrange(100)
        self.handles["ttl-value"].update(new)
        self.hold("ttl-value", key, (self.now, new))
        self.handles["ttl-map"].put(new % 4, new)
        self.hold("ttl-map", key, {**self.held("ttl-map", key, {}), new % 4: (self.now, new)})
        self.handles["ttl-list"].add(new)
        self.hold("ttl-list", key, [*self.held("ttl-list", key, []), (self.now, new)])

    def change_timers(self, key: Any) -> None:
        at = self.now + self.chance.randrange(30)
        if self.chance.random() < 0.8:
            self.keyed.timers.register_processing_time(key, b"", at)
            self.timers.add((at, key))
        else:
            self.keyed.timers.delete_processing_time(key, b"", at)
            self.timers.discard((at, key))

    def check(self, key: Any) -> None:
        handles = self.handles
        assert handles["value"].value() == self.held("value", key, None)
        assert handles["list"].get() == self.held("list", key, [])
        assert dict(handles["map"].items()) == self.held("map", key, {})
        for name in ("reducing", "aggregating"):
            assert handles[name].get() == self.held(name, key, None)
        alive = self.alive(key)
        assert handles["ttl-value"].value() == alive[0]
        assert dict(handles["ttl-map"].items()) == alive[1]
        assert handles["ttl-list"].get() == alive[2]

    def alive(self, key: Any) -> tuple[Any, dict[Any, Any], list[Any]]:
        def lives(kept: tuple[int, Any]) -> bool:
            return kept[0] + LIFE > self.now

        value = self.held("ttl-value", key, None)
        return (
            value[1] if value is not None and lives(value) else None,
            {at: kept[1] for at, kept in self.held("ttl-map", key, {}).items() if lives(kept)},
            [kept[1] for kept in self.held("ttl-list", key, []) if lives(kept)],
        )

    def move_clock(self) -> None:
        self.now += self.chance.randrange(15)
        self.keyed.processing_time = self.now
        due = {timer for timer in self.timers if timer[0] <= self.now}
        fired = [(at, key) for at, key, _ in self.keyed.timers.advance_processing_time(self.now)]
        assert [at for at, _ in fired] == sorted(at for at, _ in due)
        assert set(fired) == due
        self.timers -= due
        left = min((at for at, _ in self.timers), default=None)
        assert self.keyed.timers.processing.next_time() == left

    def snapshot(self) -> None:
        self.keyed.live_on(True)
        self.keyed.flush()

    def check_all(self) -> None:
        for key in KEYS:
            self.keyed.set_current_key(key)
            self.check(key)
        for slot, expected in self.model.get("windows", {}).items():
            assert self.windows.get(slot) == expected


def run(subject: Subject, store: KeyValueStore, steps: int) -> list[tuple[Any, Any]]:
    """Steps of all kinds; returns handles of snapshots with what they are to hold."""
    chance = subject.chance
    subject.keyed.begin_epoch(store, subject.now)
    kept = []
    for _ in range(steps):
        subject.step()
        if chance.random() < 0.3:
            subject.keyed.write_some(0.0)
        if chance.random() < 0.2:
            subject.move_clock()
        if chance.random() < 0.15:
            subject.snapshot()
            model = {name: dict(content) for name, content in subject.model.items()}
            kept.append((store.prepare_snapshot().finish(), (model, set(subject.timers))))
    subject.check_all()
    return kept


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("seed", sampled(range(4), 1))
def test_oracle_states_over_snapshots(
    seed: int, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_module, "MOST_UNWRITTEN", bounds[1])
    subject = Subject(random.Random(seed), bounds)
    store = MemoryStore()
    for _ in range(3):
        kept = run(subject, store, 150)
        assert len(kept) > 5
        # As behind a failure: the same instance, restored on any of its snapshots.
        handle, (subject.model, subject.timers) = subject.chance.choice(kept)
        store = store.restored(handle)
    subject.keyed.begin_epoch(store, subject.now)
    subject.check_all()


def test_oracle_states_over_snapshots_of_a_backend(world: World) -> None:
    subject = Subject(random.Random(1), (8_000, 2_000))
    for _ in range(2):
        store = world.open()
        kept = run(subject, store, 100)
        store.close()
        handle, (subject.model, subject.timers) = subject.chance.choice(kept)
        world.handles = [handle]
    store = world.open()
    subject.keyed.begin_epoch(store, subject.now)
    subject.check_all()
    store.close()


class Reads(MemoryStore):
    """Counts the keys that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.reads += len(keys)
        return super().get_many(keys)


def touch(keyed: KeyedState, handle: Any, keys: range) -> None:
    keyed.prefetch(list(keys))
    for key in keys:
        keyed.set_current_key(key)
        handle.update((handle.value() or (0,)) + (key,))


def lived(most_bytes: int) -> tuple[KeyedState, Any, Reads]:
    keyed = KeyedState(128, GROUPS)
    keyed.most_bytes = most_bytes
    handle = keyed.get_state(ValueStateDescriptor("value", None))
    store = Reads()
    keyed.begin_epoch(store, 0)
    keyed.live_on(True)
    return keyed, handle, store


def test_what_was_used_is_not_read_again_behind_a_snapshot() -> None:
    keyed, handle, store = lived(1 << 30)
    for _ in range(5):
        touch(keyed, handle, range(1000))
        keyed.flush()
    assert store.reads == 1000


def test_memory_is_bounded_and_what_is_used_all_the_time_stays() -> None:
    keyed, handle, store = lived(1 << 20)
    touch(keyed, handle, range(100))
    most = 0
    for start in range(1000, 50_000, 500):
        touch(keyed, handle, range(start, start + 500))
        touch(keyed, handle, range(100))
        most = max(most, handle.cached)
    assert most < 6_000, "about 250 bytes each, and what is read between two looks at the bound"
    assert store.reads == 100 + 49_000, "the hundred were never read again"
    for key in range(1000, 50_000, 500):
        keyed.set_current_key(key)
        assert handle.value() == (0, key)


@pytest.mark.parametrize("name", [int, str])
def test_values_that_cannot_be_compared_are_written(name: type) -> None:
    keyed, handle, store = lived(1 << 30)
    keys, gone = [name(each) for each in range(4)], name(4)
    for key in [*keys, gone]:
        keyed.set_current_key(key)
        handle.update(np.array([7, 8]))
    keyed.set_current_key(gone)
    handle.clear()
    keyed.flush()
    stored = [store.get(keyed.store_key(handle.index, key)) for key in keys]
    assert [loads(each or b"").tolist() for each in stored] == [[7, 8]] * 4
    assert store.get(keyed.store_key(handle.index, gone)) is None


def test_a_large_generation_is_dropped_bit_by_bit() -> None:
    keyed, handle, _ = lived(1 << 30)
    touch(keyed, handle, range(5000))
    keyed.flush()
    for _ in range(2):
        keyed._age()
    left = [sum(map(len, keyed._gone))]
    assert left == [5000]
    while keyed.write_some(0.0):
        left.append(sum(map(len, keyed._gone)))
    assert all(before - after <= 500 for before, after in pairwise(left))
    assert not keyed._gone


def test_changes_are_written_ahead_of_a_snapshot_but_for_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_module, "MOST_UNWRITTEN", 100)
    keyed, handle, store = lived(1 << 30)
    touch(keyed, handle, range(3000))
    assert keyed.write_some(0.0), "one portion, for the time is over"
    assert 2000 < handle.changes < 3000
    assert not keyed.write_some(time.monotonic() + 60)
    assert handle.changes <= 100
    assert len(store.entries) >= 2900
    assert not keyed.write_some(time.monotonic() + 60)


def change(keyed: KeyedState, handle: Any, keys: range, value: object) -> None:
    for key in keys:
        keyed.set_current_key(key)
        handle.update(value)


def test_what_changes_again_before_the_next_snapshot_is_not_written_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_module, "MOST_UNWRITTEN", 100)
    keyed, handle, store = lived(1 << 30)
    for turn in range(2):
        change(keyed, handle, range(3000), turn)
        keyed.flush()
    change(keyed, handle, range(3000), 2)
    assert not keyed.write_some(time.monotonic() + 60)
    assert handle.changes == 3000
    keyed.flush()
    [stored] = store.get_many(handle.names([2999]))
    assert loads(stored or b"") == 2
    # Others have their turn, so the next snapshot finds that those have not changed.
    change(keyed, handle, range(3000, 6000), 3)
    assert not keyed.write_some(time.monotonic() + 60)
    keyed.flush()
    change(keyed, handle, range(6000, 9000), 4)
    assert not keyed.write_some(time.monotonic() + 60)
    assert handle.changes <= 100


def test_of_keys_of_all_kinds_those_are_written_whose_values_have_changed() -> None:
    keyed, handle, store = lived(1 << 30)
    keys: list[Any] = [*range(-50, 50), 2**62, -(2**63), 2**63, -(2**70), "a", b"b", (1, 2)]
    for value, some in ((1, keys), (None, keys[::3]), (2**40, keys[::2]), ("text", keys[::5])):
        for key in some:
            keyed.set_current_key(key)
            handle.update(value)
        keyed.flush()
        assert not handle.changes
        for key in keys:
            keyed.set_current_key(key)
            [stored] = store.get_many(handle.names([keyed.cache_key]))
            assert (None if stored is None else loads(stored)) == handle.value()


def test_many_changes_or_long_ones_do_not_wait_for_the_snapshot_though_they_come_again() -> None:
    keyed, handle, _ = lived(1 << 30)
    for turn in range(3):
        change(keyed, handle, range(40_000), turn)
        if turn < 2:
            keyed.flush()
    assert not keyed.write_some(time.monotonic() + 60)
    assert 30_000 < handle.changes <= 32_000
    keyed, handle, _ = lived(1 << 30)
    for turn in range(3):
        change(keyed, handle, range(8_000), f"{turn}" * 400)
        if turn < 2:
            keyed.flush()
    assert not keyed.write_some(time.monotonic() + 60)
    assert 2_000 < handle.changes < 5_000, "1 MiB, and what always may wait"


def test_timers_are_written_ahead_and_fire_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_module, "MOST_UNWRITTEN", 100)
    keyed, _, store = lived(1 << 30)
    chance = random.Random(1)
    wanted = [(chance.randrange(1000), key) for key in range(3000)]
    for at, key in wanted[:2000]:
        keyed.timers.register_event_time(key, b"", at)
    assert keyed.write_some(0.0)
    assert not keyed.write_some(time.monotonic() + 60)
    assert len(store.entries) >= 1900
    fired = [(at, key) for at, key, _ in keyed.timers.advance_event_time(300)]
    for at, key in wanted[2000:]:  # some of them are due already
        keyed.timers.register_event_time(key, b"", at)
    keyed.write_some(time.monotonic() + 60)
    late = [(at, key) for at, key, _ in keyed.timers.advance_event_time(300)]
    assert sorted(late) == sorted(each for each in wanted[2000:] if each[0] <= 300)
    keyed.flush()
    fired += late + [(at, key) for at, key, _ in keyed.timers.advance_event_time(1000)]
    assert sorted(fired) == sorted(wanted)
    keyed.flush()
    assert keyed.timers.event.next_time() is None
    assert all(name.startswith(b"M") for name in store.entries)
