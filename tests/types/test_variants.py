"""Variants as bytes: those of Flink, and what Spark's reader makes of them."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import VariantVal

from millstream.errors import TypeMismatchError
from millstream.expressions.functions.json import parse_json
from millstream.types.bitmaps import VariantType
from millstream.types.external_values import from_external, to_external, type_of_value
from millstream.types.variants import Variant, encode_variant, variant_element, variant_field

#: JSON, metadata with value as Flink 2.3.0 makes them of it, and its text of that.
TABLE = Path(__file__).with_name("flink_variants.tsv")


def test_bytes_are_those_of_flink() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 20
    for line in lines:
        text, data, written = line.split("\t")
        found: Any = parse_json(text, duplicates=True)
        assert found.hex() == data, text
        assert Variant(found).to_json() == written


def drawn(draw: random.Random, depth: int = 0) -> Any:
    plain: list[Any] = [None, True, False, 0, -129, 2**31, -(2**63), 10**30]
    plain += [Decimal("1.50"), Decimal("-0.00001"), Decimal(7).scaleb(-38), 1e300, -2.5]
    plain += ["", "äé😀", "x" * 63, "x" * 64, '\x1f\n"\\']
    kind = draw.randrange(4) if depth < 4 else 0
    count = draw.choice([0, 1, 3, 3, 5 if depth else 300])
    if kind == 2:
        return [drawn(draw, depth + 1) for _ in range(count)]
    if kind == 3:
        names = [draw.choice("abÄz") + str(draw.randrange(2 * count)) for _ in range(count)]
        return {name: drawn(draw, depth + 1) for name in names}
    return draw.choice(plain)


@pytest.mark.parametrize("seed", range(12))
def test_oracle_spark_reads_the_same(seed: int) -> None:
    value = [drawn(random.Random(seed))]
    data = encode_variant(value)
    assert Variant(data).to_python() == value
    width = (data[0] >> 6) + 1
    count = int.from_bytes(data[1 : 1 + width], "little")
    last = 1 + width + count * width
    end = last + width + int.from_bytes(data[last : last + width], "little")
    assert VariantVal(data[end:], data[:end]).toPython() == value


def test_parts_are_values_of_their_own() -> None:
    """A part does not carry the names of the whole with it: equal parts are equal."""
    data: Any = parse_json('{"z": 1, "a": {"b": [null, "x"]}}')
    assert variant_field(data, "a") == parse_json('{"b": [null, "x"]}')
    assert variant_field(data, "b") is None
    part = variant_field(encode_variant({"b": [None, "x"]}), "b")
    assert part is not None
    assert variant_element(part, 1) == parse_json("null")
    assert [variant_element(part, at) for at in (-1, 0, 3)] == [None, None, None]
    with pytest.raises(ValueError, match=r"\['c'\] is for objects, and the variant is \[null"):
        variant_field(part, "c")
    with pytest.raises(ValueError, match=r'\[1\] is for arrays, and the variant is \{"a"'):
        variant_element(data, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("01", "no JSON"),
        ("NaN", "no JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' comes twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_values_of_programs() -> None:
    variant = Variant.of({"b": [1, Decimal("2.50")], "a": None})
    assert str(variant) == '{"a":null,"b":[1,2.5]}'
    assert repr(variant) == 'Variant({"a":null,"b":[1,2.5]})'
    assert {variant: 1}[Variant.of({"b": [1, Decimal("2.50")], "a": None})] == 1
    assert variant != Variant.of({"a": None, "b": [1, Decimal("2.50")]}), "as in Flink"
    taken = from_external(VariantType())(variant)
    assert to_external(VariantType())(taken) == variant
    assert str(type_of_value(variant)) == "VARIANT NOT NULL"
    with pytest.raises(TypeMismatchError, match=r"a Variant is needed, as Variant\.of"):
        from_external(VariantType())({"a": 1})
    with pytest.raises(TypeError, match="a set is no value of JSON"):
        Variant.of({1})
