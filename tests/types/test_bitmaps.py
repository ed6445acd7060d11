"""Bitmaps as bytes: one form for each set, and that which Flink writes."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from pyroaring import BitMap, FrozenBitMap

from millstream.errors import TypeMismatchError
from millstream.types.bitmaps import (
    BitmapType,
    bitmap_bytes,
    bitmap_of_bytes,
    bitmap_of_values,
    bitmap_text,
    checked_bitmap,
)
from millstream.types.external_values import from_external, to_external, type_of_value
from millstream.types.logical_types import ArrayType

BITMAP = BitmapType()


def drawn(seed: int) -> set[int]:
    """Integers alone, in runs, and crowded, around the borders of containers."""
    draw = random.Random(seed)
    found: set[int] = set()
    for _ in range(draw.randint(1, 5)):
        base = draw.choice([0, 1 << 16, 5 << 16, 0x7FFF0000, 0xFFFE0000])
        start = base + draw.randrange(65536)
        match draw.randint(0, 3):
            case 0:
                found.update(base + draw.randrange(65536) for _ in range(200))
            case 1:
                found.update(range(start, start + draw.choice([2, 3, 4, 5, 3000])))
            case 2:
                found.update(base + draw.randrange(65536) for _ in range(4500))
            case _:
                for _ in range(draw.choice([2, 40])):
                    start = base + draw.randrange(65536)
                    found.update(range(start, start + draw.choice([1, 2, 3])))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_a_set_has_one_form_whatever_its_history(seed: int) -> None:
    wanted = drawn(seed)
    plain = bitmap_bytes(BitMap(wanted))
    in_ranges = BitMap()
    for value in wanted:
        in_ranges.add_range(value, value + 1)
    in_ranges.run_optimize()
    whole = BitMap()
    whole.add_range(0, 1 << 32)
    for history in (
        in_ranges,
        BitMap(wanted | {7}) - BitMap({7} - wanted),
        whole & BitMap(wanted),
        whole - (whole - BitMap(wanted)),
        checked_bitmap(in_ranges.serialize()),
    ):
        assert bitmap_bytes(history) == plain
    assert set(bitmap_of_bytes(plain)) == wanted


def test_runs_that_save_nothing_are_a_list() -> None:
    """Of two numbers in a run the list is not larger: Flink, which adds them, writes it."""
    pairs = BitMap()
    for start in range(0, 1000, 5):
        pairs.add_range(start, start + 2)
    assert bitmap_bytes(pairs) == bitmap_bytes(BitMap(set(pairs)))
    assert bitmap_bytes(pairs)[:4] == b"\x3a\x30\0\0"
    mixed = pairs.copy()
    mixed.add_range(5 << 16, 6 << 16)
    mixed.add_range((6 << 16) + 3, (6 << 16) + 5)
    assert bitmap_bytes(mixed) == bitmap_bytes(BitMap(set(mixed)))


@pytest.mark.parametrize(
    "data",
    [
        "",
        "00",
        "3A3000000100000000000100",
        "FF300000010000000000000014000000",
        "3A3000000100000000000100100000000500010009",
        "3B30000001000001000100F0FF00F0",
    ],
)
def test_bytes_that_are_no_bitmap_are_refused(data: str) -> None:
    with pytest.raises(ValueError, match="no bitmap in the portable format of Roaring"):
        checked_bitmap(bytes.fromhex(data))


def test_a_text_ends_where_it_gets_too_long() -> None:
    """As Flink's: it was asked for the text of these 200,000 integers."""
    found = bitmap_text(bitmap_of_values(range(200_000)))
    assert len(found) == 524_293
    assert found.endswith(",89229,89230,89231,89232,...}")
    assert bitmap_text(bitmap_of_values([])) == "{}"
    assert bitmap_text(bitmap_of_values([-1, 5])) == "{5,4294967295}"


@pytest.mark.parametrize("given", [BitMap([1, 2**32 - 1]), FrozenBitMap([1, 2**32 - 1]), {1, -1}])
def test_values_of_programs(given: Any) -> None:
    data = from_external(BITMAP)(given)
    seen = to_external(BITMAP)(data)
    assert seen == FrozenBitMap([1, 2**32 - 1])
    assert {seen: 1}[pickle.loads(pickle.dumps(seen))] == 1
    assert to_external(ArrayType(BITMAP))((data, None)) == [seen, None]
    assert str(type_of_value(seen)) == "BITMAP NOT NULL"


def test_other_values_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="a bitmap of pyroaring or a set of ints"):
        from_external(BITMAP)([1, 2])
