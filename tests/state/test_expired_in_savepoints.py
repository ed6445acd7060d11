"""Savepoints are without what has expired, also where nothing cleans it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from millstream.checkpoint.canonical import CanonicalSavepoint
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.model import Manifest, OperatorAck
from millstream.functions.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.state.canonical.restore import restore_canonical
from millstream.state.canonical.write import write_canonical
from millstream.state.keyed import KeyedState
from millstream.types.time import Time
from millstream.types.types import Types, dataclass_type

if TYPE_CHECKING:
    from pathlib import Path

    from tests.state.conftest import World

    from millstream.contracts.key_value_store import StateHandle

TTL = 100
#: Of the checkpoint.
NOW = 1_000
#: When each key was written: expired, at the bound, and alive.
WRITTEN = {"a": 500, "b": NOW - TTL, "c": NOW - TTL + 1, "d": NOW}
ALIVE = {key: time for key, time in WRITTEN.items() if time + TTL > NOW}


@dataclass
class Visit:
    page: str
    anything: object


class States:
    """States of several kinds that expire, of which nothing is cleaned up."""

    def __init__(self, *, by_event_time: bool) -> None:
        self.keyed = KeyedState(128, (0, 128))
        self.keyed.timestamp = lambda: self.keyed.event_time
        builder = StateTtlConfig.new_builder(Time.milliseconds(TTL))
        builder = builder.use_event_time() if by_event_time else builder.use_processing_time()
        config = builder.disable_cleanup_in_background().build()
        made: list[Any] = []
        for descriptor in (
            ValueStateDescriptor("value", Types.LONG()),
            ValueStateDescriptor("visit", dataclass_type(Visit)),
            ListStateDescriptor("list", Types.TUPLE([Types.LONG()])),
            ListStateDescriptor("any list"),
            MapStateDescriptor("map", Types.STRING(), Types.LONG()),
        ):
            descriptor.enable_time_to_live(config)
            made.append(self.keyed.handle_of(descriptor))
        self.value, self.visit, self.list, self.any_list, self.map = made

    def write(self, key: str, time: int) -> None:
        self.keyed.set_current_key(key)
        self.value.update(time)
        self.visit.update(Visit(key, {Visit}))
        self.list.add((time,))
        self.any_list.add({"t": time})
        self.map.put("x", time)
        self.keyed.set_current_key("all")
        self.list.add((time,))
        self.any_list.add({"t": time})
        self.map.put(key, time)

    def read(self, key: str) -> list[Any]:
        self.keyed.set_current_key(key)
        states = (self.list, self.any_list)
        lists = [list(state) for state in states]
        return [self.value.value(), self.visit.value(), *lists, dict(self.map.items())]


def expected(key: str) -> list[Any]:
    if key == "all":
        times = list(ALIVE.values())
        return [None, None, [(time,) for time in times], [{"t": time} for time in times], ALIVE]
    time = ALIVE[key]
    return [time, Visit(key, {Visit}), [(time,)], [{"t": time}], {"x": time}]


def manifest_of(handle: StateHandle, *, by_event_time: bool) -> Manifest:
    """A checkpoint at ``NOW`` of the clock that counts; the other one is far ahead of it."""
    started, watermark = (10**15, NOW) if by_event_time else (NOW, 10**15)
    ack = OperatorAck("op", 0, watermark, state=handle)
    return Manifest(1, 1, "0" * 32, started, started, {}, {"op": [ack]}, {}, {0: 1}, 128)


@pytest.mark.parametrize("by_event_time", [False, True])
def test_oracle_only_what_lives_is_in_a_savepoint(
    world: World, tmp_path: Path, by_event_time: bool
) -> None:
    states = States(by_event_time=by_event_time)
    store = world.begin(states.keyed, 0)
    for key, time in WRITTEN.items():
        states.keyed.event_time = states.keyed.processing_time = time
        states.write(key, time)
    world.finish(states.keyed, store)
    (handle,) = world.handles
    target = LocalStorage(tmp_path / "savepoint", fsync=False)
    target.bind("0" * 32)
    content = write_canonical(
        target, world.storage, manifest_of(handle, by_event_time=by_event_time)
    )

    def rows(state: str) -> list[tuple[Any, ...]]:
        file = tmp_path / f"savepoint/state/op/keyed/{state}.parquet"
        what = "key, epoch_ms(last_access)"
        query = f"SELECT {what} FROM '{file}' ORDER BY ALL"
        return duckdb.connect().execute(query).fetchall()

    single = sorted(ALIVE.items())
    several = sorted([*single, *(("all", time) for time in ALIVE.values())])
    assert rows("value") == rows("visit") == single
    assert rows("list") == rows("any%20list") == rows("map") == several

    restored = LocalStorage(tmp_path / "restored", fsync=False)
    restored.bind("1" * 32)
    saved = CanonicalSavepoint.read(target, content)
    (ack,) = restore_canonical(saved, restored, world.backend).operators["op"]
    assert ack.state is not None
    world.storage, world.handles = restored, [ack.state]
    world.lose_local_copies()
    again = States(by_event_time=by_event_time)
    again.keyed.event_time = NOW
    store = world.begin(again.keyed, NOW)
    for key in [*ALIVE, "all"]:
        assert again.read(key) == expected(key)
    for key in WRITTEN.keys() - ALIVE.keys():
        assert again.read(key) == [None, None, [], [], {}]
    store.close()
