"""An epoch that takes too long is given up (no Spark session is needed to see it)."""

from __future__ import annotations

import threading

import pytest

from millstream.errors import CheckpointError
from millstream.execution.run import EpochTimeout


def test_epoch_that_takes_too_long_is_given_up_and_says_which_option_to_raise() -> None:
    cancelled = threading.Event()

    def tasks() -> None:
        assert cancelled.wait(30)
        message = "job was cancelled"
        raise RuntimeError(message)

    with (
        pytest.raises(CheckpointError, match=r"checkpoint 7 .* execution\.checkpointing\.timeout"),
        EpochTimeout(7, 0.01, cancelled.set),
    ):
        tasks()


def test_error_of_its_own_is_left_alone_and_so_is_an_epoch_in_time() -> None:
    cancelled = threading.Event()
    with pytest.raises(ZeroDivisionError), EpochTimeout(1, 60, cancelled.set):
        assert 1 // int("0")
    with EpochTimeout(2, 60, cancelled.set):
        pass
    assert not cancelled.is_set()
