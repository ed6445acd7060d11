"""The functions of docs/how-to/operator-state.md keep their state and hear of checkpoints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.runtime.operators.stateless import FlatMapFactory, MapFactory
from millstream.testing import OperatorHarness

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operator-state.md"
PAIRS, OUTPUT = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]
LISTENER = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    make = StreamExecutionEnvironment.get_execution_environment
    local = Configuration()
    local.set_string("execution.target", "local")
    local.set_string("millstream.progress", "off")
    monkeypatch.setattr(
        StreamExecutionEnvironment, "get_execution_environment", lambda *_: make(local)
    )
    return {"__name__": "docs_operator_state"}


def test_the_program_prints_what_the_page_says(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(PAIRS, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == OUTPUT


def test_a_record_is_held_back_across_a_checkpoint(names: dict[str, Any]) -> None:
    exec(compile(PAIRS, str(PAGE), "exec"), names)
    with OperatorHarness(FlatMapFactory(names["InPairs"]())) as harness:
        harness.process(1)
        harness.end_epoch()
        harness.process(2)
        assert harness.outputs == [(1, 2)]


def test_the_listener_is_one(names: dict[str, Any]) -> None:
    exec(compile(LISTENER, str(PAGE), "exec"), names)
    with OperatorHarness(MapFactory(names["Confirming"]()), long_lived=True) as harness:
        harness.end_epoch()
        assert harness.operator.committed(0) is None
        harness.operator.aborted(1)
