"""The program of docs/reference/aggregates.md, piece by piece, gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.integration.job_runs import collect, collected, environment

from millstream.testing.mini_cluster import MiniCluster

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "aggregates.md"
_BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_the_blocks_of_the_page(tmp_path: Path) -> None:
    env = environment(1)
    names: dict[str, Any] = {"__name__": "docs_aggregates", "env": env}
    blocks = _BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 2
    for number, (program, _) in enumerate(blocks):
        exec(compile(program, f"aggregates.md block {number}", "exec"), names)
        collect(names["result"], tmp_path, f"block-{number}")
    MiniCluster(env.get_job_graph("aggregates"), tmp_path / "checkpoint", limits=[2]).run()
    for number, (_, output) in enumerate(blocks):
        lines = sorted(map(str, collected(tmp_path, f"block-{number}")))
        assert "\n".join(lines) + "\n" == output
