"""The page of SQL's functions is up to date, and says something about every function of Flink."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.sql.functions import page


def test_the_page_is_as_the_registry_says() -> None:
    assert page.PAGE.read_text() == page.page(), "run python -m tests.sql.functions.page"


def test_every_function_of_flink_is_here_or_has_a_reason() -> None:
    names = [name for group in page.flink_functions().values() for name in group]
    assert len(names) > 250
    unexplained = [
        name for name in names if not page.is_registered(name) and page.reason_of(name) is None
    ]
    assert unexplained == []


def test_reasons_are_about_functions_that_are_not_registered() -> None:
    names = [name for group in page.flink_functions().values() for name in group]
    for pattern in page.reasons():
        assert any(fnmatchcase(name, pattern) for name in names), pattern
        assert not page.is_registered(pattern), pattern
