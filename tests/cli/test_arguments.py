"""What the command line understands, and what it does with errors."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.cli import main as main_module
from millstream.cli.main import build_parser, main
from millstream.cli.run_command import CONFIGURATION_VARIABLE, ProgramOptions, run_as_main
from millstream.errors import ConfigurationError, MillstreamError

if TYPE_CHECKING:
    from pathlib import Path

SHOW = f"""
import json, os, sys
settings = json.loads(os.environ["{CONFIGURATION_VARIABLE}"])
with open(sys.argv[1], "w") as file:
    json.dump([__name__, sys.argv[2:], sys.path[0], settings], file)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(SHOW)
    return path


def test_a_program_gets_its_arguments_and_the_options(program: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown.json"
    exit_code = main(
        [
            "run",
            "--parallelism",
            "3",
            "--checkpoint-dir",
            str(tmp_path / "checkpoints"),
            "--from-savepoint",
            str(tmp_path / "savepoint"),
            "--allow-non-restored-state",
            "--target",
            "local",
            "--pipelined",
            "--master",
            "local[2]",
            "-D",
            "state.backend.type=hashmap",
            str(program),
            str(shown),
            "--own",
            "-D",
        ]
    )
    assert exit_code == 0
    name, arguments, first_path, settings = json.loads(shown.read_text())
    assert name == "__main__"
    assert arguments == ["--own", "-D"]
    assert first_path == str(tmp_path)
    assert settings == {
        "state.backend.type": "hashmap",
        "parallelism.default": "3",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.state-recovery.path": str(tmp_path / "savepoint"),
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.target": "local",
        "millstream.execution": "pipelined",
        "millstream.spark.master": "local[2]",
    }


def test_named_options_win_over_definitions_and_these_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("parallelism.default: 2\nstate.backend.type: rocksdb\n")
    options = ProgramOptions(
        path="job.py",
        parallelism=5,
        configuration_file=str(file),
        definitions={"parallelism.default": "4", "state.backend.type": "hashmap"},
    )
    settings = options.configuration()
    assert settings["parallelism.default"] == "5"
    assert settings["state.backend.type"] == "hashmap"


def test_process_is_left_as_it_was(program: Path, tmp_path: Path) -> None:
    before = (sys.argv, sys.path[:], os.environ.get(CONFIGURATION_VARIABLE))
    run_as_main(ProgramOptions(str(program), [str(tmp_path / "shown.json")]))
    assert (sys.argv, sys.path[:], os.environ.get(CONFIGURATION_VARIABLE)) == before


def test_an_unknown_option_is_refused_before_the_program_runs(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = tmp_path / "shown.json"
    assert main(["run", "-D", "paralelism.default=2", str(program), str(shown)]) == 1
    assert "parallelism.default" in capsys.readouterr().err
    assert not shown.exists()


def test_options_of_the_program_are_taken(program: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown.json"
    assert main(["run", "-D", "my.colour=green", str(program), str(shown)]) == 0
    assert json.loads(shown.read_text())[3] == {"my.colour": "green"}


def test_a_missing_program_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "no-such-job.py"]) == 1
    assert capsys.readouterr().err == (
        "millstream: ConfigurationError: there is no program 'no-such-job.py'\n"
    )


def test_traceback_is_shown_on_request() -> None:
    with pytest.raises(ConfigurationError):
        main(["--traceback", "run", "no-such-job.py"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["run", "--parallelism", "0", "job.py"],
        ["run", "-D", "novalue", "job.py"],
        ["checkpoints"],
        ["checkpoints", "directory", "delete"],
    ],
)
def test_wrong_arguments_leave_with_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2


def test_checkpoints_actions() -> None:
    parse = build_parser().parse_args
    assert parse(["checkpoints", "directory"]).action is None
    assert parse(["checkpoints", "directory", "inspect", "7"]).epoch == 7
    assert parse(["checkpoints", "directory", "inspect"]).epoch is None


def test_interrupt_has_the_shell_s_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "_dispatch", interrupt)
    assert main(["plan", "job.py"]) == 130


def test_options_of_plan_work_behind_the_program_too(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\n"
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "assert sys.argv[1:] == ['--own', '--json'], sys.argv\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute()\n"
    )
    for number, written in enumerate((["--svg", "{}"], ["--svg={}"])):
        svg = tmp_path / f"{number}.svg"
        behind = [each.format(svg) for each in written]
        assert main(["plan", str(program), "--own", *behind, "--", "--json"]) == 0
        assert svg.read_text().startswith("<")


def test_json_behind_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute()\n"
    )
    assert main(["plan", str(program), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["nodes"]) == 2


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    "behind",
    [
        ["--parallelism", "3"],
        ["--parallelism=3"],
        ["-p", "3"],
        ["--checkpoint-dir", "/tmp/x"],
        ["--from-savepoint", "/tmp/x"],
        ["--allow-non-restored-state"],
        ["-D", "a=b"],
        ["-Da=b"],
        ["--target", "local"],
        ["--pipelined"],
        ["--master", "local"],
        ["--config", "x.yaml"],
        ["--traceback"],
    ],
)
def test_options_that_may_be_the_programs_are_refused_behind_it(
    command: str, behind: list[str], program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, str(program), *behind])
    told = capsys.readouterr().err
    text = " ".join(behind)
    assert f"write `millstream {command} {text} {program}`" in told
    assert f"or `millstream {command} {program} -- {text}` to give it to the program" in told


def test_behind_two_dashes_all_is_the_programs(program: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown.json"
    assert main(["run", str(program), str(shown), "--", "-p", "3", "--", "--config"]) == 0
    assert json.loads(shown.read_text())[1] == ["-p", "3", "--", "--config"]


def test_traceback_works_on_both_sides_of_every_command(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.py")
    for command in (
        ["--traceback", "run", missing],
        ["run", "--traceback", missing],
        ["plan", "--traceback", missing],
        ["checkpoints", "--traceback", missing],
        ["checkpoints", missing, "verify", "--traceback"],
    ):
        with pytest.raises(MillstreamError):
            main(command)
