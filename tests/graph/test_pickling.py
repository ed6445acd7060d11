"""Naming what cannot be pickled."""

from __future__ import annotations

import threading

import pytest

from millstream.errors import UnpicklableFunctionError
from millstream.graph.job_files import check_picklable


def check(value: object) -> str:
    with pytest.raises(UnpicklableFunctionError) as caught:
        check_picklable(value, what="function", operator="Map", location="job.py:7")
    return str(caught.value)


def test_picklable_functions_pass() -> None:
    factor = 3
    check_picklable(lambda x: x * factor, what="function", operator="Map", location="job.py:7")


def test_names_the_captured_variable() -> None:
    guard = threading.Lock()

    def locked(value: object) -> object:
        with guard:
            return value

    message = check(locked)
    assert "the function of operator 'Map' (job.py:7) cannot be shipped" in message
    assert "variable 'guard' used by" in message
    assert "_thread.lock" in message
    assert "open()" in message


def test_names_the_attribute_within_attributes() -> None:
    class Client:
        def __init__(self) -> None:
            self.connection = {"socket": threading.Lock()}

    class Mapper:
        def __init__(self) -> None:
            self.client = Client()

    message = check(Mapper())
    assert "client.connection['socket'] is <unlocked _thread.lock" in message


def test_self_reference_ends() -> None:
    class Loop:
        def __init__(self) -> None:
            self.me = self
            self.lock = threading.Lock()

    assert ".lock is" in check(Loop())


def test_object_whose_repr_raises() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError

        def __reduce__(self) -> tuple[object, ...]:
            message = "not me"
            raise TypeError(message)

    assert "not me" in check(Broken())
