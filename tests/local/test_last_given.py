"""A worker process that user code ends is named with operator and record, or timer, it had last."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments

from millstream.common import Types
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RestartStrategies,
)
from millstream.errors import JobError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream

    Build = Callable[[DataStream], DataStream]


def exits(number: int) -> int:
    if number == 33:
        os._exit(7)
    return number


def kills(number: int) -> Iterator[int]:
    if number == 33:
        os.kill(os.getpid(), signal.SIGKILL)
    yield number


class Crashes(MapFunction):
    """As a library in C may: no code of Python's hears of it."""

    def map(self, value: int) -> int:
        if value == 33:
            ctypes.CDLL(None).kill(os.getpid(), signal.SIGKILL)
        return value


class Timed(KeyedProcessFunction):
    """Ends its process in the timer for 33."""

    def __init__(self, ends: Callable[[int], object]) -> None:
        self.ends = ends

    def process_element(self, value: int, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
        self.ends(timestamp)
        yield ctx.get_current_key()


class ToRecord(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def timed(ends: Callable[[int], object]) -> Build:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ToRecord())
    return lambda stream: (
        stream.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda number: number % 3)
        .process(Timed(ends), Types.LONG())
        .name("last")
    )


class Keyed(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        yield exits(value)


BY_PYTHON: dict[str, tuple[Build, str]] = {
    "map": (lambda s: s.map(exits, Types.LONG()).name("last"), "exited with code 7"),
    "flat_map": (lambda s: s.flat_map(kills, Types.LONG()).name("last"), "SIGKILL"),
    "keyed": (
        lambda s: s.key_by(lambda n: n % 3).process(Keyed(), Types.LONG()).name("last"),
        "exited with code 7",
    ),
}


def lost(directory: Path, execution: str, build: Build, restarts: int = 0) -> str:
    settings = {
        "execution.target": "local",
        "millstream.execution": execution,
        # None before the crash, which would end the careful mode of a restart.
        "execution.checkpointing.interval": "1 min",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
    }
    env = environments(directory, settings)(2, settings)
    if restarts:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    build(env.from_sequence(1, 60)).sink_to(BlackholeSink())
    with pytest.raises((WorkerLostError, JobError)) as caught:
        env.execute("lost")
    return str(caught.value)


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
@pytest.mark.parametrize("name", BY_PYTHON)
def test_operator_and_record_are_named(name: str, execution: str, tmp_path: Path) -> None:
    build, ended = BY_PYTHON[name]
    message = lost(tmp_path, execution, build)
    assert ended in message
    found = re.search(r"it was last in operator '(.*)' \((.*):\d+\) with record 33$", message)
    assert found is not None, message
    assert found.groups() == ("last", "test_last_given.py")


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_crash_names_the_operator_and_when_it_comes_again_the_record(
    execution: str, tmp_path: Path
) -> None:
    def build(stream: DataStream) -> DataStream:
        return stream.map(lambda n: n, Types.LONG()).name("before").map(Crashes()).name("last")

    first = lost(tmp_path / "1", execution, build)
    assert re.search(r"last in operator 'last' \(test_last_given.py:\d+\) with \d+ records$", first)
    again = lost(tmp_path / "2", execution, build, restarts=1)
    assert re.search(r"last in operator 'last' \(test_last_given.py:\d+\) with record 33$", again)


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_the_timer_is_named_in_which_python_code_ends_the_process(
    execution: str, tmp_path: Path
) -> None:
    message = lost(tmp_path, execution, timed(exits))
    found = re.search(
        r"last in operator 'last' \((.*):\d+\) with the timer for 33 of key 0$", message
    )
    assert found is not None, message


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_crash_in_a_timer_names_the_watermark_and_when_it_comes_again_the_timer(
    execution: str, tmp_path: Path
) -> None:
    first = lost(tmp_path / "1", execution, timed(Crashes().map))
    assert re.search(r"last in operator 'last' \(test_last_given.py:\d+\) at watermark \d+$", first)
    again = lost(tmp_path / "2", execution, timed(Crashes().map), restarts=1)
    assert again.endswith(") with the timer for 33 of key 0"), again


def test_what_a_signal_with_a_handler_interrupts_is_noted_no_longer(tmp_path: Path) -> None:
    def signals(number: int) -> int:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.kill(os.getpid(), signal.SIGUSR1)
        return exits(number)

    message = lost(tmp_path, "epochs", lambda s: s.map(signals, Types.LONG()).name("last"))
    assert message.endswith(" with record 33"), message
