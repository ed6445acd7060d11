"""The names of a Python prompt."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
s_env.get_config().set_auto_watermark_interval(0)
st_env.get_config().set("execution.target", "local")
table = st_env.from_elements([(1, "hi")], ["a", "b"])
descriptor = TableDescriptor.for_connector("filesystem").schema(
    Schema.new_builder().column("a", DataTypes.BIGINT()).column("b", DataTypes.STRING()).build()
)
st_env.create_temporary_table("t", descriptor.option("path", "out").format("csv").build())
table.execute_insert("t").wait()
print(Rowtime, ObjectPath, Tumble, Types, Counter)
"""


@pytest.mark.extended
def test_a_prompt_has_environments_and_names(tmp_path: Path) -> None:
    command = [sys.executable, "-i", "-m", "millstream.shell"]
    done = subprocess.run(
        command, input=PROGRAM, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "Error" not in done.stderr, done.stderr
    assert "s_env: a StreamExecutionEnvironment" in done.stdout
    assert "Rowtime" in done.stdout
    written = [each.read_text() for each in (tmp_path / "out").iterdir()]
    assert "".join(written) == "1,hi\n"
