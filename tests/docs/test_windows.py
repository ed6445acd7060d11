"""The program of docs/windows.md, piece by piece, gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.integration.job_runs import collect, collected, environment

from millstream.testing.mini_cluster import MiniCluster

PAGE = Path(__file__).parents[2] / "docs" / "windows.md"
_BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def test_the_blocks_of_the_page(tmp_path: Path) -> None:
    env = environment(1)
    names: dict[str, Any] = {"__name__": "docs_windows", "env": env}
    expected: dict[str, str] = {}
    for number, (program, output) in enumerate(_BLOCK.findall(PAGE.read_text())):
        exec(compile(program, f"windows.md block {number}", "exec"), names)
        if output:
            expected[f"block-{number}"] = output
            collect(names["result"], tmp_path, f"block-{number}")
    assert len(expected) == 5
    manifest = MiniCluster(env.get_job_graph("windows"), tmp_path / "checkpoint", limits=[1]).run()
    assert manifest is not None
    assert manifest.final
    for name, output in expected.items():
        lines = sorted(map(str, collected(tmp_path, name)))
        assert "\n".join(lines) + "\n" == output, name


def test_the_pictures_are_there() -> None:
    pictures = re.findall(r"\]\((pictures/.*?\.svg)\)", PAGE.read_text())
    assert len(pictures) == 2
    for picture in pictures:
        assert (PAGE.parent / picture).read_text().startswith("<svg")
