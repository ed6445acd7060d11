"""Scripts into statements."""

from __future__ import annotations

import pytest
from tests.sql.parser.corpus_files import valid

from millstream.errors import SqlParserError
from millstream.sql.parser.parser import parse_statement, parse_statements
from millstream.sql.parser.tokens import is_complete, split_statements


def test_statements_of_a_script() -> None:
    script = "SELECT ';' -- ; not here\n;\n\n  /* ; nor here */ SELECT `a;b`\n FROM t;;\nSET"
    parts = split_statements(script)
    assert [(part.statement, part.line) for part in parts] == [
        ("SELECT ';'", 1),
        ("SELECT `a;b`\n FROM t", 4),
        ("SET", 6),
    ]
    assert split_statements(" -- nothing\n;;") == ()


def test_a_statement_set_is_one_statement() -> None:
    both = (
        "BEGIN STATEMENT SET;\nINSERT INTO t SELECT CASE WHEN a THEN 1 END FROM s;\nEND;",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT 1; INSERT INTO t SELECT 2; END;",
    )
    for text in both:
        parts = split_statements(f"SELECT 1;{text} SELECT 2")
        assert [part.statement for part in parts] == ["SELECT 1", text[:-1], "SELECT 2"]
        assert is_complete(text)
        assert not is_complete(text[:-1])
        assert not is_complete(text[:-4])


def test_places_in_a_part_are_places_in_the_script() -> None:
    script = "SELECT 1;\n\tSELECT 2; SELECT FROM t"
    part = split_statements(script)[2]
    with pytest.raises(SqlParserError) as of_part:
        parse_statement(part.text)
    with pytest.raises(SqlParserError) as of_script:
        parse_statements(script)
    assert (of_part.value.line, of_part.value.column) == (2, 19)
    assert (of_script.value.line, of_script.value.column) == (2, 19)


def test_the_corpus_as_a_script() -> None:
    statements = [case.statement.rstrip(";") for case in valid()]
    parts = split_statements(";\n".join(statements))
    assert [parse_statement(part.text) for part in parts] == list(map(parse_statement, statements))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  -- x;",
        "SELECT 1",
        "SELECT 'it''s;",
        "SELECT `a;",
        "SELECT 1; SELECT",
        "SELECT /* ;",
        "BEGIN STATEMENT SET;",
        "BEGIN STATEMENT SET; INSERT INTO t SELECT 1;",
    ],
)
def test_what_goes_on(text: str) -> None:
    assert not is_complete(text)


@pytest.mark.parametrize("text", ["SELECT 1;", "SELECT 1; -- x", "SELECT ';' ;\n", ";", "a # b;"])
def test_what_is_whole(text: str) -> None:
    assert is_complete(text)


def test_a_string_without_end_is_an_error_of_the_script() -> None:
    with pytest.raises(SqlParserError, match="line 2, column 8: found a string that does not end"):
        split_statements("SELECT 1;\nSELECT 'a;")
