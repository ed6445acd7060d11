"""The check of words finds what it should, and what it covers is clean."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from tools import terms

from millstream.cli.main import build_parser

LISTED = terms.load("terms", "spelling", "users")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The option is told to the\nsource behind it.", [(1, "told"), (2, "behind")]),
        ("The job goes\non anew.", [(1, "goes on"), (2, "anew")]),
        ("The behaviour is serialised.", [(1, "behaviour"), (1, "serialised")]),
        ("A look-behind, the floor\nof an Epoch", [(1, "floor"), (2, "Epoch")]),
        ("`behind` [a page](behind.md)\n```text\nanew\n```\n    told\nowed", [(6, "owed")]),
        ("A changelog with retractions follows.", []),
    ],
)
def test_words_are_found_outside_of_code(text: str, words: list[tuple[int, str]]) -> None:
    assert sorted((line, word) for line, word, _ in LISTED.find(text)) == words


def test_pages_for_developers_may_have_epochs() -> None:
    pages = list((terms.ROOT / "docs" / "development").glob("architecture.md"))
    assert not any("epoch" in found.lower() for found in terms.find_in_pages(pages))
    assert "epoch" in pages[0].read_text()


def test_help_of_subcommands_is_checked() -> None:
    parser = argparse.ArgumentParser(prog="mill")
    parser.add_subparsers().add_parser("grind", description="Grind what is behind the mill.")
    assert list(terms.find_in_help(parser)) == [
        "mill grind --help: 'behind': after, downstream of, following"
    ]


def test_covered_pages_are_clean() -> None:
    pages = terms.covered_pages()
    assert Path(terms.ROOT, "README.md") in pages
    assert list(terms.find_in_pages(pages)) == []


def test_help_is_clean() -> None:
    assert list(terms.find_in_help(build_parser())) == []
