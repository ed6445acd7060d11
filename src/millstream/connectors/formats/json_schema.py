"""Row types of JSON schemas.

What it is: the conversion that Flink's ``JsonRowSchemaConverter`` makes: objects are rows, numbers
of both kinds decimals, so that nothing is lost.
What it is not: a validator: what a schema says of ranges, patterns and required fields is not
looked at.

Read next: ``connectors/formats/message_formats.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from millstream.errors import ConfigurationError
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.types.types import TypeInformation

__all__ = ["type_of_json_schema"]

_FORMATS: Final = {
    "date": Types.SQL_DATE,
    "time": Types.SQL_TIME,
    "date-time": Types.SQL_TIMESTAMP,
}


def type_of_json_schema(text: str) -> TypeInformation:
    """The row type that a JSON schema describes.

    Raises:
        ConfigurationError: it is no JSON schema of an object, or one that no type describes.
    """
    try:
        root = json.loads(text)
    except (TypeError, ValueError) as error:
        message = f"this is no JSON schema: {error}"
        raise ConfigurationError(message) from error
    if not isinstance(root, dict) or root.get("type") != "object":
        message = "a JSON schema of messages must be of type 'object'"
        raise ConfigurationError(message)
    return _Converter(root).convert("", root)


class _Converter:
    """Walks one schema; messages name the place in it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        #: References that are being followed: a schema that contains itself has no type.
        self._open: list[str] = []

    def convert(self, place: str, node: Any) -> TypeInformation:
        """The type of a part of the schema."""
        if not isinstance(node, dict):
            self._refuse(place, "is no schema")
        if "$ref" in node:
            return self._referred(place, str(node["$ref"]))
        if "oneOf" in node:
            return self._one_of(place, list(node["oneOf"]))
        kinds = node.get("type")
        if isinstance(kinds, list):
            return self._one_of(place, [{**node, "type": kind} for kind in kinds])
        convert = getattr(self, f"_{kinds}", None) if isinstance(kinds, str) else None
        if convert is None:
            self._refuse(place, f"is of type {kinds!r}")
        found: TypeInformation = convert(place, node)
        return found

    def _refuse(self, place: str, reason: str) -> NoReturn:
        message = f"the JSON schema has no row type: {place or 'it'} {reason}"
        raise ConfigurationError(message)

    def _referred(self, place: str, reference: str) -> TypeInformation:
        if not reference.startswith("#") or reference in self._open:
            self._refuse(place, f"refers to {reference!r}")
        node: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                node = node.get(step) if isinstance(node, dict) else None
        self._open.append(reference)
        try:
            return self.convert(place, node)
        finally:
            self._open.pop()

    def _one_of(self, place: str, nodes: list[Any]) -> TypeInformation:
        """Of two of which one is null the other; every field can be null."""
        others = [node for node in nodes if node != {"type": "null"} and node.get("type") != "null"]
        if len(others) != 1:
            self._refuse(place, "may be of several types")
        return self.convert(place, others[0])

    def _object(self, place: str, node: dict[str, Any]) -> TypeInformation:
        fields = node.get("properties")
        if not fields:
            self._refuse(place, "is an object without properties")
        types = [self.convert(f"{place}.{name}".lstrip("."), part) for name, part in fields.items()]
        return Types.ROW_NAMED(list(fields), types)

    def _array(self, place: str, node: dict[str, Any]) -> TypeInformation:
        items = node.get("items")
        if not isinstance(items, dict):
            self._refuse(place, "is an array of more than one type of items")
        return Types.OBJECT_ARRAY(self.convert(f"{place}[]", items))

    def _string(self, place: str, node: dict[str, Any]) -> TypeInformation:
        if node.get("contentEncoding") == "base64":
            self._refuse(place, "is base64; read it as a string and decode it")
        return _FORMATS.get(str(node.get("format")), Types.STRING)()

    def _number(self, place: str, node: dict[str, Any]) -> TypeInformation:
        del place, node
        return Types.BIG_DEC()

    _integer = _number

    def _boolean(self, place: str, node: dict[str, Any]) -> TypeInformation:
        del place, node
        return Types.BOOLEAN()
