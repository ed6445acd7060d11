"""Every statement of the corpus: its text, its way there and back, its error."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest
from tests.sql.parser.corpus_files import Case, cases, check_texts, described, valid

from millstream.errors import SqlParserError, UnsupportedSqlError
from millstream.sql.parser.nodes import Identifier, Node, Query
from millstream.sql.parser.parser import (
    parse_expression,
    parse_identifier,
    parse_query,
    parse_statement,
    parse_statements,
    parse_type,
)
from millstream.sql.parser.unparser import unparse

INVALID = cases("invalid")


def parts(node: object) -> list[Node]:
    """All nodes below one, itself too, without recursion into other things than tuples."""
    found, waiting = [], [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting.extend(each)
        elif isinstance(each, Node):
            found.append(each)
            names = [field.name for field in fields(each)]
            waiting.extend(getattr(each, name) for name in names if name != "position")
    return found


def test_the_corpus_is_large() -> None:
    assert len(valid()) >= 250
    assert len(INVALID) >= 60
    statements = [case.statement for case in [*valid(), *INVALID]]
    assert len(set(statements)) == len(statements)


@pytest.mark.parametrize("case", valid(), ids=lambda case: case.where)
def test_a_valid_statement(case: Case) -> None:
    statement = parse_statement(case.statement)
    assert described(statement) == case.expected
    assert pickle.loads(pickle.dumps(statement)) == statement


@pytest.mark.parametrize("case", valid(), ids=lambda case: case.where)
def test_queries_and_expressions_go_to_text_and_back(case: Case) -> None:
    count = check_texts(parse_statement(case.statement))
    assert count or not case.where.startswith(("expressions", "queries"))


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case.where)
def test_an_invalid_statement(case: Case) -> None:
    with pytest.raises((SqlParserError, UnsupportedSqlError)) as caught:
        parse_statement(case.statement)
    assert f"{type(caught.value).__name__}: {caught.value}" == case.expected
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    if isinstance(caught.value, SqlParserError):
        where = f"line {caught.value.line}, column {caught.value.column}:"
        assert where in str(caught.value)


def test_every_node_stands_in_the_text_where_it_says() -> None:
    for case in valid():
        statement = parse_statement(case.statement)
        for node in parts(statement):
            if node.position is not None:
                position = node.position
                before = case.statement[: position.start]
                assert position.line == before.count("\n") + 1
                assert position.column == position.start - (before.rfind("\n") + 1) + 1
                assert position.start < position.end <= len(case.statement)
            if isinstance(node, Identifier) and node.position is not None:
                text = case.statement[node.position.start : node.position.end]
                assert parse_identifier(text) == node


def test_a_query_of_the_text_parses_to_the_same_query() -> None:
    count = 0
    for case in valid():
        for node in parts(parse_statement(case.statement)):
            if isinstance(node, Query) and node.position is not None:
                text = case.statement[node.position.start : node.position.end]
                if text.count("(") == text.count(")"):
                    count += parse_query(text) == node
    assert count > 200


def test_a_script() -> None:
    text = ";".join(case.statement for case in valid() if not case.statement.endswith(";"))
    statements = parse_statements(f";;{text};-- the end\n;")
    assert [described(each) for each in statements] == [
        case.expected for case in valid() if not case.statement.endswith(";")
    ]
    assert parse_statements("  -- nothing\n /* at all */ ;;") == ()


def test_an_error_in_a_script_is_counted_from_its_beginning() -> None:
    with pytest.raises(SqlParserError) as caught:
        parse_statements("SELECT 1;\nSELECT 2;\n  SELECT FROM t;\n")
    assert str(caught.value) == (
        "SQL, line 3, column 10: found FROM, expected an expression, DISTINCT or ALL\n"
        "      SELECT FROM t;\n"
        "             ^^^^"
    )
    assert (caught.value.line, caught.value.column) == (3, 10)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.line, again.column) == (str(caught.value), 3, 10)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "SELECT 'größe', 日本 FROM FROM",
            "    SELECT 'größe', 日本 FROM FROM\n" + " " * 30 + "^^^^",
        ),
        ("SELECT\ta\t+\tFROM t", "    SELECT\ta\t+\tFROM t\n          \t \t \t^^^^"),
        (
            "SELECT " + "a, " * 60 + "FROM t",
            "    ..." + "a, " * 22 + "FROM t\n       " + " " * 66 + "^^^^",
        ),
        ("SELECT a,\nb c d\nFROM t", "    b c d\n        ^"),
        ("SELECT a\r\nFROM", "    FROM\n        ^"),
    ],
)
def test_the_caret_stands_below_the_word(text: str, shown: str) -> None:
    with pytest.raises(SqlParserError) as caught:
        parse_statement(text)
    assert str(caught.value).split("\n", 1)[1] == shown


def test_expressions_types_and_paths_alone() -> None:
    assert unparse(parse_expression("a + 1 -- one\n")) == "`a` + 1"
    assert parse_type("ROW<a INT NOT NULL> NOT NULL").as_summary_string() == (
        "ROW<`a` INT NOT NULL> NOT NULL"
    )
    assert parse_type("INTERVAL YEAR TO MONTH").as_summary_string() == "INTERVAL YEAR(2) TO MONTH"
    assert parse_identifier("select.`a.b`.from").names == ("select", "a.b", "from")
    for parse, text in (
        (parse_expression, "a +"),
        (parse_expression, "a b"),
        (parse_type, "INT INT"),
        (parse_identifier, "a..b"),
        (parse_identifier, ""),
        (parse_query, "DROP TABLE t"),
    ):
        with pytest.raises(SqlParserError, match="line 1, column"):
            parse(text)


@pytest.mark.parametrize("depth", [100, 5_000])
def test_deep_nesting_is_an_error_and_not_a_crash(depth: int) -> None:
    for text in (
        f"SELECT {'(' * depth}1{')' * depth}",
        f"SELECT {'NOT ' * depth}a FROM t",
        f"SELECT * FROM {'(SELECT * FROM ' * depth}t{')' * depth}",
        f"SELECT CAST(a AS {'ARRAY<' * depth}INT{'>' * depth}) FROM t",
    ):
        try:
            parse_statement(text)
        except SqlParserError as error:
            assert "too many parentheses or queries in one another" in str(error)  # noqa: PT017
        else:
            assert depth == 100


def test_long_lists_and_chains_are_no_problem() -> None:
    numbers = ", ".join(map(str, range(5_000)))
    assert len(parse_query(f"VALUES {numbers}").rows) == 5_000  # type: ignore[attr-defined]
    chain = " AND ".join(f"a{i} = {i}" for i in range(3_000))
    text = unparse(parse_expression(chain))
    assert text == " AND ".join(f"`a{i}` = {i}" for i in range(3_000))
