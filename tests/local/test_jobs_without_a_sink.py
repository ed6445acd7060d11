"""Jobs without a sink run, as in Flink: their operators do what they do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import environments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]


def note(directory: Path, number: int) -> int:
    (directory / str(number)).touch()
    return number


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_job_without_a_sink_runs(tmp_path: Path, execution: str) -> None:
    settings = {"execution.target": "local", "millstream.execution": execution}
    env = environments(tmp_path, settings)(2)
    place = tmp_path / "seen"
    place.mkdir()
    numbers = env.from_sequence(1, 20)
    numbers.key_by(lambda n: n % 3).map(partial(note, place))
    env.execute("no sink")
    assert {int(path.name) for path in place.iterdir()} == set(range(1, 21))
