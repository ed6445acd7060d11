"""Values of older checkpoints are pickled with the names that their modules had then."""

from __future__ import annotations

import importlib
import pickle

import pytest

from millstream.functions.window import TimeWindow
from millstream.moved_modules import MOVED
from millstream.types.row import Row


@pytest.mark.parametrize("old", sorted(MOVED))
def test_old_names_lead_to_the_same_classes(old: str) -> None:
    new = importlib.import_module(f"millstream.{MOVED[old]}")
    found = importlib.import_module(f"millstream.{old}")
    classes = {name: each for name, each in vars(new).items() if isinstance(each, type)}
    assert classes
    assert {name: getattr(found, name) for name in classes} == classes


@pytest.mark.parametrize(
    ("value", "new", "old"),
    [
        (Row(1, "a"), b"millstream.types.row", b"millstream.common.row"),
        (TimeWindow(0, 10), b"millstream.functions.window", b"millstream.runtime.windows"),
    ],
)
def test_values_of_older_releases_are_read(value: object, new: bytes, old: bytes) -> None:
    # As protocol 2 writes names: module and class in a line each.
    plain = pickle.dumps(value, protocol=2)
    assert new in plain
    assert pickle.loads(plain.replace(new, old)) == value
