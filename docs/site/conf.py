"""Sphinx's configuration, and the two things about links that Sphinx cannot know.

What it is: the first part is names and switches; then ``setup`` resolves names as the docstrings
write them (``KeyedStream``, without their module), and makes links of code in texts that is the
name of something public.

What it is not: a place for content.

Read next: ``docs/site/reference.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_origin

from docs.site.reference import find
from docutils import nodes
from sphinx.addnodes import pending_xref

from millstream import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "Millstream"
author = "the Millstream authors"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
nitpicky = True
#: Of short names that several modules have (``AggregateFunction``, of streams and of tables): in a
#: signature that is no mistake.  What is missing altogether is said still.
suppress_warnings = ["ref.python"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
add_module_names = False
maximum_signature_line_length = 80
napoleon_custom_sections = ["Contract"]
napoleon_numpy_docstring = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Millstream {release}"
html_copy_source = False
html_show_sphinx = False
pygments_style = "tango"
pygments_dark_style = "monokai"


def setup(app: Sphinx) -> None:
    """Connect what is below to Sphinx's events."""
    app.connect("doctree-read", link_code)
    app.connect("missing-reference", resolve_short_name)
    app.connect("warn-missing-reference", is_no_mistake)
    app.connect("autodoc-process-bases", keep_public_bases)
    comments = AttributeComments()
    app.connect("autodoc-process-docstring", comments.keep, priority=400)
    app.connect("autodoc-process-docstring", comments.restore, priority=600)


def link_code(_app: Sphinx, doctree: nodes.document) -> None:
    """Make links of literals that are public names, such as ``KafkaSink``."""
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext().removesuffix("()")
        target = find(text) if text[:1].isupper() else None
        if target is None or _inside(literal, nodes.reference, nodes.title, pending_xref):
            continue
        link = pending_xref("", refdomain="py", reftype="obj", reftarget=target, refspecific=False)
        literal.replace_self(link)
        link += literal


def _inside(node: nodes.Node, *kinds: type[nodes.Node]) -> bool:
    parent = node.parent
    while parent is not None and not isinstance(parent, kinds):
        parent = parent.parent
    return parent is not None


def resolve_short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Find what a name without its module, or with the module that defines it, refers to."""
    if node.get("refdomain") != "py":
        return None
    target = find(node["reftarget"])
    if target is None:
        return None
    source = node.get("refdoc", env.docname)
    return env.domains["py"].resolve_xref(env, source, app.builder, "obj", target, node, content)


def is_no_mistake(_app: Sphinx, _domain: object, node: pending_xref) -> bool | None:
    """Let pass what nobody wrote as a reference: types in signatures, guesses of ``link_code``."""
    if node.get("refdomain") != "py":
        return None
    written = any("xref" in literal["classes"] for literal in node.findall(nodes.literal))
    return None if written else True


def keep_public_bases(
    _app: Sphinx, _name: str, _obj: object, _options: object, bases: list[type]
) -> None:
    """Do not show how a class is implemented."""
    plain = [get_origin(base) or base for base in bases]
    bases[:] = [base for base in plain if find(f"{base.__module__}.{base.__qualname__}")]


class AttributeComments:
    """Keeps napoleon from comments on attributes: it takes what is before a colon for a type."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def keep(
        self, _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]
    ) -> None:
        """Remember the lines; before napoleon."""
        self._lines = list(lines)

    def restore(
        self, _app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]
    ) -> None:
        """Put them back if they are those of an attribute; behind napoleon."""
        if what in {"attribute", "data", "property"}:
            lines[:] = self._lines
