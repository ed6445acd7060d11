"""What the command line understands, and what it does with errors."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.cli import main as main_module
from millstream.cli.main import build_parser, main
from millstream.cli.program import CONFIGURATION_VARIABLE, ProgramOptions, run_as_main
from millstream.errors import ConfigurationError

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
    assert main(["demo"]) == 130
