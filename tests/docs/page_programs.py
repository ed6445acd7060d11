"""The program of a page, piece by piece, gives what the page says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.integration.job_runs import collect, collected, environment

from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def check_page(
    page: Path, directory: Path, *, parallelism: int, limits: list[int], results: int
) -> None:
    """Run all blocks of ``page`` as one job; ``results`` of them show what ``result`` holds."""
    env = environment(parallelism)
    names: dict[str, Any] = {"__name__": f"docs_{page.stem}", "env": env}
    expected: dict[str, str] = {}
    for number, (program, output) in enumerate(_BLOCK.findall(page.read_text())):
        exec(compile(program, f"{page.name} block {number}", "exec"), names)
        if output:
            expected[f"block-{number}"] = output
            collect(names["result"], directory, f"block-{number}")
    assert len(expected) == results
    graph = env.get_job_graph(page.stem)
    manifest = MiniCluster(graph, directory / "checkpoint", limits=limits).run()
    assert manifest is not None
    assert manifest.final
    for name, output in expected.items():
        lines = sorted(map(str, collected(directory, name)))
        assert "\n".join(lines) + "\n" == output, name
