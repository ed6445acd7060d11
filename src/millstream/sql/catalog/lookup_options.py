"""Options of tables that are looked up: the cache, and how often a question is asked again.

What it is: Flink's ``lookup.*`` of databases.
What it is not: the connectors; each says which of these it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.contracts.lookup import LookupCaching
from millstream.errors import ValidationError
from millstream.sql.catalog.options import boolean, choice, duration, integer

if TYPE_CHECKING:
    from millstream.sql.catalog.options import Option, Options

__all__ = ["LOOKUP_OPTIONS", "caching_of"]

_PARTIAL: Final = "lookup.partial-cache."

LOOKUP_OPTIONS: Final[tuple[Option, ...]] = (
    choice("lookup.cache", ("none", "partial"), "none"),
    integer(_PARTIAL + "max-rows"),
    duration(_PARTIAL + "expire-after-access"),
    duration(_PARTIAL + "expire-after-write"),
    boolean(_PARTIAL + "cache-missing-key", default=True),
    integer("lookup.max-retries", 3),
)


def caching_of(options: Options) -> LookupCaching | None:
    """What a table's options say of the cache; None: there is none.

    Raises:
        ValidationError: it would grow for good, or a number makes no sense.
    """
    retries = options["lookup.max-retries"]
    if retries < 0:
        message = f"{options.owner}: 'lookup.max-retries' is {retries}; it must be at least 0."
        raise ValidationError(message)
    if options["lookup.cache"] == "none":
        return None
    limits = [options[_PARTIAL + each] for each in ("max-rows", "expire-after-access")]
    limits.append(options[_PARTIAL + "expire-after-write"])
    if all(each is None for each in limits):
        message = (
            f"{options.owner}: a partial cache needs '{_PARTIAL}max-rows', "
            f"'{_PARTIAL}expire-after-access' or '{_PARTIAL}expire-after-write'."
        )
        raise ValidationError(message)
    if any(each is not None and each <= 0 for each in limits):
        message = f"{options.owner}: limits of the partial cache must be greater than 0."
        raise ValidationError(message)
    rows, access, write = limits
    return LookupCaching(rows, access, write, options[_PARTIAL + "cache-missing-key"])
