"""``millstream plan`` and ``millstream checkpoints``, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from millstream.cli.main import main
from millstream.datastream import StreamExecutionEnvironment
from millstream.engines.registry import describe_engine

ROOT = Path(__file__).parents[2]
WORDS = str(ROOT / "examples" / "word_count.py")


def test_plan_prints_stages_and_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg = tmp_path / "plan.svg"
    assert main(["plan", "--svg", str(svg), WORDS]) == 0
    printed = capsys.readouterr().out
    assert "Stage 0, parallelism 1" in printed
    assert "Stage 1, parallelism 2" in printed
    assert str(svg) in printed
    assert ET.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], ["epochs, on Spark", "pipelined would do, too"]),
        (["--target", "local"], ["epochs, on processes of this machine", "would do, too"]),
        (["-D", "millstream.execution=pipelined"], ["pipelined, on Spark", "epochs would do, too"]),
    ],
)
def test_plan_says_on_which_engine_the_job_would_run(
    options: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *options, WORDS]) == 0
    words = capsys.readouterr().out.partition("\nEngine\n")[2]
    assert [word for word in said if word not in words] == []


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_plan_says_why_a_job_cannot_run_pipelined(execution: str) -> None:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.from_collection([1]).print()
    graph = environment.get_job_graph("reads a DataFrame")
    source = next(node for node in graph.nodes.values() if node.kind == "source")
    source.spark_index = 0
    graph.configuration.set_string("millstream.execution", execution)
    words = describe_engine(graph)
    assert ("refused: " if execution == "pipelined" else "not pipelined: ") in words
    assert "a Spark DataFrame" in words


def test_plan_as_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", WORDS]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"]


def test_plan_of_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flights").mkdir()
    job = str(ROOT / "demo" / "job.py")
    assert main(["plan", job, str(tmp_path), str(tmp_path / "out"), "1000"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("exactly-once") == 5
    assert not (tmp_path / "out").exists()


def test_a_program_without_execute_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "job.py"
    program.write_text("print('nothing to do')\n")
    assert main(["plan", str(program)]) == 1
    assert "without calling execute()" in capsys.readouterr().err


def test_a_directory_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "no-such-directory"]) == 1
    assert "there is no directory 'no-such-directory'" in capsys.readouterr().err


def test_a_directory_that_no_job_has_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoints", str(tmp_path)]) == 0
    assert "no job has used this directory" in capsys.readouterr().out
    assert main(["checkpoints", str(tmp_path), "verify"]) == 1
    assert main(["checkpoints", str(tmp_path), "inspect"]) == 1
    assert "no checkpoint" in capsys.readouterr().err
