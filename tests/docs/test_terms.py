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


def test_messages_are_checked(tmp_path: Path) -> None:
    module = tmp_path / "mill.py"
    module.write_text(
        "message = f'{epoch} is behind {name}'\n"
        "raise MillError('the wheel goes on') from error\n"
        "log.warning('%s is told', name)\n"
        "key = 'not told'\n"
        "ConfigOption('mill.epoch', parse, 'behind', 'see mill.epoch', 1)\n"
    )
    found = list(terms.find_in_messages([module]))
    assert found[0] == "mill.py:1: 'behind': after, downstream of, following"
    assert [each.split(": ")[:2] for each in found[1:]] == [
        ["mill.py:2", "'goes on'"],
        ["mill.py:3", "'told'"],
    ]


@pytest.mark.extended
def test_messages_are_clean() -> None:
    assert list(terms.find_in_messages(sorted((terms.ROOT / "src").rglob("*.py")))) == []


def test_covered_pages_are_clean() -> None:
    pages = terms.covered_pages()
    assert Path(terms.ROOT, "README.md") in pages
    assert list(terms.find_in_pages(pages)) == []


def test_help_is_clean() -> None:
    assert list(terms.find_in_help(build_parser())) == []
