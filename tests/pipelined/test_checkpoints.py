"""When a checkpoint is due, what is acknowledged, and what becomes of one that takes too long."""

from __future__ import annotations

import re

import pytest

from millstream.checkpoint.model import TaskAck
from millstream.common import Configuration
from millstream.engines.pipelined.checkpoints import DEFAULT_INTERVAL, Checkpoints
from millstream.errors import CheckpointExpiredError, EngineError
from millstream.runtime.pipelined.control import NEVER

TASKS = {(0, 0), (0, 1), (1, 0)}


def make(first: int = 0, **settings: str) -> Checkpoints:
    prefix = "execution.checkpointing."
    entries = {prefix + key.replace("_", "-"): value for key, value in settings.items()}
    return Checkpoints(Configuration(entries), TASKS, first, now=100.0)


def acknowledge(checkpoints: Checkpoints, epoch: int, *tasks: tuple[int, int]) -> list[bool]:
    """Whether each was the last that was missing."""
    return [
        checkpoints.acknowledge(TaskAck(epoch, stage, subtask, "a")) is not None
        for stage, subtask in tasks
    ]


def test_the_interval_is_from_trigger_to_trigger() -> None:
    checkpoints = make(interval="200")
    assert not checkpoints.is_due(100.19)
    assert checkpoints.is_due(100.2)
    message = checkpoints.trigger(100.25, 5)
    assert (message.epoch, message.final, message.time) == (0, False, 5)
    assert not checkpoints.is_due(100.6), "one at a time"
    assert acknowledge(checkpoints, 0, *sorted(TASKS)) == [False, False, True]
    assert not checkpoints.is_due(100.6), "it is not committed"
    done = checkpoints.committed(0, 100.6)
    assert done.span == pytest.approx(0.25)
    assert checkpoints.is_due(100.6)
    assert checkpoints.trigger(100.6, 6).epoch == 1


def test_without_an_interval_there_is_a_default() -> None:
    checkpoints = make()
    assert not checkpoints.is_due(100 + DEFAULT_INTERVAL / 2)
    assert checkpoints.is_due(100 + DEFAULT_INTERVAL)


def test_a_pause_is_kept_behind_the_end_of_each() -> None:
    checkpoints = make(interval="100", min_pause="1000", max_concurrent_checkpoints="3")
    assert checkpoints.is_due(100.1)
    checkpoints.trigger(100.1, 0)
    assert not checkpoints.is_due(105.0), "a pause leaves no room for two"
    acknowledge(checkpoints, 0, *TASKS)
    checkpoints.committed(0, 105.0)
    assert not checkpoints.is_due(105.9)
    assert checkpoints.is_due(106.0)


def test_several_at_a_time_end_in_their_order() -> None:
    checkpoints = make(first=7, interval="100", max_concurrent_checkpoints="2")
    assert checkpoints.trigger(100.1, 0).epoch == 7
    assert checkpoints.is_due(100.2)
    assert checkpoints.trigger(100.2, 0).epoch == 8
    assert not checkpoints.is_due(100.3)
    acknowledge(checkpoints, 7, *TASKS)
    acknowledge(checkpoints, 8, *TASKS)
    with pytest.raises(EngineError, match="8 was committed ahead of 7"):
        checkpoints.committed(8, 100.4)


def test_nothing_follows_the_last() -> None:
    checkpoints = make(interval="100")
    assert checkpoints.trigger(100.0, 0, final=True).final
    acknowledge(checkpoints, 0, *TASKS)
    assert checkpoints.committed(0, 100.1).message.final
    assert not checkpoints.is_due(1000.0)


@pytest.mark.parametrize("task", [(0, 0), (5, 0)])
def test_what_nobody_has_asked_for_is_an_error(task: tuple[int, int]) -> None:
    checkpoints = make()
    checkpoints.trigger(101.0, 0)
    acknowledge(checkpoints, 0, (0, 0))
    with pytest.raises(EngineError, match="which is not expected of it"):
        acknowledge(checkpoints, 0, task)
    with pytest.raises(EngineError, match=r"acknowledges checkpoint 4.*under way are \[0\]"):
        acknowledge(checkpoints, 4, (0, 1))


def test_one_that_takes_too_long_names_the_tasks_that_are_missing() -> None:
    checkpoints = make(timeout="5000")
    checkpoints.trigger(101.0, 0)
    acknowledge(checkpoints, 0, (0, 1))
    assert checkpoints.expired(105.9) == []
    with pytest.raises(CheckpointExpiredError, match=r"tasks 0/0, 1/0 \(stage/subtask\) of 3"):
        checkpoints.expired(106.0)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({}, r"or raise the option, or set execution.checkpointing.unaligned.enabled$"),
        ({"unaligned": "true"}, r"or raise the option$"),
        ({"mode": "AT_LEAST_ONCE"}, r"or raise the option$"),
    ],
)
def test_one_that_takes_too_long_names_operators_and_what_to_do(
    settings: dict[str, str], hint: str
) -> None:
    checkpoints = make(0, timeout="5000", **settings)
    checkpoints._names = {0: "numbers", 1: "counts"}
    checkpoints.trigger(101.0, 0)
    acknowledge(checkpoints, 0, (0, 0), (0, 1))
    with pytest.raises(CheckpointExpiredError) as error:
        checkpoints.expired(106.0)
    assert "tasks 1/0 (stage/subtask; 1: 'counts') of 3" in str(error.value)
    assert re.search(hint, str(error.value))


def test_what_is_acknowledged_does_not_expire_while_it_is_committed() -> None:
    checkpoints = make(timeout="5000")
    checkpoints.trigger(101.0, 0)
    acknowledge(checkpoints, 0, *TASKS)
    assert checkpoints.expired(1000.0) == []


def test_so_many_in_a_row_are_tolerated_and_late_acknowledgements_ignored() -> None:
    checkpoints = make(timeout="5000", interval="100", tolerable_failed_checkpoints="1")
    checkpoints.trigger(101.0, 0)
    ((epoch, words),) = checkpoints.expired(106.0)
    assert epoch == 0
    assert "(1 of 1 in a row)" in words
    assert checkpoints.is_due(106.0), "the next one is due, with the next number"
    assert checkpoints.trigger(106.0, 0).epoch == 1
    assert acknowledge(checkpoints, 0, *TASKS) == [False] * 3
    acknowledge(checkpoints, 1, *TASKS)
    checkpoints.committed(1, 106.5)
    checkpoints.trigger(107.0, 0)
    assert len(checkpoints.expired(112.0)) == 1, "they are counted anew"
    checkpoints.trigger(112.0, 0)
    with pytest.raises(CheckpointExpiredError):
        checkpoints.expired(117.0)


def test_the_last_is_not_tolerated_to_fail() -> None:
    checkpoints = make(timeout="5000", tolerable_failed_checkpoints="9")
    checkpoints.trigger(101.0, 0, final=True)
    with pytest.raises(CheckpointExpiredError):
        checkpoints.expired(106.0)


def test_one_that_is_declined_counts_as_one_that_expires() -> None:
    checkpoints = make(interval="100", timeout="1000", tolerable_failed_checkpoints="2")
    checkpoints.trigger(100.1, 0)
    acknowledge(checkpoints, 0, (0, 0))
    words = checkpoints.declined(0, (0, 1), OSError("disk full"))
    assert words is not None
    assert "checkpoint 0 was aborted: tasks 0/1 (stage/subtask)" in words
    assert "disk full" in words
    assert "(1 of 2 in a row)" in words
    assert checkpoints.declined(0, (1, 0), OSError("disk full")) is None
    assert acknowledge(checkpoints, 0, (1, 0)) == [False]
    checkpoints.trigger(100.2, 0)
    assert checkpoints.expired(101.2)
    checkpoints.trigger(101.3, 0)
    with pytest.raises(OSError, match="full again"):
        checkpoints.declined(2, (0, 0), OSError("full again"))


def test_the_last_must_not_be_declined() -> None:
    checkpoints = make(tolerable_failed_checkpoints="9")
    checkpoints.trigger(100.1, 0, last=True)
    with pytest.raises(OSError, match="full"):
        checkpoints.declined(0, (0, 0), OSError("full"))


def test_a_task_cannot_decline_what_it_has_acknowledged() -> None:
    checkpoints = make(tolerable_failed_checkpoints="9")
    checkpoints.trigger(100.1, 0)
    acknowledge(checkpoints, 0, (0, 0))
    with pytest.raises(EngineError, match="cannot have declined checkpoint 0"):
        checkpoints.declined(0, (0, 0), OSError("full"))


def test_what_is_aborted_does_not_count_and_what_is_acknowledged_stays() -> None:
    checkpoints = make(interval="100", max_concurrent_checkpoints="3")
    for _ in range(3):
        checkpoints.trigger(100.1, 0)
    acknowledge(checkpoints, 0, *TASKS)
    acknowledge(checkpoints, 1, (0, 0))
    assert checkpoints.abort() == [1, 2]
    assert checkpoints.pending == 1
    assert acknowledge(checkpoints, 1, (0, 1), (1, 0)) == [False, False]
    assert checkpoints.committed(0, 100.2).epoch == 0
    assert checkpoints.next == 3


@pytest.mark.parametrize(
    ("settings", "deadline"),
    [
        ({}, NEVER),
        ({"unaligned": "true"}, 0),
        ({"unaligned": "true", "aligned_checkpoint_timeout": "250 ms"}, 5250),
        ({"aligned_checkpoint_timeout": "250 ms"}, NEVER),
        ({"unaligned": "true", "mode": "AT_LEAST_ONCE"}, NEVER),
    ],
)
def test_when_barriers_begin_to_overtake(settings: dict[str, str], deadline: int) -> None:
    assert make(0, **settings).trigger(101.0, 5000).deadline == deadline


@pytest.mark.parametrize("last", [{"final": True}, {"last": True}])
def test_nothing_is_in_flight_in_the_last(last: dict[str, bool]) -> None:
    checkpoints = make(unaligned="true")
    assert checkpoints.trigger(101.0, 5000, **last).deadline == NEVER
