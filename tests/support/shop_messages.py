"""Classes of Protobuf messages for tests, as protoc generates them: made of a description."""

from __future__ import annotations

from google.protobuf import descriptor_pool, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

__all__ = ["Inner", "Order", "Place"]

_OPTIONAL, _REPEATED = "LABEL_OPTIONAL", "LABEL_REPEATED"


def _field(name: str, number: int, kind: str, label: str = _OPTIONAL, **more: object) -> object:
    return {"name": name, "number": number, "type": f"TYPE_{kind}", "label": label, **more}


_PLACE = {
    "name": "tests/place.proto",
    "package": "tests.shop",
    "syntax": "proto3",
    "message_type": [{"name": "Place", "field": [_field("city", 1, "STRING")]}],
}
_ORDER = {
    "name": "tests/order.proto",
    "package": "tests.shop",
    "syntax": "proto3",
    "dependency": ["tests/place.proto", timestamp_pb2.DESCRIPTOR.name],
    "enum_type": [
        {"name": "State", "value": [{"name": "OPEN", "number": 0}, {"name": "PAID", "number": 1}]}
    ],
    "message_type": [
        {
            "name": "Order",
            "field": [
                _field("id", 1, "INT64"),
                _field("name", 2, "STRING", proto3_optional=True, oneof_index=0),
                _field("state", 3, "ENUM", type_name=".tests.shop.State"),
                _field("place", 4, "MESSAGE", type_name=".tests.shop.Place"),
                _field("tags", 5, "STRING", _REPEATED),
                _field(
                    "prices", 6, "MESSAGE", _REPEATED, type_name=".tests.shop.Order.PricesEntry"
                ),
                _field("at", 7, "MESSAGE", type_name=".google.protobuf.Timestamp"),
                _field("raw", 8, "BYTES"),
                _field("big", 9, "UINT64"),
            ],
            "oneof_decl": [{"name": "_name"}],
            "nested_type": [
                {
                    "name": "PricesEntry",
                    "field": [_field("key", 1, "STRING"), _field("value", 2, "DOUBLE")],
                    "options": {"map_entry": True},
                },
                {"name": "Inner", "field": [_field("n", 1, "INT32")]},
            ],
        }
    ],
}

_pool = descriptor_pool.Default()
for _each in (_PLACE, _ORDER):
    _pool.AddSerializedFile(ParseDict(_each, FileDescriptorProto()).SerializeToString())
Place = GetMessageClass(_pool.FindMessageTypeByName("tests.shop.Place"))
Order = GetMessageClass(_pool.FindMessageTypeByName("tests.shop.Order"))
Inner = GetMessageClass(_pool.FindMessageTypeByName("tests.shop.Order.Inner"))
