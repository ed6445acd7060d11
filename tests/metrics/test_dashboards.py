"""Every query of the dashboard and of the alerts names metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from millstream.metrics.definitions import DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY: Final = Path(__file__).parents[2] / "deploy" / "monitoring"
NAMES: Final = {
    "flink_" + re.sub(r"\W", "_", f"{each.scope.value}.{each.path}") for each in DEFINITIONS
}
LABELS: Final = {
    *("host", "tm_id", "job_id", "job_name", "task_id", "task_name", "task_attempt_id"),
    *("task_attempt_num", "subtask_index", "operator_id", "operator_name", "topic", "partition"),
}
_SELECTOR: Final = re.compile(r"\{([^}]*)\}")
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def dashboard() -> Any:
    return json.loads((DIRECTORY / "grafana-dashboard.json").read_text())


def rules() -> list[Any]:
    loaded = yaml.safe_load((DIRECTORY / "prometheus-alerts.yml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str, str]]:
    """Title, expression, and the texts that name labels."""
    found = dashboard()
    for panel in found["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"], ""
    for rule in rules():
        texts = rule["annotations"]["summary"] + rule["annotations"]["description"]
        yield rule["alert"], rule["expr"], texts.replace("$labels.", "")


def labels_of(expression: str, texts: str) -> set[str]:
    found = {each for inner in _SELECTOR.findall(expression) for each in _MATCHER.findall(inner)}
    for inner in re.findall(r"\bby \(([^)]*)\)", expression):
        found |= {each.strip() for each in inner.split(",")}
    return found | set(re.findall(r"\{\{\s*(\w+)\s*\}\}", texts))


@pytest.mark.parametrize(("title", "expression", "texts"), [*queries()])
def test_queries_name_what_exists(title: str, expression: str, texts: str) -> None:
    metrics = set(re.findall(r"\bflink_\w+", expression))
    assert metrics, title
    assert metrics <= NAMES
    assert labels_of(expression, texts) <= LABELS
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)


def test_a_query_with_another_name_is_found() -> None:
    assert labels_of('sum by (a, b) (x{c=~"$job", d="e"})', "{{f}} {{ g }}") == set("abcdfg")


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_alerts_say_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["description"].count(".") >= 1
