"""The examples in the documentation of the functions give what they say."""

from __future__ import annotations

import pytest
from tests.support.sql_expressions import evaluate

from millstream.expressions.functions import (
    collection,
    hashing,
    json,
    string,
    temporal,
    value_construction,
)

MODULES = (string, temporal, collection, json, value_construction, hashing)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.functions.name)
def test_examples(module: object) -> None:
    examples = [
        example
        for definition in module.functions.definitions  # type: ignore[attr-defined]
        for example in definition.examples
    ]
    assert {text: evaluate(text) for text, _ in examples} == dict(examples)


def test_floor_and_ceil_take_times() -> None:
    assert evaluate("FLOOR(TIME '12:44:31' TO MINUTE)") == "12:44:00"
    assert evaluate("CEIL(TIMESTAMP '2024-02-29 13:14:15' TO HOUR)") == "2024-02-29 14:00:00"


def test_every_function_is_documented_with_an_example() -> None:
    for module in MODULES:
        for definition in module.functions.definitions:
            assert definition.documentation.endswith((".", "later``.")), definition.name
            assert definition.examples, definition.name
