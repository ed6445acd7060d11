"""Pickling by value."""

from __future__ import annotations

import pickle
import traceback

import pytest

from millstream.types.pickling import dumps, dumps_by_value, loads


def test_errors_of_functions_that_were_shipped_name_their_file() -> None:
    shipped = pickle.loads(dumps_by_value(lambda n: 1 // n))
    with pytest.raises(ZeroDivisionError) as caught:
        shipped(0)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.filename == __file__


def test_functions_within_functions_keep_their_file() -> None:
    def outer() -> object:
        return lambda: None

    inner = loads(dumps(outer))()  # type: ignore[operator]
    assert inner.__code__.co_filename == __file__


def test_what_cannot_be_pickled_raises() -> None:
    with pytest.raises(TypeError, match="generator"):
        dumps(n for n in range(3))
