"""Writes the source of the site into a directory: what Sphinx then renders.

What it is: the pages of ``docs/`` as they are; README, the first page, and CHANGELOG with their
links made to fit; pages of the reference, one per module.

What it is not: a renderer (``docs/site/conf.py`` configures Sphinx), nor part of what is read on
a code host, where the same pages have to work without it.

Read next: ``docs/site/navigation.py``, ``docs/site/reference.py``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.site import reference
from docs.site.navigation import GUIDE, PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ROOT", "write"]

ROOT: Final = Path(__file__).parents[2]
_DOCS_LINK: Final = re.compile(r"\]\(docs/")


def write(target: Path) -> None:
    """Write the source of all pages; what was there before is removed."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target, ignore=shutil.ignore_patterns("site", "__pycache__"))
    (target / "index.md").write_text(_from_root("README.md") + _first_page_toctrees())
    (target / "CHANGELOG.md").write_text(_from_root("CHANGELOG.md"))
    (target / "decisions" / "index.md").write_text(_decisions(target / "decisions"))
    reference.write(target / "reference")


def _from_root(page: str) -> str:
    """A page from above docs/, which is beside the others on the site."""
    text = _DOCS_LINK.sub("](", (ROOT / page).read_text())
    return text.replace("](decisions/)", "](decisions/index.md)")


def _first_page_toctrees() -> str:
    groups = [_toctree(pages, caption) for caption, pages in GUIDE.items()]
    groups.append(_toctree(["reference/index"], "Reference"))
    groups.append(_toctree(PROJECT, "The project"))
    return "\n" + "\n".join(groups)


def _decisions(directory: Path) -> str:
    pages = sorted(page.stem for page in directory.glob("[0-9]*.md"))
    return "# Decisions\n\nWhat was decided where there were alternatives, and why.\n\n" + _toctree(
        pages, hidden=False
    )


def _toctree(pages: Iterable[str], caption: str = "", *, hidden: bool = True) -> str:
    options = [f":caption: {caption}"] * bool(caption) + [":hidden:"] * hidden
    options.append(":maxdepth: 1")
    return "\n".join(["```{toctree}", *options, "", *pages, "```", ""])
