"""The examples in the documentation of the functions give what they say."""

from __future__ import annotations

import pytest
from tests.support.sql_expressions import evaluate

from millstream.expressions.functions.definition import FunctionKind
from millstream.expressions.functions.registry import function_groups

GROUPS = {group.name: group.definitions for group in function_groups()}


@pytest.mark.parametrize("group", GROUPS)
def test_examples(group: str) -> None:
    wrong = []
    for definition in GROUPS[group]:
        for text, result in definition.examples:
            found = evaluate(text)
            if found != result:
                wrong.append(f"{text} gives {found}, not {result}")
    assert wrong == []


def test_floor_and_ceil_take_times() -> None:
    assert evaluate("FLOOR(TIME '12:44:31' TO MINUTE)") == "12:44:00"
    assert evaluate("CEIL(TIMESTAMP '2024-02-29 13:14:15' TO HOUR)") == "2024-02-29 14:00:00"


def test_every_function_is_documented() -> None:
    for group, definitions in GROUPS.items():
        for definition in definitions:
            assert definition.documentation, (group, definition.name)
            if definition.kind is FunctionKind.SCALAR and definition.reference is not None:
                assert definition.examples, (group, definition.name)
