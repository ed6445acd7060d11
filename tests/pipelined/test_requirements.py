"""Which jobs cannot run with tasks that live on, and what they are told."""

from __future__ import annotations

import re

import pytest

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.engines.pipelined.requirements import require_pipelined, why_not_pipelined
from millstream.errors import ProgramError


class _Frame:
    isStreaming = True  # noqa: N815 - Spark's
    schema = type("Schema", (), {"jsonValue": lambda _: {"type": "struct", "fields": []}})()


def test_spark_dataframes_need_epochs() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_spark(_Frame(), type_info=Types.LONG(), name="orders").print()
    graph = env.get_job_graph()
    with pytest.raises(ProgramError) as error:
        require_pipelined(graph)
    assert str(error.value) == why_not_pipelined(graph)
    assert re.search(
        r"^source 'Source: orders' \(.*test_requirements.py:\d+\) is a Spark DataFrame.*"
        r"millstream.execution: epochs",
        str(error.value),
    )


def test_other_sources_do_not() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    graph = env.get_job_graph()
    require_pipelined(graph)
    assert why_not_pipelined(graph) is None
