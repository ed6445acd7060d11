"""The programs of docs/concepts/time.md print what the page says, and its pictures are there."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import collected

from millstream.datastream import DataStream
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "time.md"
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(("program", "output"), BLOCKS)
def test_program_prints_what_the_page_says(
    program: str,
    output: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_here(stream: DataStream) -> Iterator[Any]:
        from tests.integration.job_runs import collect

        collect(stream, tmp_path)
        MiniCluster(stream._environment.get_job_graph("docs"), tmp_path / "checkpoint").run()
        return iter(collected(tmp_path))

    monkeypatch.setattr(DataStream, "execute_and_collect", run_here)
    exec(compile(program, str(PAGE), "exec"), {"__name__": "docs_time"})
    assert capsys.readouterr().out == output


def test_pictures() -> None:
    names = re.findall(r"\]\((../pictures/[^)]*)\)", PAGE.read_text())
    assert len(names) == 3
    for name in names:
        root = ET.parse(PAGE.parent / name).getroot()
        assert root.tag.endswith("svg")
