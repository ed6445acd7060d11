"""Write ``docs/reference/metrics.md``: ``python -m tests.metrics.reference``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.metrics.definitions import DEFINITIONS, SCOPE_FORMATS, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.metrics.definitions import MetricDefinition

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

_INTRODUCTION: Final = """\
# Metrics

This page lists all metrics of a job. `python -m tests.metrics.reference` generates it from the
code. Scopes, names and kinds are Flink's, except where the last column differs.
[Monitoring](../how-to/monitoring.md) describes how to get them.

A counter never goes back; records that are read again after a failure count once. Counters of tasks
and operators begin when the driver starts, as those of Flink begin when the task starts;
`JobClient.get_metrics()` has the totals since the job began. Times are milliseconds.

Metrics of functions (`get_metrics_group()`) have the scope of their operator, followed by the names
of their groups. A `Distribution` is a histogram without quantiles: Prometheus gets a summary with
its count and sum, and its minimum and maximum as the quantiles 0 and 1.
"""

_SCOPES: Final = {
    Scope.JOB_MANAGER: "The driver",
    Scope.JOB: "The job",
    Scope.TASK_MANAGER: "Slots",
    Scope.TASK_MANAGER_JOB: "The job in a slot",
    Scope.TASK: "Tasks: subtasks of a chain of operators",
    Scope.OPERATOR: "Subtasks of an operator",
}
_LABELS: Final = {
    Scope.JOB_MANAGER: "host",
    Scope.JOB: "host, job_id, job_name",
    Scope.TASK_MANAGER: "host, tm_id",
    Scope.TASK_MANAGER_JOB: "host, tm_id, job_id, job_name",
    Scope.TASK: (
        "host, tm_id, job_id, job_name, task_id, task_name, task_attempt_id, task_attempt_num,"
        " subtask_index"
    ),
    Scope.OPERATOR: "those of tasks, operator_id, operator_name",
}


def page() -> str:
    """Return the text of the page."""
    lines = [_INTRODUCTION]
    for scope, title in _SCOPES.items():
        lines += [f"## {title}", "", *_head(scope), ""]
        lines += ["| metric | kind | meaning | in Flink |", "|---|---|---|---|"]
        lines += [_row(each) for each in DEFINITIONS if each.scope is scope]
        lines.append("")
    return "\n".join(lines)


def _head(scope: Scope) -> Iterator[str]:
    option = SCOPE_FORMATS[scope]
    labels = _LABELS[scope].replace("those of tasks, ", "")
    marked = ", ".join(f"`{each}`" for each in labels.split(", "))
    more = "those of tasks, and " if scope is Scope.OPERATOR else ""
    prefix = "flink_" + scope.value.replace(".", "_")
    yield f"Names in Prometheus begin with `{prefix}_`. Variables, and labels there, are"
    yield f"{more}{marked}. `{option.key}` sets identifiers."


def _row(each: MetricDefinition) -> str:
    there = "yes" if each.is_flinks else "no"
    return f"| `{each.path}` | {each.kind.value} | {each.description} | {there} |"


if __name__ == "__main__":
    PAGE.write_text(page())
