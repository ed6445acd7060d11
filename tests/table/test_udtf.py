"""Table functions of users: rows made of a row, by LATERAL TABLE and alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.common import Row
from millstream.errors import ProgramError, UserFunctionError, ValidationError
from millstream.table.udf import TableFunction, udtf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.table import TableEnvironment

VALUES = "(VALUES (1, 'a b'), (2, ''), (3, CAST(NULL AS STRING))) AS t(n, s)"


class Words(TableFunction):
    """The words of a text with their lengths."""

    def eval(self, text: str | None) -> Iterator[tuple[str, int]] | None:
        return None if text is None else ((word, len(word)) for word in text.split())


def rows(query: str, function: Any) -> list[tuple[Any, ...]]:
    env: TableEnvironment = environment()
    env.create_temporary_function("f", function)
    with env.execute_sql(query).collect() as found:
        return [tuple(row) for row in found if isinstance(row, Row)]


def words() -> Any:
    return udtf(Words, input_types="STRING", result_types=["STRING", "INT"])


def test_rows_are_joined_to_the_row_that_they_are_made_of() -> None:
    query = f"SELECT n, word, size FROM {VALUES} CROSS JOIN LATERAL TABLE(f(s)) AS w(word, size)"
    assert rows(query, words()) == [(1, "a", 1), (1, "b", 1)]


def test_a_left_join_keeps_rows_without_any() -> None:
    query = f"SELECT n, word FROM {VALUES} LEFT JOIN LATERAL TABLE(f(s)) AS w(word, size) ON TRUE"
    assert rows(query, words()) == [(1, "a"), (1, "b"), (2, None), (3, None)]


def test_columns_have_names_without_an_alias() -> None:
    query = f"SELECT n, f0, f1 FROM {VALUES} CROSS JOIN LATERAL TABLE(f(s))"
    assert rows(query, words()) == [(1, "a", 1), (1, "b", 1)]


def test_alone_and_with_values_for_rows_of_one_column() -> None:
    count = udtf(lambda n: [*range(n)], input_types="INT", result_types="INT", name="count")
    assert rows("SELECT f0 FROM TABLE(f(3))", count) == [(0,), (1,), (2,)]


def test_it_is_no_scalar_function() -> None:
    with pytest.raises(ValidationError, match="Words is a table function: LATERAL TABLE"):
        rows(f"SELECT f(s) FROM {VALUES}", words())


def test_an_unknown_table_function_is_named() -> None:
    query = f"SELECT n FROM {VALUES} CROSS JOIN LATERAL TABLE(ff(s))"
    with pytest.raises(ValidationError, match=r"Table function 'ff' not found\. Did you mean 'f'"):
        rows(query, words())


def test_rows_that_do_not_fit_are_refused() -> None:
    wrong = udtf(lambda _: [("x",)], result_types=["STRING", "INT"], name="wrong")
    query = f"SELECT n FROM {VALUES} CROSS JOIN LATERAL TABLE(f(s))"
    with pytest.raises(UserFunctionError, match=r"wrong\(.*\) fails where"):
        rows(query, wrong)
    with pytest.raises(ProgramError, match="set result_types"):
        udtf(lambda n: [n])
