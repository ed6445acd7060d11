"""The program of docs/reference/joins.md, piece by piece, gives what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.page_programs import check_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "joins.md"


def test_the_blocks_of_the_page(tmp_path: Path) -> None:
    check_page(PAGE, tmp_path, parallelism=2, limits=[2], results=5)
