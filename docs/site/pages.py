"""Write the source of the site into a directory for Sphinx to render.

The pages of ``docs/`` are copied; each index gets a table of contents of the pages that it links.
The index of ``examples/`` becomes a page that contains the programs.
Links that only work on a code host are adapted.  ``docs/site/conf.py`` configures Sphinx.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.site import reference
from docs.site.navigation import GROUPS, ROOT_PAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ROOT", "listed_pages", "write"]

ROOT: Final = Path(__file__).parents[2]
_LISTED: Final = re.compile(r"^[-|] *\[[^\]]*\]\(([\w-]+)\.md\)", re.MULTILINE)
_DOCS_LINK: Final = re.compile(r"\]\(docs/")
#: Of the index of the examples: a link to a program, and the heading of its output.
_PROGRAM_LINK: Final = re.compile(r"\]\((\w+)\.py\)")
_PROGRAM_HEADING: Final = re.compile(r"^### (\w+\.py)\n", re.MULTILINE)
_ROOT_LINK: Final = re.compile(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, ROOT_PAGES))}))")


def write(target: Path) -> None:
    """Write the source of all pages, and remove what the directory contained before."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target, ignore=shutil.ignore_patterns("site", "__pycache__"))
    for page in target.rglob("*.md"):
        page.write_text(_without_root(page.read_text()))
    for name in ROOT_PAGES:
        (target / name).write_text(_with_index(_DOCS_LINK.sub("](", (ROOT / name).read_text())))
    (target / "tutorials" / "examples.md").write_text(_examples())
    _append(target / "index.md", [f"{group}/index" for group in GROUPS])
    for group, more in GROUPS.items():
        _append(target / group / "index.md", [*listed_pages(target / group / "index.md"), *more])
    (target / "decisions" / "index.md").write_text(_decisions(target / "decisions"))
    reference.write(target / "api")


def listed_pages(index: Path) -> list[str]:
    """Return the pages that an index lists, in its order, without their ``.md``."""
    return _LISTED.findall(index.read_text())


def _without_root(text: str) -> str:
    """Adapt links to pages outside of ``docs/``, which the site has beside the groups."""
    text = text.replace("](../../examples/README.md)", "](examples.md)")
    return _with_index(_ROOT_LINK.sub(r"](\1", text))


def _examples() -> str:
    """Return the index of the examples with each program before its output."""
    directory = ROOT / "examples"
    text = (directory / "README.md").read_text().replace("## Output\n", "## Programs\n")
    text = text.replace("](../docs/tutorials/", "](").replace("](../docs/", "](../")
    text = _PROGRAM_LINK.sub(r"](#\1py)", text)
    return _PROGRAM_HEADING.sub(
        lambda heading: f"{heading[0]}\n```python\n{(directory / heading[1]).read_text()}```\n",
        text,
    )


def _with_index(text: str) -> str:
    return text.replace("decisions/)", "decisions/index.md)")


def _append(index: Path, pages: Iterable[str]) -> None:
    index.write_text(f"{index.read_text()}\n{_toctree(pages)}")


def _decisions(directory: Path) -> str:
    pages = sorted(page.stem for page in directory.glob("[0-9]*.md"))
    return "# Decisions\n\nWhat was decided where there were alternatives, and why.\n\n" + _toctree(
        pages, hidden=False
    )


def _toctree(pages: Iterable[str], *, hidden: bool = True) -> str:
    options = [":hidden:"] * hidden + [":maxdepth: 1"]
    return "\n".join(["```{toctree}", *options, "", *pages, "```", ""])
