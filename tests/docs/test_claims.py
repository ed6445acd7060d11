"""Numbers and lists on pages that would go out of date without anybody noticing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.recovery import test_kill_driver

ROOT = Path(__file__).parents[2]
NUMBERS = ["no", "one", "two", "three", "four", "five", "six"]
PARSER = ROOT / "src" / "millstream" / "sql" / "parser"


def page(name: str) -> str:
    """The text of a page in one line."""
    return " ".join((ROOT / "docs" / name).read_text().split())


def test_seeds_and_crash_points_are_those_of_the_tests() -> None:
    text = page("concepts/guarantees.md")
    assert f"with {NUMBERS[len(test_kill_driver.SEEDS)]} seeds" in text
    assert f"on Spark (at {NUMBERS[test_kill_driver.SPARK_POINTS]} of them" in text


def refused_phrases() -> list[str]:
    """What the parser refuses as Flink's that is not here, where it is a text in the source."""
    found = set()
    for path in PARSER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "unsupported"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                found.add(str(node.args[0].value))
    return sorted(found)


@pytest.mark.parametrize("phrase", refused_phrases())
def test_what_the_parser_refuses_is_on_the_page(phrase: str) -> None:
    plain = page("reference/sql.md").replace("`", "").lower()
    assert phrase.lower() in plain
