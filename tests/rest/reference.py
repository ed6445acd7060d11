"""Write ``docs/reference/rest.md``: ``python -m tests.rest.reference``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.rest.flink_specification import paths

from millstream.rest.running import ENDPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.rest.app import Endpoint

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"

_INTRODUCTION: Final = """\
# REST API

This page lists all endpoints of the REST API of a driver. `python -m tests.rest.reference`
generates it from the routes. Paths and JSON are those of the [monitoring API of Flink
2.3](https://nightlies.apache.org/flink/flink-docs-release-2.3/docs/ops/rest_api/); each path is
also served below `/v1`. The tables show which endpoints Flink has, too.

    rest.port: 8081

starts the server with the job. [Options](options.md) beginning with `rest.`, `web.` and
`millstream.rest.` configure it. The [web UI](../how-to/monitoring.md) is at `/`.

## Access

- The server listens at 127.0.0.1. At any other address it needs a token
  (`millstream.rest.token-file`) and TLS (`security.ssl.rest.enabled`,
  `millstream.rest.certificate`), or the job does not start. Clients send the token as
  `Authorization: Bearer TOKEN`.
- A request whose `Host` header is neither an IP address nor a known name is refused with 403, as
  is a change that a page of another origin sends.
- `millstream.rest.read-only: true` refuses all changes.
- Options and logs are shown with `******` in the place of secrets.

## Responses

- A failure is `{"errors": ["what happened, and what to do"]}` with status 4xx or 5xx.
- Responses to GET are up to a second old: clients that poll share them. In the long run the
  server uses at most 2 % of a processor, so that no number of clients slows the job; requests
  beyond that wait.
- Savepoint and stop return `{"request-id": ID}` at once. Their result is at
  `/jobs/{jobid}/savepoints/ID`.
- A vertex is a chain of operators. A slot, in Flink a task manager, runs one subtask of each
  vertex; its id is `slot-0`, `slot-1` and so on.
- Logs are the last 8 MB of a file. The driver keeps two files of 4 MB for itself and for each
  slot on its machine until it ends; executors on other machines keep their own. `logs` also lists
  the files that the program's logging writes.
- Numbers that have no meaning here, such as sizes of a JVM's heap, are 0 or -1.
"""

_GROUPS: Final[dict[str, Callable[[str], bool]]] = {
    "The driver": lambda path: True,
    "Slots": lambda path: path.startswith(("/taskmanagers", "/jobs/{jobid}/taskmanagers")),
    "Jobs": lambda path: path.startswith(("/jobs", "/applications")),
    "Checkpoints and savepoints": lambda path: (
        "/checkpoints" in path or "/savepoints" in path or path.endswith("/stop")
    ),
    "Vertices and subtasks": lambda path: "{vertexid}" in path and "/checkpoints" not in path,
}


def _group(path: str) -> str:
    return [title for title, is_in in _GROUPS.items() if is_in(path)][-1]


def page() -> str:
    """Return the text of the page."""
    lines = [_INTRODUCTION]
    for title in _GROUPS:
        lines += [f"## {title}", "", "| request | response | in Flink |", "|---|---|---|"]
        found = [each for each in ENDPOINTS if _group(each.path) == title]
        lines += [_row(each) for each in sorted(found, key=lambda each: (each.path, each.method))]
        lines.append("")
    lines += [_missing()]
    return "\n".join(lines)


def _row(each: Endpoint) -> str:
    there = "yes" if each.is_flinks else "no"
    return f"| `{each.method} {each.path}` | {each.summary} | {there} |"


def _missing() -> str:
    """Return which endpoints of Flink are missing."""
    offered = {(each.method, each.path) for each in ENDPOINTS}
    missing = [f"`{method} {path}`" for method, path in paths() if (method, path) not in offered]
    return (
        "## Not offered\n\nThese endpoints of Flink answer 404 or 405: "
        + ", ".join(sorted(missing))
        + ". So do those that submit, upload and delete JAR files, and those that change a"
        " cluster.\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
