"""``millstream plan job.py``: show a job's graph, engine and start without running it.

The program runs until it executes its job.  In place of execution its graph is taken and shown as
text, as JSON in the form of Flink's execution plan, and as an SVG picture.  Sources are not read
and Spark is not started.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.run_command import run_as_main
from millstream.errors import CheckpointError, DirectoryError, ProgramError

if TYPE_CHECKING:
    from millstream.cli.run_command import ProgramOptions
    from millstream.graph.model import JobGraph


def capture_job_graph(options: ProgramOptions) -> JobGraph:
    """Run the program up to its first execution and return the graph it would have run.

    Raises:
        ProgramError: the program ends without executing anything.
    """
    from millstream.datastream.environment import capture_job_graphs

    with capture_job_graphs() as graphs:
        run_as_main(options)
    if graphs:
        return graphs[0]
    message = f"{options.path} ended without calling execute()"
    raise ProgramError(message)


def _start(graph: JobGraph) -> list[str]:
    """How the job would start now, or why it would be refused."""
    from millstream.execution.job import planned_start

    try:
        return planned_start(graph)
    except (CheckpointError, DirectoryError) as error:
        return f"refused: {error}".splitlines()


def show_plan(options: ProgramOptions, *, svg: str | None = None, as_json: bool = False) -> int:
    """Print the plan of a program.

    Args:
        options: the program.
        svg: a file to draw the plan into.
        as_json: print JSON in place of text.
    """
    from millstream.engines.registry import engine_words
    from millstream.graph.explain import execution_plan, explain, picture

    graph = capture_job_graph(options)
    if as_json:
        print(execution_plan(graph).rstrip("\n"))
    else:
        print(explain(graph))
        print(engine_words(graph))
        print("\n".join(["\nStart", *(f"  {line}" for line in _start(graph))]))
    if svg is not None:
        Path(svg).write_text(picture(graph), encoding="utf-8")
        if not as_json:
            print(f"\nPicture: {svg}")
    return 0
