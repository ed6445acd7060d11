"""JSON forms: how a type is written and read, declared once for both directions."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Form:
    """How values of one type are JSON.

    ``read`` raises KeyError, TypeError, ValueError or AttributeError for what has another form.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    #: Of a field: its name, if that is another in JSON.
    name: str | None = None
    #: It is left out where it is empty.
    is_optional: bool = False

    def left_out_if_empty(self, name: str | None = None) -> Form:
        """Return the form of a field that is missing where it would be empty, zero or false."""
        return replace(self, name=name, is_optional=True)


INT: Final = Form(_same, int)
TEXT: Final = Form(_same, str)
FLAG: Final = Form(_same, bool)
OBJECT: Final = Form(_same, dict)
BYTES: Final = Form(
    lambda value: b64encode(value).decode("ascii"), lambda text: b64decode(text, validate=True)
)


def optional(form: Form) -> Form:
    """Return the form of values that may be None."""
    return Form(
        lambda value: None if value is None else form.write(value),
        lambda value: None if value is None else form.read(value),
    )


def sequence(form: Form, make: Callable[[Iterable[Any]], Any] = list) -> Form:
    """Return the form of lists, or of what ``make`` makes of their elements."""
    write = form.write
    return Form(
        list if write is _same else lambda values: [write(each) for each in values],
        lambda values: make(map(form.read, values)),
    )


def mapping(form: Form, key: Callable[[str], Any] = str) -> Form:
    """Return the form of dicts with keys that are texts, or are made of them by ``key``."""
    write = form.write
    return Form(
        dict
        if write is _same and key is str
        else lambda values: {str(name): write(each) for name, each in values.items()},
        lambda values: {key(name): form.read(each) for name, each in values.items()},
    )


def record(
    make: Callable[..., Any],
    getter: Callable[..., Callable[[Any], Iterable[Any]]] = attrgetter,
    **fields: Form,
) -> Form:
    """Return the form of objects with these fields, two at least, which ``make`` takes by name."""
    names = {name: form.name or name for name, form in fields.items()}
    keys, contents = list(names.values()), getter(*names)
    converted = [(names[n], form.write) for n, form in fields.items() if form.write is not _same]
    left_out = [names[n] for n, form in fields.items() if form.is_optional]

    def write(value: Any) -> dict[str, Any]:
        found = dict(zip(keys, contents(value), strict=True))
        for key, convert in converted:
            found[key] = convert(found[key])
        for key in left_out:
            if not found[key]:
                del found[key]
        return found

    def read(value: Any) -> Any:
        return make(
            **{
                name: form.read(value[names[name]])
                for name, form in fields.items()
                if not form.is_optional or names[name] in value
            }
        )

    return Form(write, read)
