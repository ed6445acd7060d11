"""The JSON functions of Flink's reference, PARSE_JSON and TRY_PARSE_JSON.

The clauses of their grammar are arguments here, in the order of ``expressions/resolution.py``:

- ``JSON_EXISTS(json, path[, on_error])``
- ``JSON_VALUE(json, path[, returning, on_empty, default, on_error, default])``
- ``JSON_QUERY(json, path[, returning, wrapper, on_empty, on_error])``
- ``JSON_OBJECT(on_null, key, value, ...)``, ``JSON_ARRAY(on_null, value, ...)``: the symbol
  on_null is ``NULL`` or ``ABSENT``, followed by the positions of values that are JSON already:
  ``NULL:0,2``
- ``IS JSON``, ``IS JSON OBJECT`` and so on: of one string

``returning`` is a NULL of the type wanted; the behavior ON EMPTY and ON ERROR is a symbol.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from json import JSONDecoder
from typing import TYPE_CHECKING, Any, Final, NoReturn

from millstream.errors import ProgramError
from millstream.expressions.functions.definition import (
    BOOLEAN,
    STRING,
    Argument,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    signature,
)
from millstream.expressions.java.strings import from_units, to_units
from millstream.expressions.json_path import (
    InvalidPathError,
    PathError,
    compile_path,
    is_scalar,
    json_of,
    parse,
    refuse_constant,
    scalar_text,
    serialise,
    supports_json,
)
from millstream.types.bitmaps import VariantType
from millstream.types.logical_types import ArrayType
from millstream.types.type_roots import TypeRoot
from millstream.types.variants import encode_variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import CallInfo
    from millstream.types.logical_types import LogicalType


functions = FunctionGroup("json")

_ALWAYS: Final = Nullability.ALWAYS
_NEVER: Final = Nullability.NEVER
_MODE: Final = re.compile(r"\s*(strict|lax)\s+(.+)", re.IGNORECASE | re.DOTALL)
_LEAST_INT, _MOST_INT = -(2**31), 2**31 - 1


# -- looking into JSON ------------------------------------------------------------------------


class _JsonError(ValueError):
    """An error that the ON ERROR clause is about."""


def _fail(what: str) -> NoReturn:
    raise _JsonError(what)


@lru_cache(maxsize=512)
def _mode_and_path(text: str) -> tuple[bool, str]:
    match = _MODE.fullmatch(text)
    return (False, text) if match is None else (match[1].lower() == "lax", match[2])


def _at_path(text: str, path_text: str) -> tuple[bool, Any]:
    """Return whether the mode is lax, and what is at the path; None where nothing is.

    Raises:
        _JsonError: there is an error: strict mode and nothing there, or a wrong path or text.
    """
    lax, inner = _mode_and_path(path_text)
    try:
        root = parse(text)
    except ValueError as error:
        if lax:
            return True, None
        raise _JsonError(str(error)) from error
    try:
        path = compile_path(inner)
        if root is None:
            _fail("the JSON is null")
        value = path.read(root)
        if value is None and not lax:
            _fail(f"null at {inner}")
    except InvalidPathError as error:
        raise _JsonError(str(error)) from error
    except PathError as error:
        if lax:
            return True, None
        raise _JsonError(str(error)) from error
    return lax, value


@functions.scalar(
    "JSON_EXISTS",
    signature("string json, string path[, symbol on_error]", result=BOOLEAN, nullability=_ALWAYS),
    costly=True,
    syntax="JSON_EXISTS(json, path [{TRUE | FALSE | UNKNOWN | ERROR} ON ERROR])",
    examples=(
        ("""JSON_EXISTS('{"a": [{"b": 1}]}', '$.a[0].b')""", "TRUE"),
        ("""JSON_EXISTS('{"a": true}', 'strict $.b' TRUE ON ERROR)""", "TRUE"),
    ),
)
def json_exists(text: str, path: str, on_error: str = "FALSE") -> bool | None:
    """Return whether there is something at a path of a JSON text.

    In strict mode, which is the default, nothing there (or a null) is an error; in lax mode it is
    just not there.  FALSE ON ERROR is the default.
    """
    try:
        return _at_path(text, path)[1] is not None
    except _JsonError:
        if on_error == "ERROR":
            raise
        return {"TRUE": True, "FALSE": False}.get(on_error)


def _returning(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    return types[2] if len(types) > 2 else STRING  # noqa: PLR2004 - the third argument


_RETURNED: Final = frozenset(
    {TypeRoot.VARCHAR, TypeRoot.BOOLEAN, TypeRoot.INTEGER, TypeRoot.DOUBLE}
)
_RETURNED_TYPE: Final = Argument(
    "returning",
    lambda type_: type_ if type_.root in _RETURNED else None,
    "STRING | BOOLEAN | INTEGER | DOUBLE",
)


def _as_returned(value: Any, type_: LogicalType) -> Any:
    if type_.root is TypeRoot.VARCHAR:
        return scalar_text(value)
    fits = {
        TypeRoot.BOOLEAN: isinstance(value, bool),
        TypeRoot.INTEGER: type(value) is int and _LEAST_INT <= value <= _MOST_INT,
        TypeRoot.DOUBLE: isinstance(value, int | Decimal) and not isinstance(value, bool),
    }
    if not fits[type_.root]:
        message = f"JSON_VALUE: {scalar_text(value)} is no {type_.as_summary_string()}"
        raise ValueError(message)
    return float(value) if type_.root is TypeRoot.DOUBLE else value


@functions.scalar(
    "JSON_VALUE",
    signature("string json, string path", result=STRING, nullability=_ALWAYS),
    signature(
        "string json, string path",
        _RETURNED_TYPE,
        "symbol on_empty, any default_on_empty, symbol on_error, any default_on_error",
        result=_returning,
        nullability=_ALWAYS,
    ),
    nulls=NullBehaviour.CALLED,
    contextual=True,
    costly=True,
    syntax="JSON_VALUE(json, path [RETURNING type] [{NULL | ERROR | DEFAULT value} ON EMPTY] "
    "[{NULL | ERROR | DEFAULT value} ON ERROR])",
    examples=(
        ("""JSON_VALUE('{"a": true}', '$.a')""", "true"),
        ("""JSON_VALUE('{"a.b": [0.998, 0.996]}', '$.["a.b"][0]' RETURNING DOUBLE)""", "0.998"),
        ("""JSON_VALUE('{"a": true}', 'lax $.b' DEFAULT 'none' ON EMPTY)""", "none"),
    ),
)
def json_value(
    info: CallInfo,
    text: str | None,
    path: str | None,
    _returning_type: None = None,
    on_empty: str = "NULL",
    default_on_empty: Any = None,
    on_error: str = "NULL",
    default_on_error: Any = None,
) -> Any:
    """The scalar at a path of a JSON text, as STRING, BOOLEAN, INTEGER or DOUBLE.

    ON EMPTY is for what lax mode does not find (an array or an object is not found either), ON
    ERROR for what strict mode, which is the default, does not find, and for wrong JSON in it.  A
    scalar of another kind than is to be returned fails, with any ON ERROR.
    """
    if text is None or path is None:
        return None
    try:
        lax, value = _at_path(text, path)
        if value is not None and is_scalar(value):
            return _as_returned(value, info.result_type)
        if not lax:
            _fail(f"no scalar at {path}")
    except _JsonError:
        if on_error == "ERROR":
            raise
        return default_on_error if on_error == "DEFAULT" else None
    if on_empty == "ERROR":
        message = f"JSON_VALUE: nothing at {path}"
        raise ValueError(message)
    return default_on_empty if on_empty == "DEFAULT" else None


_QUERIED_TYPE: Final = Argument(
    "returning", lambda type_: type_ if _is_queried(type_) else None, "STRING | ARRAY<STRING>"
)


def _is_queried(type_: LogicalType) -> bool:
    if isinstance(type_, ArrayType):
        type_ = type_.element
    return type_.root is TypeRoot.VARCHAR


@functions.scalar(
    "JSON_QUERY",
    signature("string json, string path", result=STRING, nullability=_ALWAYS),
    signature(
        "string json, string path",
        _QUERIED_TYPE,
        "symbol wrapper, symbol on_empty, symbol on_error",
        result=_returning,
        nullability=_ALWAYS,
    ),
    nulls=NullBehaviour.CALLED,
    contextual=True,
    costly=True,
    syntax="JSON_QUERY(json, path [RETURNING type] [{WITHOUT | WITH CONDITIONAL | WITH "
    "UNCONDITIONAL} [ARRAY] WRAPPER] [{NULL | EMPTY ARRAY | EMPTY OBJECT | ERROR} ON EMPTY] "
    "[{NULL | EMPTY ARRAY | EMPTY OBJECT | ERROR} ON ERROR])",
    examples=(
        ("""JSON_QUERY('{"a": {"b": 1}}', '$.a')""", '{"b":1}'),
        ("""JSON_QUERY('{"a":[{"c":"c1"},{"c":"c2"}]}', 'lax $.a[*].c')""", '["c1","c2"]'),
        ("""JSON_QUERY('1', '$' WITH CONDITIONAL ARRAY WRAPPER)""", "[1]"),
    ),
)
def json_query(
    info: CallInfo,
    text: str | None,
    path: str | None,
    _returning_type: None = None,
    wrapper: str = "WITHOUT",
    on_empty: str = "NULL",
    on_error: str = "NULL",
) -> Any:
    """The array or object at a path of a JSON text, as JSON text or as ARRAY<STRING>.

    A scalar is only found with a wrapper: WITH CONDITIONAL makes an array of what is none, WITH
    UNCONDITIONAL of everything.  ON EMPTY is for lax mode, ON ERROR for strict mode, which is the
    default.
    """
    if text is None or path is None:
        return None
    as_array = isinstance(info.result_type, ArrayType)
    try:
        lax, value = _at_path(text, path)
        if value is not None:
            value = _wrapped(value, wrapper)
        if value is not None and not is_scalar(value):
            return _queried(value, as_array=as_array)
        if not lax:
            _fail(f"no array or object at {path}")
    except _JsonError:
        if on_error == "ERROR":
            raise
        return _instead(on_error, as_array=as_array)
    if on_empty == "ERROR":
        message = f"JSON_QUERY: nothing at {path}"
        raise ValueError(message)
    return _instead(on_empty, as_array=as_array)


def _wrapped(value: Any, wrapper: str) -> Any:
    wraps = wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(value, list))
    return [value] if wraps else value


def _queried(value: Any, *, as_array: bool) -> str | tuple[str | None, ...]:
    if not as_array:
        return serialise(value)
    if not isinstance(value, list):
        _fail("an object is no array")
    return tuple(
        None if one is None else scalar_text(one) if is_scalar(one) else serialise(one)
        for one in value
    )


def _instead(behaviour: str, *, as_array: bool) -> str | tuple[str, ...] | None:
    if behaviour == "EMPTY ARRAY":
        return () if as_array else "[]"
    if behaviour == "EMPTY OBJECT":
        if as_array:
            message = "JSON_QUERY: an array cannot be an empty object"
            raise ValueError(message)
        return "{}"
    return None


# -- predicates -------------------------------------------------------------------------------


def _is_json(text: str | None, kind: str) -> bool:
    if text is None:
        return False
    try:
        value = parse(text)
    except ValueError:
        return False
    if kind == "VALUE":
        return True
    wanted = {"OBJECT": isinstance(value, dict), "ARRAY": isinstance(value, list)}
    return wanted.get(kind, is_scalar(value))


def _register_predicate(kind: str, *, negated: bool, example: tuple[str, str]) -> None:
    def is_json(text: str | None) -> bool:
        return _is_json(text, kind) is not negated

    word = "IS NOT JSON" if negated else "IS JSON"
    functions.scalar(
        word if kind == "VALUE" else f"{word} {kind}",
        signature("string", result=BOOLEAN, nullability=_NEVER),
        nulls=NullBehaviour.CALLED,
        can_fail=False,
        costly=True,
        syntax=f"string {word} {'[VALUE]' if kind == 'VALUE' else kind}",
        documentation=f"{'FALSE' if negated else 'TRUE'} if a string begins with "
        f"{_KINDS[kind]}; {'TRUE' if negated else 'FALSE'} for NULL.",
        examples=(example,),
    )(is_json)


_KINDS: Final = {
    "VALUE": "a JSON value",
    "OBJECT": "a JSON object",
    "ARRAY": "a JSON array",
    "SCALAR": "a JSON string, number, boolean or null",
}
for _kind, _text in (("VALUE", "1"), ("OBJECT", "{}"), ("ARRAY", "[1]"), ("SCALAR", "1")):
    _register_predicate(_kind, negated=False, example=(f"'{_text}' IS JSON {_kind}", "TRUE"))
    _register_predicate(_kind, negated=True, example=(f"'{_text}' IS NOT JSON {_kind}", "FALSE"))


# -- making JSON ------------------------------------------------------------------------------

_JSON_VALUE: Final = Argument(
    "value", lambda type_: type_ if supports_json(type_) else None, "JSON VALUE"
)


def _on_null(word: str) -> tuple[bool, frozenset[int]]:
    """Return whether NULLs are written, and which values are JSON already."""
    behaviour, _, positions = word.partition(":")
    raw = frozenset(int(position) for position in positions.split(",") if position)
    return behaviour == "NULL", raw


@functions.scalar(
    "JSON_STRING",
    signature(_JSON_VALUE, "symbol raw", result=STRING, optional=1),
    contextual=True,
    syntax="JSON_STRING(value)",
    examples=(("JSON_STRING(ARRAY[1, 2])", "[1,2]"), ("JSON_STRING('a\"b')", '"a\\"b"')),
)
def json_string(info: CallInfo, value: Any, raw: str = "") -> str:
    """A value as JSON text; NULL for NULL.  Dates, times and intervals are not taken."""
    return serialise(json_of(value, info.argument_types[0], raw=bool(raw)))


def _pairs(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    if len(types) % 2 == 0:
        message = "JSON_OBJECT: a value is missing"
        raise ProgramError(message)
    return STRING


@functions.scalar(
    "JSON_OBJECT",
    signature(
        "symbol on_null", _JSON_VALUE, result=_pairs, repeats=True, optional=1, nullability=_NEVER
    ),
    nulls=NullBehaviour.CALLED,
    contextual=True,
    syntax="JSON_OBJECT([[KEY] key VALUE value, ...] [{NULL | ABSENT} ON NULL])",
    examples=(
        ("JSON_OBJECT('K1' VALUE 'V1', 'K2' VALUE 2)", '{"K1":"V1","K2":2}'),
        ("JSON_OBJECT('a' VALUE CAST(NULL AS STRING) ABSENT ON NULL)", "{}"),
        ("JSON_OBJECT('a' VALUE JSON_ARRAY(1))", '{"a":[1]}'),
    ),
)
def json_object(info: CallInfo, on_null: str, *pairs: Any) -> str:
    """A JSON object of keys and values, in the order of the keys; of equal keys the last counts.

    NULL ON NULL is the default.  Values that are made by JSON_OBJECT, JSON_ARRAY or JSON are put
    in as what they stand for.
    """
    keeps_null, raw = _on_null(on_null)
    found: dict[str, Any] = {}
    for at in range(0, len(pairs), 2):
        key, value = pairs[at], pairs[at + 1]
        if key is None:
            message = "JSON_OBJECT: a key is NULL"
            raise ValueError(message)
        if value is None and not keeps_null:
            continue
        found[key] = json_of(value, info.argument_types[at + 2], raw=at // 2 in raw)
    return serialise(found)


@functions.scalar(
    "JSON_ARRAY",
    signature(
        "symbol on_null", _JSON_VALUE, result=STRING, repeats=True, optional=1, nullability=_NEVER
    ),
    nulls=NullBehaviour.CALLED,
    contextual=True,
    syntax="JSON_ARRAY([value, ...] [{NULL | ABSENT} ON NULL])",
    examples=(
        ("JSON_ARRAY(1, '2')", '[1,"2"]'),
        ("JSON_ARRAY(CAST(NULL AS STRING) NULL ON NULL)", "[null]"),
        ("JSON_ARRAY(JSON_ARRAY(1))", "[[1]]"),
    ),
)
def json_array(info: CallInfo, on_null: str, *values: Any) -> str:
    """A JSON array of values; ABSENT ON NULL is the default.

    Values that are made by JSON_OBJECT, JSON_ARRAY or JSON are put in as what they stand for.
    """
    keeps_null, raw = _on_null(on_null)
    return serialise(
        [
            json_of(value, type_, raw=at in raw)
            for at, (value, type_) in enumerate(zip(values, info.argument_types[1:], strict=True))
            if value is not None or keeps_null
        ]
    )


@functions.scalar(
    "JSON",
    signature("string json", result=STRING, nullability=Nullability.ALWAYS),
    examples=(("""JSON_OBJECT('a' VALUE JSON('{"b": 1}'))""", '{"a":{"b":1}}'),),
)
def json_text(text: str) -> str | None:
    """Marks a string as JSON: only as a value of JSON_OBJECT or JSON_ARRAY.

    A blank string is NULL.
    """
    if not text.strip():
        return None
    parse(text)
    return text


# -- quoting ----------------------------------------------------------------------------------

_QUOTED: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_UNQUOTED: Final = {mark[1]: character_ for character_, mark in _QUOTED.items()}
_FIRST_PRINTED, _LAST_PRINTED = 0x20, 0x7E


functions.total(
    "JSON_QUOTE",
    "A string as a JSON string: in quotes, with what is not printable ASCII escaped.",
    lambda text: '"' + "".join(map(_quoted_character, text)) + '"',
    signature("string", result=STRING),
    examples=((r"""JSON_QUOTE('a"b')""", r'"a\"b"'),),
)


def _quoted_character(character_: str) -> str:
    if character_ in _QUOTED:
        return _QUOTED[character_]
    if _FIRST_PRINTED <= ord(character_) <= _LAST_PRINTED:
        return character_
    # As Flink: the code point first, then the second half of a pair of surrogates again.
    units = to_units(character_)
    return f"\\u{ord(character_):04x}" + "".join(f"\\u{ord(unit):04x}" for unit in units[1:])


_UNQUOTE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


@functions.scalar(
    "JSON_UNQUOTE",
    signature("string", result=STRING),
    can_fail=False,
    examples=((r"""JSON_UNQUOTE('"a\u0041"')""", "aA"), ("JSON_UNQUOTE('abc')", "abc")),
)
def json_unquote(text: str) -> str:
    """The string that a JSON string stands for; what is none stays as it is."""
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):  # noqa: PLR2004
        return text
    parts, at = [], 1
    end = len(text) - 1
    while at < end:
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        match = _UNQUOTE.match(text, at, end)
        if match is None or (match[1] is None and match[2] not in _UNQUOTED):
            return text
        parts.append(chr(int(match[1], 16)) if match[1] else _UNQUOTED[match[2]])
        at = match.end()
    return from_units("".join(parts))


variants: Final = FunctionGroup("variant")

_PLAIN: Final = re.compile(r"-?[0-9.]+")
_MOST_DIGITS: Final = 40
_ARGUMENTS: Final = "string json[, boolean allow_duplicate_keys]"


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _MOST_DIGITS else float(text)


def _fraction(text: str) -> Decimal | float:
    return Decimal(text) if _PLAIN.fullmatch(text) else float(text)


def _last_ones(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.pop(name, None)
        found[name] = value
    return found


def _only_ones(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the key {twice!r} comes twice"
        raise ValueError(message)
    return found


def _decoder(pairs: Any) -> JSONDecoder:
    return JSONDecoder(
        parse_int=_integer,
        parse_float=_fraction,
        parse_constant=refuse_constant,
        object_pairs_hook=pairs,
    )


_STRICT: Final = _decoder(_only_ones)
_LENIENT: Final = _decoder(_last_ones)


@variants.scalar(
    "PARSE_JSON",
    signature(_ARGUMENTS, result=VariantType()),
    examples=(
        (
            'JSON_STRING(PARSE_JSON(\'{"b": 1.50, "a": [null, 1e2]}\'))',
            '{"a":[null,100.0],"b":1.5}',
        ),
        ("JSON_STRING(PARSE_JSON('{\"a\": {\"b\": [5, 6]}}')['a']['b'][2])", "6"),
        ('JSON_STRING(PARSE_JSON(\'{"a": 1, "a": 2}\', TRUE))', '{"a":2}'),
    ),
)
def parse_json(text: Any, duplicates: Any = False) -> object:  # noqa: FBT002 - SQL's
    """The variant of a JSON text; what follows its first value is ignored.

    It fails where the text is no JSON, or where a key comes twice, unless the second argument is
    TRUE: then the last one counts.  ``variant['field']`` is a field of an object, ``variant[1]``
    the first element of an array, NULL if there is none; ``JSON_STRING`` writes a variant as JSON.
    """
    try:
        return encode_variant(parse(text, _LENIENT if duplicates else _STRICT))
    except (ValueError, RecursionError) as error:
        message = f"no JSON in {text!r:.100}: {error}"
        raise ValueError(message) from error


@variants.scalar(
    "TRY_PARSE_JSON",
    signature(_ARGUMENTS, result=VariantType(), nullability=Nullability.ALWAYS),
    can_fail=False,
    examples=(("TRY_PARSE_JSON('{') IS NULL", "TRUE"),),
)
def try_parse_json(text: Any, duplicates: Any = False) -> object:  # noqa: FBT002 - SQL's
    """As PARSE_JSON, but NULL where that fails."""
    try:
        return parse_json(text, duplicates)
    except ValueError:
        return None
