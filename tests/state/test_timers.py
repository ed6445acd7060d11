"""Timers against a plain model, with so little held in memory that every way is taken."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.functions.descriptors import ValueStateDescriptor
from millstream.state import timers as module
from millstream.state.key_codec import key_group, key_group_range, subtask_of
from millstream.state.keyed import KeyedState
from millstream.state.rescale import copy_key_groups
from millstream.testing.memory_store import MemoryStore
from millstream.types.time import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = 16
Timer = tuple[int, int, bytes]


class Recorder(MemoryStore):
    """Counts what is read and deleted."""

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        super().__init__(entries)
        self.read = 0
        self.deleted = 0
        self.ranges = 0

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(start, stop):
            self.read += 1
            yield entry

    def write(self, puts: Any, deletes: Any = ()) -> None:
        names = list(deletes)
        self.deleted += len(names)
        super().write(puts, names)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.ranges += 1
        super().delete_range(start, stop)


class Subtasks:
    """All subtasks of an operator that does nothing but keep timers."""

    def __init__(self, parallelism: int) -> None:
        self.start([Recorder() for _ in range(parallelism)])

    def start(self, stores: list[Recorder]) -> None:
        self.stores = stores
        self.keyed = []
        for number, store in enumerate(stores):
            keyed = KeyedState(GROUPS, key_group_range(number, GROUPS, len(stores)))
            keyed.get_state(ValueStateDescriptor("value"))  # so that firing reads ahead
            keyed.begin_epoch(store, 0)
            self.keyed.append(keyed)

    def cut(self, parallelism: int) -> None:
        for keyed in self.keyed:
            keyed.flush()
        old = self.stores
        if parallelism == len(old):
            self.start([Recorder(store.entries) for store in old])
            return
        new = [Recorder() for _ in range(parallelism)]
        for number, target in enumerate(new):
            wanted = key_group_range(number, GROUPS, parallelism)
            for other, source in enumerate(old):
                groups = key_group_range(other, GROUPS, len(old))
                if groups[0] < wanted[1] and wanted[0] < groups[1]:
                    copy_key_groups(source, groups, target, wanted)
        self.start(new)

    def of(self, key: int) -> KeyedState:
        return self.keyed[subtask_of(key_group(key, GROUPS), GROUPS, len(self.keyed))]


_TIMES = st.integers(-5, 40)
_NAMES = st.tuples(_TIMES, st.integers(0, 9), st.sampled_from([b"", b"w", b"\xff"]))
_STEPS = st.one_of(
    st.tuples(st.just("add"), st.lists(_NAMES, max_size=8)),
    st.tuples(st.just("delete"), st.lists(_NAMES, max_size=4)),
    st.tuples(st.just("fire"), _TIMES),
    st.tuples(st.just("cut"), st.integers(1, 3)),
)


def fire(subtasks: Subtasks, model: set[Timer], time: int, seed: int) -> None:
    """Fire in each subtask; some timers register and delete others while they fire."""
    chance = random.Random(seed)
    for keyed in subtasks.keyed:
        first, stop = keyed.key_groups
        due = [t for t in model if t[0] <= time and first <= key_group(t[1], GROUPS) < stop]
        for at, key, namespace in keyed.timers.advance_event_time(time):
            expected = min(t[0] for t in due)
            assert isinstance(key, int)
            assert at == expected, "not in order of time"
            due.remove((at, key, namespace))
            model.remove((at, key, namespace))
            if chance.random() < 0.3:
                new = (at + chance.randrange(-3, 12), key, b"again")
                keyed.timers.register_event_time(key, new[2], new[0])
                if new not in model:
                    model.add(new)
                    if new[0] <= time:
                        due.append(new)
            if due and chance.random() < 0.2:
                gone = chance.choice(due)
                keyed.timers.delete_event_time(gone[1], gone[2], gone[0])
                due.remove(gone)
                model.remove(gone)
            if chance.random() < 0.05:
                keyed.flush()
        assert not due
        assert not list(keyed.timers.advance_processing_time(MAX_TIMESTAMP))


@given(st.lists(_STEPS, max_size=25), st.integers(1, 3), st.sampled_from([2, 5, 10**6]))
@examples(150)
def test_oracle_timers_with_cuts_spills_deletions_and_rescaling(
    steps: list[tuple[str, Any]], parallelism: int, held: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_HELD", held)
        patch.setattr(module, "_RANGE_FROM", 1 if held == 5 else 4)
        patch.setattr(module, "_FIRST_RUN", 1)
        patch.setattr(module, "_LONGEST_RUN", 3)
        subtasks, model = Subtasks(parallelism), set[Timer]()
        for number, (step, argument) in enumerate([*steps, ("fire", MAX_TIMESTAMP - 99)]):
            if step == "fire":
                fire(subtasks, model, argument, number)
            elif step == "cut":
                subtasks.cut(argument)
            else:
                for at, key, namespace in argument:
                    timers = subtasks.of(key).timers
                    if step == "add":
                        timers.register_event_time(key, namespace, at)
                        model.add((at, key, namespace))
                    else:
                        timers.delete_event_time(key, namespace, at)
                        model.discard((at, key, namespace))
        subtasks.cut(len(subtasks.stores))
        left = [name for store in subtasks.stores for name in store.entries if name[:1] == b"T"]
        assert not left, "timers that fired are still stored"


@pytest.mark.parametrize("time", [MIN_TIMESTAMP, -1, 0, MAX_TIMESTAMP - 1, MAX_TIMESTAMP])
def test_every_time_can_be_a_timer(time: int) -> None:
    subtasks = Subtasks(1)
    subtasks.of(1).timers.register_event_time(1, b"", time)
    subtasks.cut(1)
    assert subtasks.of(1).timers.event.next_time() == time
    assert list(subtasks.of(1).timers.advance_event_time(MAX_TIMESTAMP)) == [(time, 1, b"")]


def test_an_epoch_reads_what_it_fires_and_not_all_that_wait() -> None:
    subtasks = Subtasks(1)
    for key in range(5000):
        subtasks.of(key).timers.register_event_time(key, b"", 1000 + key)
    subtasks.cut(1)
    facts = subtasks.stores[0].read
    assert len(list(subtasks.of(0).timers.advance_event_time(1009))) == 10
    subtasks.of(0).timers.register_event_time(0, b"", 1001)
    assert len(list(subtasks.of(0).timers.advance_event_time(1009))) == 1
    assert subtasks.stores[0].read - facts <= 16
    subtasks.keyed[0].flush()
    assert (subtasks.stores[0].deleted, subtasks.stores[0].ranges) == (10, 0)


def test_a_long_run_of_fired_timers_is_one_deletion_and_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 1000)
    subtasks = Subtasks(1)
    timers = subtasks.of(0).timers
    for key in range(20_000):
        timers.register_event_time(key, b"", key)
        assert timers.event.cached < 1000
    subtasks.cut(1)
    store, timers = subtasks.stores[0], subtasks.of(0).timers
    for _, fired_key, _ in timers.advance_event_time(MAX_TIMESTAMP - 1):
        assert len(timers.event._ahead) + len(timers.event._fired) + timers.event.cached < 6000
        if fired_key == 19_999:
            timers.register_event_time(fired_key, b"", 0)  # in the range that is deleted
            break
    subtasks.keyed[0].flush()
    assert (store.deleted, store.ranges) == (0, 1)
    subtasks.cut(1)
    fired = list(subtasks.of(0).timers.advance_event_time(MAX_TIMESTAMP))
    assert fired == [(0, 19_999, b"")]
