"""Where functions differ from Flink 2.3 by intent, each with its reason."""

from __future__ import annotations

import pytest
from tests.support.sql_expressions import evaluate

from millstream.errors import ExpressionError, ProgramError

LOS_ANGELES = "America/Los_Angeles"


@pytest.mark.parametrize(
    ("expression", "zone", "result", "flink"),
    [
        # Before 1970 Flink's division truncates: hours below zero, days and months one off.
        ("EXTRACT(HOUR FROM TIMESTAMP '1969-03-01 13:14:15.123')", "UTC", "13", "-10"),
        ("EXTRACT(MINUTE FROM TIMESTAMP '1969-03-01 13:14:15.123')", "UTC", "14", "-45"),
        ("EXTRACT(DAY FROM TIMESTAMP '1969-03-01 13:14:15.123')", "UTC", "1", "2"),
        ("EXTRACT(YEAR FROM TO_TIMESTAMP_LTZ(0, 3))", LOS_ANGELES, "1969", "1970"),
        ("EXTRACT(HOUR FROM TO_TIMESTAMP_LTZ(0, 3))", LOS_ANGELES, "16", "-8"),
        (
            "FLOOR(TIMESTAMP '1969-02-28 13:14:15' TO MONTH)",
            "UTC",
            "1969-02-01 00:00:00",
            "1969-03-01 00:00:00",
        ),
        # An empty match lies between characters, not between the halves of a pair of surrogates.
        ("REGEXP_REPLACE('a😀b', '', '-')", "UTC", "-a-😀-b-", "-a-?-?-b-"),
        # Flink's smallest number of milliseconds, taken for a date.
        ("TO_DATE('yesterday', 'yyyy-MM-dd')", "UTC", "NULL", "5471-09-27"),
        # Milliseconds taken for days.
        ("TIMESTAMPDIFF(MONTH, TIME '10:00:00', TIME '12:30:00')", "UTC", "0", "295693"),
        ("FLOOR(TIME '10:00:00' TO MONTH)", "UTC", "10:00:00", "09:59:59"),
        # A time of day has 24 hours; the digits of years are not lost.
        ("CEIL(TIME '23:30:00' TO HOUR)", "UTC", "00:00:00", "24:00:00"),
        ("DATE '9999-12-31' + INTERVAL '1' DAY", "UTC", "10000-01-01", "0000-01-01"),
        # A NULL that Flink's constant folding loses.
        ("ARRAY[1, 2, 3][4]", "UTC", "NULL", "-1"),
        ("MAP['a', 1]['x']", "UTC", "NULL", "-1"),
    ],
)
def test_right_where_flink_is_not(expression: str, zone: str, result: str, flink: str) -> None:
    assert evaluate(expression, zone) == result
    assert result != flink


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        # Types that Flink's code generator does not take, or a NULL in what it calls NOT NULL.
        ("SUBSTRING('hello', CAST(2 AS BIGINT))", "ello"),
        ("LPAD('hi', -1, 'x')", "NULL"),
        ("RPAD('hi', 4, '')", "NULL"),
        ("REGEXP_REPLACE('abc', '(', 'x')", "NULL"),
        ("""JSON_VALUE('{"a": 1}', '$.a' RETURNING DOUBLE)""", "1.0"),
        # Flink 2.3.0 lacks a class for some filters.
        ("""JSON_QUERY('{"a":[{"b":1},{"c":3}]}', '$.a[?(@.c)]')""", '[{"c":3}]'),
        ("""JSON_QUERY('[{"b":1},{"b":2}]', '$[?(@.b in [2, 3])]')""", '[{"b":2}]'),
    ],
)
def test_gives_a_result_where_flink_fails(expression: str, result: str) -> None:
    assert evaluate(expression) == result


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("REGEXP_SUBSTR('ab', '(?<=a{1,2})b')", "is not supported"),
        ("REGEXP_SUBSTR('aaaa', 'a{2}{2}')", "a quantifier behind a quantifier"),
        (r"REGEXP('a', '\X')", r"\\X is not supported"),
        (r"REGEXP('a', '\p{InGreek}')", r"\{InGreek\} is not supported"),
        ("PRINTF('%tY', TIMESTAMP '2024-01-02 03:04:05')", "use DATE_FORMAT"),
        ("PRINTF('%h', 'a')", "only supported for integers"),
        ("FROM_UNIXTIME(0, 'zzzz')", "name of the time zone"),
        ("TO_TIMESTAMP('2024-01', 'YYYY-ww')", "weeks are not supported"),
        ("TO_TIMESTAMP('2024', 'ppH')", "not supported"),
        ("""JSON_VALUE('{"a":[1]}', '$.a.sum()')""", r"sum\(\) is not supported"),
        ("""JSON_QUERY('[{"a":"x"}]', '$[?(@.a =~ "x")]')""", "=~ of JSON paths is not supported"),
    ],
)
def test_refuses_by_name_what_flink_does(expression: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        evaluate(expression)


@pytest.mark.parametrize(
    "expression", ["PRINTF('%s', ARRAY[1])", "PRINTF('%s', MAP['a', 1])", "PRINTF('%s', x'00')"]
)
def test_printf_takes_no_values_whose_text_flink_draws_at_random(expression: str) -> None:
    with pytest.raises(ProgramError, match="PRINTF does not take"):
        evaluate(expression)
