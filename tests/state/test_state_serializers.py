"""State of serializers that a program brings: it comes back, and other versions are converted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.state.test_expired_in_savepoints import manifest_of

from millstream.checkpoint.canonical import CanonicalSavepoint
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import StateSerializer, Types
from millstream.errors import ProgramError, StateError
from millstream.functions.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.state.canonical.restore import restore_canonical
from millstream.state.canonical.write import write_canonical
from millstream.state.keyed import KeyedState
from millstream.types.types import Row, TypeInformation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.state.conftest import World


class Money:
    """Cannot be pickled: only its serializer stores it."""

    def __init__(self, cents: int, currency: str = "EUR") -> None:
        self.cents = cents
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        message = "money is not pickled"
        raise TypeError(message)


class MoneySerializer(StateSerializer):
    name = "money"

    def serialize(self, value: Money) -> bytes:
        return str(value.cents).encode()

    def deserialize(self, content: bytes, version: int) -> Money:
        assert version == self.version
        return Money(int(content))


class LaterMoneySerializer(StateSerializer):
    """With the currency, and also for what was written without it."""

    name = "money"
    version = 2

    def serialize(self, value: Money) -> bytes:
        return f"{value.cents} {value.currency}".encode()

    def deserialize(self, content: bytes, version: int) -> Money:
        cents, _, currency = content.decode().partition(" ")
        assert bool(currency) == (version == 2)
        return Money(int(cents), currency or "DEM")

    def reads(self, version: int) -> bool:
        return version in (1, 2)


class States:
    def __init__(self, serializer: StateSerializer | None) -> None:
        self.keyed = KeyedState(128, (0, 128))
        money = None if serializer is None else Types.SERIALIZED(serializer)
        row: TypeInformation | None = None
        if money is not None:
            row = Types.ROW_NAMED(["price", "tags"], [money, Types.LIST(money)])
        self.value: Any = self.keyed.get_state(ValueStateDescriptor("value", money))
        self.row: Any = self.keyed.get_state(ValueStateDescriptor("row", row))
        self.list: Any = self.keyed.get_list_state(ListStateDescriptor("list", money))
        map_descriptor = MapStateDescriptor("map", Types.LONG(), money)
        self.map: Any = self.keyed.get_map_state(map_descriptor)

    def write(self, key: int, currency: str) -> None:
        self.keyed.set_current_key(key)
        money = [Money(key + number, currency) for number in range(4)]
        self.value.update(money[0])
        self.row.update(Row(price=None if key % 2 else money[1], tags=money[:2]))
        self.list.add_all(money[2:])
        self.map.put(1, money[3])

    def read(self, key: int) -> list[Any]:
        self.keyed.set_current_key(key)
        return [self.value.value(), self.row.value(), list(self.list), dict(self.map.items())]


def expected(key: int, currency: str) -> list[Any]:
    money = [Money(key + number, currency) for number in range(4)]
    row = Row(price=None if key % 2 else money[1], tags=money[:2])
    return [money[0], row, money[2:], {1: money[3]}]


KEYS = range(10)


def write(world: World, serializer: StateSerializer, currency: str) -> None:
    states = States(serializer)
    store = world.begin(states.keyed)
    for key in KEYS:
        states.write(key, currency)
    world.finish(states.keyed, store)


def check(world: World, serializer: StateSerializer, currency: str) -> None:
    states = States(serializer)
    store = world.begin(states.keyed)
    assert [states.read(key) for key in KEYS] == [expected(key, currency) for key in KEYS]
    world.finish(states.keyed, store)


def refusal(world: World, serializer: StateSerializer | None) -> str:
    store = world.open()
    states = States(serializer)
    with pytest.raises(StateError) as caught:
        states.keyed.begin_epoch(store)
    store.close()
    return str(caught.value)


def test_values_come_back(world: World) -> None:
    write(world, MoneySerializer(), "EUR")
    check(world, MoneySerializer(), "EUR")
    check(world, MoneySerializer(), "EUR")


def test_a_later_version_converts_what_it_reads(world: World) -> None:
    write(world, MoneySerializer(), "EUR")
    check(world, LaterMoneySerializer(), "DEM")
    check(world, LaterMoneySerializer(), "DEM")
    text = refusal(world, MoneySerializer())
    assert "serialized(money, version 2) cannot become serialized(money, version 1)" in text
    assert "reads(2) of serializer 'money' is false" in text
    check(world, LaterMoneySerializer(), "DEM")


def test_other_serializers_and_none_are_refused(world: World) -> None:
    write(world, MoneySerializer(), "EUR")
    other = MoneySerializer()
    other.name = "coins"
    assert "cannot become serialized(coins, version 1)" in refusal(world, other)
    text = refusal(world, None)
    assert "serializer 'money', version 1; declare its type with Types.SERIALIZED" in text
    check(world, MoneySerializer(), "EUR")


def test_oracle_savepoints_have_the_bytes_and_the_name(world: World, tmp_path: Path) -> None:
    write(world, MoneySerializer(), "EUR")
    (handle,) = world.handles
    target = LocalStorage(tmp_path / "savepoint", fsync=False)
    target.bind("0" * 32)
    content = write_canonical(target, world.storage, manifest_of(handle, by_event_time=False))
    file = tmp_path / "savepoint/state/op/keyed"
    query = duckdb.connect().execute
    rows = query(f"SELECT key, value FROM '{file}/value.parquet' ORDER BY key").fetchall()
    assert rows == [(key, str(key).encode()) for key in KEYS]
    rows = query(f"SELECT key, value.price FROM '{file}/row.parquet' ORDER BY key").fetchall()
    assert rows == [(key, None if key % 2 else str(key + 1).encode()) for key in KEYS]
    rows = query(
        f"SELECT value FROM parquet_kv_metadata('{file}/value.parquet') WHERE key = 'millstream'"
    ).fetchall()
    section = json.loads(rows[0][0])["section"]
    assert section["schema"] == {"type": "serialized", "serializer": "money", "version": 1}
    restored = LocalStorage(tmp_path / "restored", fsync=False)
    restored.bind("1" * 32)
    saved = CanonicalSavepoint.read(target, content)
    (ack,) = restore_canonical(saved, restored, world.backend).operators["op"]
    assert ack.state is not None
    world.storage, world.handles = restored, [ack.state]
    world.lose_local_copies()
    check(world, LaterMoneySerializer(), "DEM")


class Failing(MoneySerializer):
    def serialize(self, value: Money) -> bytes:
        if value.cents < 0:
            message = "no debts"
            raise AttributeError(message)
        return value.cents  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("cents", "message"),
    [
        (-1, r"serializer 'money' \(Failing\) cannot serialize .*AttributeError: no debts"),
        (1, r"serializer 'money' \(Failing\) returned int for a value of type Money"),
    ],
)
def test_serializers_that_fail_are_named(world: World, cents: int, message: str) -> None:
    states = States(Failing())
    store = world.begin(states.keyed)
    states.keyed.set_current_key(1)
    states.row.update(Row(price=Money(cents), tags=[]))
    with pytest.raises(StateError, match=message):
        world.finish(states.keyed, store)
    store.close()


def test_bytes_that_are_damaged_are_named() -> None:
    with pytest.raises(StateError, match=r"cannot read 1 bytes that its version 1 has written"):
        Types.SERIALIZED(MoneySerializer()).deserialized(b"x")


def test_bad_serializers_are_refused() -> None:
    with pytest.raises(ProgramError, match="takes an instance of StateSerializer"):
        Types.SERIALIZED(MoneySerializer)  # type: ignore[arg-type]
    for name, version in (("", 1), ("x", 0), ("x", "1")):
        bad: Any = MoneySerializer()
        bad.name, bad.version = name, version
        with pytest.raises(ProgramError, match="it needs a text and a number above zero"):
            Types.SERIALIZED(bad)
