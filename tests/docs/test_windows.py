"""The program of docs/reference/windows.md, piece by piece, gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.page_programs import check_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "windows.md"


def test_the_blocks_of_the_page(tmp_path: Path) -> None:
    check_page(PAGE, tmp_path, parallelism=1, limits=[1], results=5)


def test_the_pictures_are_there() -> None:
    pictures = re.findall(r"\]\((../pictures/.*?\.svg)\)", PAGE.read_text())
    assert len(pictures) == 2
    for picture in pictures:
        assert (PAGE.parent / picture).read_text().startswith("<svg")
