"""Decimals in JSON and CSV: read as they stand, or refused; never other numbers."""

from __future__ import annotations

import json
import random
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from millstream.common.typeinfo import Types
from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions
from millstream.connectors.formats.csv_messages import CsvRowDeserializationSchema
from millstream.connectors.formats.json_format import JsonLinesFormat
from millstream.connectors.formats.json_messages import JsonRowDeserializationSchema

if TYPE_CHECKING:
    from millstream.types.types import TypeInformation

#: What pyarrow makes other numbers of, in columns of decimal128(38, 18).
WRONG = ["123456789012345678901234567890.5", "1E25", "12345678901234567890123456789012345678"]


def message(text: str) -> bytes:
    return f'{{"n": {text}, "id": "12345678901234567890", "more": [1.0, {{"x": 1e3}}]}}'.encode()


def read(kind: TypeInformation, *texts: str) -> list[Any]:
    record = Types.ROW_NAMED(["n"], [kind])
    schema = JsonRowDeserializationSchema(record)
    columns = schema.deserialize_columns([message(text) for text in texts])
    assert columns is not None
    found = [row[0] for row in record.from_arrow(columns)]
    alone: Any = [schema.deserialize(message(text)) for text in texts]
    assert [row[0] for row in alone] == found
    assert [str(row[0]) for row in alone] == list(map(str, found))
    return found


@pytest.mark.parametrize("kind", [Types.BIG_DEC(), Types.DECIMAL(38, 20)])
def test_more_than_eighteen_digits_behind_the_point(kind: TypeInformation) -> None:
    texts = ["0.12345678901234567891", "-1e-20", "1.5", '"0.00000000000000000001"', "null"]
    assert read(kind, *texts) == [
        None if text == "null" else Decimal(text.strip('"')) for text in texts
    ]


def test_any_size() -> None:
    texts = [*WRONG, "1" * 300 + "." + "2" * 300, "1e500", "-1e-500", f'"{WRONG[0]}"']
    assert read(Types.BIG_DEC(), *texts) == [Decimal(text.strip('"')) for text in texts]


def test_equal_numbers_have_equal_texts_in_whatever_company() -> None:
    alone = [str(read(Types.BIG_DEC(), text)[0]) for text in ("1.50", '"1.50"', "-0.0", "1e3")]
    beside = read(Types.BIG_DEC(), "1.50", '"1.50"', "-0.0", "1e3", WRONG[0])
    assert alone == ["1.5", "1.5", "0", "1000"] == list(map(str, beside[:-1]))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((Types.DECIMAL(38, 18), text) for text in (*WRONG, "0.1234567890123456789", "true")),
        *((Types.DECIMAL(10, 5), text) for text in ("9999999999", "0.000001", "1e6", '"100000"')),
        (Types.DECIMAL(38, 30), "12345678901"),
        (Types.BIG_INT(), "0.5"),
        *((Types.BIG_DEC(), text) for text in ("NaN", '"NaN"', '"1_0"', '"x"', '" 1"', "[1]")),
        (Types.BIG_DEC(), "1e9999999999999999999999"),
        (Types.LONG(), "1.5"),
    ],
)
def test_what_does_not_fit_is_refused(kind: TypeInformation, text: str) -> None:
    schema = JsonRowDeserializationSchema(Types.ROW_NAMED(["n"], [kind]))
    assert schema.deserialize_columns([message("1"), message(text)]) is None
    with pytest.raises((ValueError, pa.ArrowException)):
        schema.deserialize(message(text))


def test_what_is_too_deep_is_refused() -> None:
    schema = JsonRowDeserializationSchema(Types.ROW_NAMED(["n"], [Types.BIG_DEC()]))
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises((ValueError, pa.ArrowException)):
        schema.deserialize(f'{{"n": {WRONG[0]}, "x": {deep}}}'.encode())


def test_decimals_within_lists_and_rows() -> None:
    inner = Types.ROW_NAMED(["n", "m"], [Types.BIG_DEC(), Types.DOUBLE()])
    record = Types.ROW_NAMED(["parts", "i"], [Types.LIST(inner), Types.LONG()])
    schema = JsonRowDeserializationSchema(record)
    text = f'{{"parts": [{{"n": {WRONG[0]}, "m": 0.1}}, null], "i": {2**62}}}'
    row: Any = schema.deserialize(text.encode())
    assert row == record.from_arrow(record.to_arrow([([(Decimal(WRONG[0]), 0.1), None], 2**62)]))[0]


def test_random_decimals_agree_with_python() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    kind, held = Types.DECIMAL(38, 18), 0
    schema = JsonRowDeserializationSchema(Types.ROW_NAMED(["n"], [kind]))
    for _ in range(300):
        digits = "".join(dice.choices("0123456789", k=dice.randint(1, 40))).lstrip("0") or "0"
        behind = "".join(dice.choices("0123456789", k=dice.randint(1, 20)))
        exponent = dice.choice(["", "", f"e{dice.randint(-25, 25)}"])
        text = f"{dice.choice(['', '-'])}{digits}.{behind}{exponent}"
        with localcontext(prec=200):
            number = Decimal(text)
            fits = abs(number) < Decimal(10) ** 20 and number * 10**18 % 1 == 0
        try:
            found: Any = schema.deserialize(message(text))
        except (ValueError, pa.ArrowException):
            assert not fits, text
        else:
            assert fits, text
            assert found[0] == number
            held += 1
    assert 0 < held < 300


def test_json_files() -> None:
    columns = {"n": Types.DECIMAL(38, 18), "b": Types.BIG_DEC(), "day": Types.SQL_DATE()}
    parse = JsonLinesFormat(columns).parser("numbers.json", b"")
    table = parse(b'{"n": 1.5, "b": 1e30, "day": 1}\n\n{"b": 0.10}\n')
    assert table.column("n").to_pylist() == [Decimal("1.5"), None]
    assert table.column("b").to_pylist() == [str(10**30), "0.1"]
    for text in WRONG:
        with pytest.raises(ValueError, match="does not fit"):
            parse(json.dumps({"n": text}).replace('"' + text + '"', text).encode())


def test_csv_files_and_messages() -> None:
    columns = {"n": Types.DECIMAL(38, 18), "l": Types.LIST(Types.DECIMAL(38, 18))}
    options = CsvOptions(header=False, multi_line=False)
    parse = CsvFormat(columns, options=options).parser("numbers.csv", b"")
    table = parse(b"1.5,1;2.5\n,\n")
    assert table.to_pylist() == [
        {"n": Decimal("1.5"), "l": [Decimal(1), Decimal("2.5")]},
        {"n": None, "l": []},
    ]
    assert parse(b'NA,\n"",\nnull,\n').column("n").to_pylist() == [None] * 3
    for text in WRONG:
        with pytest.raises(pa.ArrowInvalid):
            parse(f"{text},\n".encode())
        with pytest.raises(pa.ArrowInvalid):
            parse(f"1,{text}\n".encode())
    schema = CsvRowDeserializationSchema(Types.ROW_NAMED(["n"], [Types.DECIMAL(10, 5)]))
    assert schema.deserialize_columns([b"9999999999"]) is None


def test_nulls_of_csv() -> None:
    def numbers(options: CsvOptions) -> list[Any]:
        parse = CsvFormat({"n": Types.DECIMAL(5, 1)}, options=options).parser("numbers.csv", b"")
        found: list[Any] = parse(b"-\n1.5\n").column("n").to_pylist()
        return found

    for null_strings in (True, False):
        options = CsvOptions(header=False, null_values=("-",), null_strings=null_strings)
        assert numbers(options) == [None, Decimal("1.5")]
    with pytest.raises(pa.ArrowInvalid):
        numbers(CsvOptions(header=False))
    quoted = CsvOptions(header=False, null_values=("-",), null_in_quotes=False)
    parse = CsvFormat({"n": Types.DECIMAL(5, 1)}, options=quoted).parser("numbers.csv", b"")
    with pytest.raises(pa.ArrowInvalid):
        parse(b'"-"\n')
