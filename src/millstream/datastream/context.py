"""The context that a program is run in, when not simply by ``python job.py``.

What it is: how the command line gives a program its defaults (parallelism, checkpoint directory)
and, to show a plan, catches the job instead of running it.  As with Flink's client, what the
program itself sets wins over these defaults.

What it is not: part of what programs use.

Read next: ``datastream/environment.py``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from millstream.datastream.running_jobs import note_use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.execution.job_client import JobHandle
    from millstream.graph.model import JobGraph

__all__ = [
    "ExecutionContext",
    "ProgramAbortError",
    "Submitter",
    "capture_job_graphs",
    "current_context",
    "execution_context",
]


class Submitter(Protocol):
    """Starts a job; ``millstream.engines.registry.submit`` is one."""

    def __call__(self, job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle:
        """Check and start the job."""


class ProgramAbortError(BaseException):
    """Ends a program at ``execute``, once its job has been caught.

    Not an Exception, so that a program's own ``except Exception`` does not keep it.
    """


@dataclass(slots=True)
class ExecutionContext:
    """Defaults of the process."""

    #: Configuration keys and values that programs may override.
    defaults: dict[str, str] = field(default_factory=dict)
    #: Starts jobs; None: the engine that the job names.
    submitter: Submitter | None = None


_current = ExecutionContext()


def current_context() -> ExecutionContext:
    """The context in force."""
    return _current


@contextlib.contextmanager
def execution_context(
    defaults: dict[str, str] | None = None, submitter: Submitter | None = None
) -> Iterator[ExecutionContext]:
    """Run programs with other defaults or another way to start jobs.

    Args:
        defaults: configuration keys and values that programs may override.
        submitter: starts jobs; by default the engine that the job names.
    """
    global _current  # noqa: PLW0603 - one per process, as the environment needs to find it
    before = _current
    _current = ExecutionContext(dict(defaults or {}), submitter)
    try:
        yield _current
    finally:
        _current = before


@contextlib.contextmanager
def capture_job_graphs(defaults: dict[str, str] | None = None) -> Iterator[list[JobGraph]]:
    """Catch the job of a program instead of running it.

    The program ends at its first ``execute``; the list given then holds that job's graph.

    Args:
        defaults: configuration keys and values that programs may override.
    """
    caught: list[JobGraph] = []
    note_use()  # whoever captures says himself that nothing was executed

    def catch(job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle:
        del spark_dataframes
        caught.append(job_graph)
        raise ProgramAbortError

    with execution_context(defaults, catch), contextlib.suppress(ProgramAbortError):
        yield caught
