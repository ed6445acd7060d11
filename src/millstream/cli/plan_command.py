"""``millstream plan job.py``: show stages and operators without running them.

What it is: the program is run until it executes its job.  In place of execution its graph is
taken and shown as text, as JSON in the form of Flink's execution plan, and as an SVG picture.

What it is not: a dry run: sources are not read and Spark is not started.

Read next: ``graph/explain.py``, ``graph/picture.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from millstream.cli.program import run_as_main
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from millstream.cli.program import ProgramOptions
    from millstream.graph.model import JobGraph

__all__ = ["capture_job_graph", "show_plan"]


class _CapturedError(BaseException):
    """Carries the graph out of the program; no ``except Exception`` of the user stops it."""

    def __init__(self, graph: JobGraph) -> None:
        super().__init__()
        self.graph = graph


def capture_job_graph(options: ProgramOptions) -> JobGraph:
    """Run the program up to its first execution and return the graph it would have run.

    Raises:
        ProgramError: the program ends without executing anything.
    """
    from millstream.datastream.environment import StreamExecutionEnvironment

    def capture(
        environment: StreamExecutionEnvironment, job_name: str | None = None, **_: object
    ) -> None:
        raise _CapturedError(environment.get_job_graph(job_name))

    with (
        mock.patch.object(StreamExecutionEnvironment, "execute", capture),
        mock.patch.object(StreamExecutionEnvironment, "execute_async", capture),
    ):
        try:
            run_as_main(options)
        except _CapturedError as captured:
            return captured.graph
    message = f"{options.path} ended without calling execute()"
    raise ProgramError(message)


def show_plan(options: ProgramOptions, *, svg: str | None = None, as_json: bool = False) -> int:
    """Print the plan of a program.

    Args:
        options: the program.
        svg: a file to draw the plan into.
        as_json: print JSON in place of text.
    """
    from millstream.graph.execution_plan import execution_plan
    from millstream.graph.explain import explain
    from millstream.graph.picture import picture

    graph = capture_job_graph(options)
    print((execution_plan if as_json else explain)(graph).rstrip("\n"))
    if svg is not None:
        Path(svg).write_text(picture(graph), encoding="utf-8")
        if not as_json:
            print(f"\nPicture: {svg}")
    return 0
