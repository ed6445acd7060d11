"""What ``make docs`` would complain about, without its tools: links, and pages nobody finds."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docs.site import pages, reference
from docs.site.navigation import GROUPS, REFERENCE, ROOT_PAGES

import millstream
import millstream.datastream

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", *ROOT_PAGES)] + sorted(DOCS.rglob("*.md"))
_BLOCK = re.compile(r"^```.*?^```$|^ {4}.*?$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Of the headings, as code hosts and the site make them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return frozenset(heading.replace(" ", "-") for heading in plain)


def broken_links(page: Path, text: str) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", _BLOCK.sub("", text))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (
            not target.exists() or (anchor and anchor not in anchors(target))
        ):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page, page.read_text())) == []


def test_broken_links_are_noticed() -> None:
    text = "[a](time.md) [b](nowhere.md) [c](time.md#timers) [d](time.md#nothing) `[e](no.md)`"
    page = DOCS / "concepts" / "index.md"
    assert list(broken_links(page, text)) == ["nowhere.md", "time.md#nothing"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_one_title(page: Path) -> None:
    titles = re.findall(r"^# .*$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    assert len(titles) == 1


@pytest.mark.parametrize("group", GROUPS)
def test_an_index_lists_each_page_of_its_group_once(group: str) -> None:
    there = {page.stem for page in (DOCS / group).glob("*.md")} - {"index"}
    assert sorted(pages.listed_pages(DOCS / group / "index.md")) == sorted(there)


def test_every_page_is_in_a_group() -> None:
    groups = {DOCS, DOCS / "decisions", *(DOCS / group for group in GROUPS)}
    assert {page.parent for page in DOCS.rglob("*.md")} <= groups
    assert [page.name for page in DOCS.glob("*.md")] == ["index.md"]


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda p: p.name)
def test_first_pages_lead_to_every_group(page: Path) -> None:
    linked = set(re.findall(r"\]\((?:docs/)?([\w-]+)/index\.md\)", page.read_text()))
    assert linked == set(GROUPS)


def test_every_importable_module_has_a_page() -> None:
    package = Path(millstream.__file__).parent
    folders = ("datastream/connectors", "datastream/formats", "testing")
    modules = {
        ".".join(("millstream", *folder.split("/"), path.stem))
        for folder in folders
        for path in (package / folder).glob("[a-z]*.py")
    }
    assert modules <= {module for group in REFERENCE.values() for module in group}


def test_every_public_name_is_described_once() -> None:
    described = [entry.full for entry in reference.public_names().values()]
    assert len(described) == len(set(described))
    names = {entry.name for entry in reference.public_names().values()}
    assert set(vars(millstream.datastream)["__all__"]) <= names


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("KeyedStream", "millstream.datastream.KeyedStream"),
        ("millstream.datastream.keyed_stream.KeyedStream", "millstream.datastream.KeyedStream"),
        ("KeyedStream.window", "millstream.datastream.KeyedStream.window"),
        ("KeyedStream.union", "millstream.datastream.DataStream.union"),
        ("KeyedStream.nothing", None),
        ("Nothing", None),
    ],
)
def test_names_are_found(text: str, full: str | None) -> None:
    assert reference.find(text) == full


def test_pages_are_written(tmp_path: Path) -> None:
    source = tmp_path / "source"
    pages.write(source)
    assert "\ntutorials/index\n" in (source / "index.md").read_text()
    assert "\ngetting-started\n" in (source / "tutorials" / "index.md").read_text()
    for name in ROOT_PAGES:
        assert "](docs/" not in (source / name).read_text()
    written = [page for page in source.rglob("*.md") if page != source / "decisions" / "index.md"]
    assert [link for page in written for link in broken_links(page, page.read_text())] == []
    for group in REFERENCE.values():
        for module in group:
            assert (source / "api" / f"{module}.rst").exists()
    assert "execution.checkpointing.dir" in (source / "api" / "options.rst").read_text()


def test_the_page_of_the_examples_contains_the_programs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    pages.write(source)
    examples = (source / "tutorials" / "examples.md").read_text()
    shown = re.findall(r"^### (\S+)\n\n```python\n(.*?)```$", examples, re.MULTILINE | re.DOTALL)
    assert len(shown) == 12
    for name, program in shown:
        assert program == (ROOT / "examples" / name).read_text()
    assert "](examples.md)" in (source / "tutorials" / "index.md").read_text()


def test_files_that_the_architecture_page_names_are_there() -> None:
    package = Path(millstream.__file__).parent
    named = re.findall(
        r"`([\w./]+(?:\.py|/))`", (DOCS / "development" / "architecture.md").read_text()
    )
    folders = (package, ROOT, ROOT / "src")
    assert len(named) > 60
    to_come = {"table/"}
    assert [
        name
        for name in named
        if name not in to_come and not any((folder / name).exists() for folder in folders)
    ] == []
