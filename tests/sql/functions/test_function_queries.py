"""Functions within queries: from the text of a statement to rows."""

from __future__ import annotations

import pytest
from tests.support.query_running import environment

from millstream.common import Row
from millstream.errors import ValidationError


def rows(query: str) -> list[tuple[object, ...]]:
    with environment().execute_sql(query).collect() as found:
        return [tuple(row) for row in found if isinstance(row, Row)]


def test_json_is_nested_and_returned_by_type() -> None:
    query = """SELECT JSON_OBJECT('id' VALUE JSON_VALUE(j, '$.a' RETURNING INT),
                          'all' VALUE JSON_ARRAY(1, JSON_OBJECT('b' VALUE j)))
               FROM (VALUES ('{"a": 5}'), ('{}')) AS t(j)"""
    assert rows(query) == [
        ('{"all":[1,{"b":"{\\"a\\": 5}"}],"id":5}',),
        ('{"all":[1,{"b":"{}"}],"id":null}',),
    ]


def test_defaults_of_json_have_the_type_returned() -> None:
    query = """SELECT JSON_VALUE(j, 'lax $.a' RETURNING INT DEFAULT 7 ON EMPTY)
               FROM (VALUES ('{"a": 5}'), ('{}')) AS t(j)"""
    assert rows(query) == [(5,), (7,)]


def test_a_default_of_another_type_is_refused() -> None:
    query = "SELECT JSON_VALUE('{}', '$.a' RETURNING INT DEFAULT 'x' ON EMPTY)"
    with pytest.raises(ValidationError, match=r"The default is CHAR\(1\) NOT NULL and must be INT"):
        environment().execute_sql(query)


def test_strings_times_and_arrays_of_columns() -> None:
    query = """SELECT SPLIT_INDEX(url, '/', 3), DATE_FORMAT(ts, 'yyyy-MM-dd'), HOUR(ts),
                      ARRAY_SORT(SPLIT(url, '/'))[1], REGEXP_EXTRACT(url, 'id=([0-9]+)', 1)
               FROM (VALUES ('https://a.b/c?id=12', TIMESTAMP '2024-02-29 13:14:15'),
                            (CAST(NULL AS STRING), CAST(NULL AS TIMESTAMP(0)))) AS t(url, ts)"""
    assert rows(query) == [
        ("c?id=12", "2024-02-29", 13, "", "12"),
        (None, None, None, None, None),
    ]


def test_the_current_database_is_that_of_the_session() -> None:
    env = environment()
    env.execute_sql("CREATE DATABASE other")
    env.execute_sql("USE other")
    with env.execute_sql("SELECT UPPER(CURRENT_DATABASE())").collect() as found:
        assert [tuple(row) for row in found if isinstance(row, Row)] == [("OTHER",)]
