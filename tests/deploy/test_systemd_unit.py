"""The systemd unit: its options are known, and its command line is one of ours."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from millstream.cli.main import build_parser

UNIT: Final = Path(__file__).parents[2] / "deploy" / "systemd" / "millstream@.service"


def test_the_command_is_a_supervised_run_without_restart_of_failed_jobs() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"].replace("%i", "orders"))
    assert program == "/opt/millstream/venv/bin/millstream"
    options = build_parser().parse_args(arguments)
    assert (options.command, options.supervise) == ("run", True)
    assert options.config == "/etc/millstream/orders.yaml"
    assert options.program == "/opt/millstream/jobs/orders.py"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"].split() == ["1", "2"]
    assert service["User"] != "root"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_it(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/millstream/venv/bin/millstream", "/bin/true")
    unit = tmp_path / "millstream@orders.service"
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
