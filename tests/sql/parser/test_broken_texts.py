"""Texts that somebody has damaged: an error of the parser's, and soon."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.parser.corpus_files import cases, check_texts, valid
from tests.support.examples import examples

from millstream.errors import SqlParserError, UnsupportedSqlError
from millstream.sql.parser.parser import parse_statement, parse_statements, parse_type
from millstream.sql.parser.tokens import RESERVED, tokenize

TEXTS = [case.statement for case in valid()]
TYPES = (
    "ROW<a INT NOT NULL 'x', b ARRAY<ROW<c STRING>>> NOT NULL",
    "MAP<VARCHAR(5) NOT NULL, DECIMAL(10, 2)>",
    "INT NOT NULL ARRAY NOT NULL MULTISET",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "INTERVAL DAY(3) TO SECOND(6)",
)
WORDS = [*sorted(RESERVED), *"()[]{},;.+-*/%<>=|?^$:", "`x`", "'s'", "1", "1.5", "x"]
WORDS += ["/*+", "*/", "=>", "<>", "{-", "X'0'"]
#: No text of the corpus takes a hundredth of that.
LIMIT = 2.0


def pieces(text: str) -> list[str]:
    """The tokens of a text, with the space before each."""
    tokens = tokenize(text)
    ends = [0, *tokens.ends]
    return [text[ends[i] : ends[i + 1]] for i in range(len(tokens))]


PIECES = [pieces(text) for text in TEXTS]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    tokens = list(draw(st.sampled_from(PIECES)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(tokens) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                del tokens[place]
            case 1:
                tokens.insert(place, f" {draw(st.sampled_from(WORDS))} ")
            case 2:
                tokens.insert(place, draw(st.sampled_from(draw(st.sampled_from(PIECES)))))
            case _:
                tokens[place] = f" {draw(st.sampled_from(WORDS))}"
        if not tokens:
            break
    return "".join(tokens)


def check(text: str) -> None:
    begin = time.process_time()
    try:
        statement = parse_statement(text)
    except (SqlParserError, UnsupportedSqlError) as error:
        message, _, lines = str(error).partition("\n")
        assert re.match(r"SQL, line \d+, column \d+: ", message)
        assert "^" in lines.split("\n")[1]
    else:
        check_texts(statement)
    assert time.process_time() - begin < LIMIT


@examples(150)
@given(damaged())
def test_damaged_statements(text: str) -> None:
    check(text)


@examples(100)
@given(st.text(st.sampled_from("abS'`\"/*-+.,;()<>=1 \n\\&xUE"), max_size=30))
def test_any_signs(text: str) -> None:
    check(text)


@pytest.mark.soak
@settings(max_examples=30_000, deadline=None)
@given(damaged())
def test_damaged_statements_at_length(text: str) -> None:
    check(text)


def test_the_beginnings_of_all_statements() -> None:
    for tokens in PIECES[::4]:
        for length in range(len(tokens)):
            check("".join(tokens[:length]))


def test_every_word_left_out() -> None:
    for tokens in PIECES[1::4]:
        for place in range(len(tokens)):
            check("".join(tokens[:place] + tokens[place + 1 :]))


@pytest.mark.parametrize("text", TYPES)
def test_damaged_types(text: str) -> None:
    parse_type(text)
    for place in range(len(text)):
        for other in ("", "(", ">", ",", "x"):
            broken = text[:place] + other + text[place + 1 :]
            with contextlib.suppress(SqlParserError, UnsupportedSqlError):
                parse_type(broken)


def test_invalid_statements_within_scripts() -> None:
    for case in cases("invalid"):
        if case.statement == "SELECT 1; SELECT 2":
            continue
        with pytest.raises((SqlParserError, UnsupportedSqlError)):
            parse_statements(f"SELECT 1; {case.statement}")
