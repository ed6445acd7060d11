"""Flink's OpenAPI specification of its monitoring API, for tests that compare responses with it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

_FILE = Path(__file__).with_name("flink_rest_v1.yml")
#: Where Flink's own responses are not what its specification says: these are bare lists.
_BARE_LISTS = {"MetricCollectionResponseBody": "Metric", "AggregatedMetricsResponseBody": "Metric"}


@cache
def specification() -> dict[str, Any]:
    """Return the specification."""
    found: dict[str, Any] = yaml.safe_load(_FILE.read_text())
    # Flink writes its hexadecimal digits, as those of a job.
    found["components"]["schemas"]["ApplicationID"] = {"type": "string"}
    return found


def schema_of(method: str, path: str, status: int) -> dict[str, Any] | None:
    """Return the schema of a response; None: it has no content."""
    responses = specification()["paths"][path][method.lower()]["responses"]
    content = responses[str(status)].get("content")
    return None if content is None else dict(content["application/json"]["schema"])


def problems(method: str, path: str, status: int, body: Any) -> list[str]:
    """Return how a response differs from the specification.

    What is null is left out, as Flink writes null for what is not there, and its specification
    does not say so.
    """
    schema = schema_of(method, path, status)
    if schema is None:
        return [] if body in ({}, None) else [f"unexpected body {body!r}"]
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in _BARE_LISTS:
        schema = {"type": "array", "items": _reference(_BARE_LISTS[name])}
        if name.startswith("Aggregated"):
            schema = {"type": "array", "items": {"type": "object", "required": ["id"]}}
    if isinstance(schema.get("type"), str) and schema["type"] == "array":
        schema = {key: value for key, value in schema.items() if key != "properties"}
    whole = {**schema, "components": specification()["components"]}
    found = Draft202012Validator(whole).iter_errors(without_nulls(body))
    return [f"{each.json_path}: {each.message[:300]}" for each in found]


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def without_nulls(value: Any) -> Any:
    """Return the value without names whose value is null."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def names_of(method: str, path: str, status: int) -> set[str]:
    """Return the names that a response may have, with those that lead to them: ``plan.nodes.id``.

    Lists count as what is in them, and mappings with any name as ``*``.
    """
    schema = schema_of(method, path, status)
    return set() if schema is None else set(_names(schema, "", ()))


def _names(schema: dict[str, Any], prefix: str, seen: tuple[str, ...]) -> list[str]:
    reference = schema.get("$ref", "")
    if reference:
        name = reference.rpartition("/")[2]
        if name in seen:
            return []
        found = specification()["components"]["schemas"][name]
        more = _mapped(found)
        return [each for one in (found, *more) for each in _names(one, prefix, (*seen, name))]
    names: list[str] = []
    for each in (*schema.get("allOf", ()), *schema.get("oneOf", ())):
        names += _names(each, prefix, seen)
    for name, each in schema.get("properties", {}).items():
        names += [f"{prefix}{name}", *_names(each, f"{prefix}{name}.", seen)]
    if isinstance(schema.get("additionalProperties"), dict):
        names += [f"{prefix}*", *_names(schema["additionalProperties"], f"{prefix}*.", seen)]
    if "items" in schema:
        names += _names(schema["items"], prefix, seen)
    return names


def _mapped(schema: dict[str, Any]) -> list[dict[str, Any]]:
    mapping = schema.get("discriminator", {}).get("mapping", {})
    return [{"$ref": reference} for reference in mapping.values()]


def paths() -> list[tuple[str, str]]:
    """Return method and path of everything in the specification."""
    return [
        (method.upper(), path)
        for path, methods in specification()["paths"].items()
        for method in methods
        if re.fullmatch("get|post|patch|put|delete", method)
    ]
