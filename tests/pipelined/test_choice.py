"""How a job comes to run on the pipelined engine, and which options have an effect there."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import pytest

from millstream.cli.main import main
from millstream.common import Configuration, Types
from millstream.configuration import flink_options
from millstream.errors import ConfigurationError, ProgramError
from millstream.runtime.pipelined.main_loop import flush_after

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]

PROGRAM = """
import os, sys
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
slots = env.from_collection([1, 2]).map(lambda n: (n, os.getppid()), Types.PICKLED_BYTE_ARRAY())
with slots.key_by(lambda pair: 0).map(lambda pair: pair[0]).execute_and_collect() as found:
    print(list(found))
"""


def test_the_command_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with caplog.at_level(logging.DEBUG):
        assert main(["run", "--target", "local", "--pipelined", str(program)]) == 0
    assert capfd.readouterr().out == "[1, 2]\n"


def test_only_two_ways_to_run() -> None:
    with pytest.raises(ConfigurationError, match=r"millstream\.execution is 'streams'; it must"):
        Configuration({"millstream.execution": "streams"})


OPTIONS = {
    "execution.checkpointing.max-concurrent-checkpoints": "2",
    "execution.buffer-timeout": "20",
    "heartbeat.timeout": "5000",
    "slot.request.timeout": "60000",
}


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_options_are_said_to_have_no_effect_only_where_it_is_so(
    execution: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink_options, "_said", set())  # once per process, in which other tests ran
    Configuration({**OPTIONS, "millstream.execution": execution})
    told = [message for message in caplog.messages if "has no effect" in message]
    assert len(told) == (4 if execution == "epochs" else 0)


def test_spark_dataframes_need_epochs(make: Make) -> None:
    class Frame:
        isStreaming = True  # noqa: N815 - Spark's
        schema = type("Schema", (), {"jsonValue": lambda _: {"type": "struct", "fields": []}})()

    env = make(1)
    env.from_spark(Frame(), type_info=Types.LONG(), name="orders").print()
    with pytest.raises(
        ProgramError, match=r"'Source: orders' .*test_choice.py.*millstream\.execution: epochs"
    ):
        env.execute()


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 0.005),
        ({"execution.buffer-timeout": "100"}, 0.1),
        ({"execution.buffer-timeout": "0"}, 0.0),
        ({"execution.buffer-timeout.enabled": "false"}, math.inf),
    ],
)
def test_records_are_gathered_no_longer_than_the_buffer_timeout(
    settings: dict[str, str], seconds: float
) -> None:
    assert flush_after(Configuration(settings)) == seconds
