"""``millstream run --target local``: the example of the first page, and a program that fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]

WORDS = Path(__file__).parents[2] / "examples" / "word_count.py"
WORSE = """
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([3, 2, 1, 0]).map(lambda n: 6 // n).name("share").print()
env.execute("shares")
"""


def test_the_first_example(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["run", "--target", "local", str(WORDS)]) == 0
    assert (
        capfd.readouterr().out == "('be', 1) ('be', 2) ('not', 1) ('or', 1) ('to', 1) ('to', 2)\n"
    )
    assert "checkpoint 0 | 2 records" in caplog.text  # the progress, as on Spark


def test_a_program_that_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "shares.py"
    program.write_text(WORSE)
    assert main(["run", "--target", "local", str(program)]) == 1
    error = capfd.readouterr().err
    (line,) = [line for line in error.splitlines() if line.startswith("millstream: ")]
    assert "UserFunctionError" in line
    assert "'share'" in line
    assert "shares.py:6" in error
    assert "ZeroDivisionError" in error


def test_accumulators_watermarks_and_an_option_without_effect(
    make: Make, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    env = make(2, {"python.executable": "/usr/bin/python3"})
    env.from_sequence(1, 10).uid("numbers").print()
    result = env.execute("numbers")
    assert result.get_accumulator_result("numbers.numRecordsIn") == 10
    assert sorted(int(line.split("> ")[1]) for line in capsys.readouterr().out.splitlines()) == [
        *range(1, 11)
    ]
    assert [m for m in caplog.messages if "python.executable has no effect" in m]
