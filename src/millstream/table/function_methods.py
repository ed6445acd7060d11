"""Methods of expressions that only call a function of SQL, from the table of their signatures.

A type checker reads the stub beside this module: ``python -m tests.table.function_stub`` writes it.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from millstream.table.expression_nodes import BaseExpression

#: ``method(parameters)`` -> what it returns.  It calls the function of its name, or of the name
#: after a colon.  "?": the parameter may be left out.
METHODS: Final = {
    # Numbers.
    "round(places)": "Round to digits after the decimal point.",
    "truncate(n=0)": "Cut off after digits after the decimal point.",
    # Text.
    "sha2(hash_length)": "Hash by SHA-2 of a length in bits.",
    "concat(other)": "Append another text.",
    "starts_with(start_expr): STARTSWITH": "Test if the text starts with another.",
    "ends_with(end_expr): ENDSWITH": "Test if the text ends with another.",
    "substring(begin_index, length?)": "Return the part from a position (from 1).",
    "substr(begin_index, length?)": "Return the part from a position (from 1).",
    "replace(search?, replacement?)": "Replace each occurrence of a text by another.",
    "translate(from_str, to_str)": "Replace characters by those at the same place of another text.",
    "lpad(length, pad)": "Fill up to a length on the left.",
    "rpad(length, pad)": "Fill up to a length on the right.",
    "overlay(new_string, starting, length?)": "Write a text over the part from a position.",
    "position(haystack?)": "Return the position in another text, from 1; 0 if it is not there.",
    "regexp(regex)": "Test if a regular expression matches a part.",
    "regexp_count(regex)": "Count the matches of a regular expression.",
    "regexp_replace(regex, replacement)": "Replace the matches of a regular expression.",
    "regexp_extract(regex, extract_index?)": "Return a group of the first match.",
    "regexp_extract_all(regex, extract_index?)": "Return a group of each match, as an array.",
    "regexp_instr(regex)": "Return the position of the first match, from 1.",
    "regexp_substr(regex)": "Return the first match of a regular expression.",
    "decode(charset)": "Decode bytes to text.",
    "encode(charset)": "Encode text to bytes.",
    "left(length)": "Return the first characters.",
    "right(length)": "Return the last characters.",
    "instr(s)": "Return the position of another text in this one, from 1; 0 if it is not there.",
    "locate(s, pos?)": "Return the position in another text, searched from a position.",
    "url_decode()": "Decode a text that is encoded for a URL.",
    "url_encode()": "Encode the text for a URL.",
    "inet_aton()": "Convert an IPv4 address to its number.",
    "inet_ntoa()": "Convert a number to an IPv4 address.",
    "parse_url(part_to_extract, key?)": "Return a part of a URL.",
    "ltrim(trim_str?)": "Remove blanks, or these characters, on the left.",
    "rtrim(trim_str?)": "Remove blanks, or these characters, on the right.",
    "btrim(trim_str?)": "Remove blanks, or these characters, on both sides.",
    "repeat(n)": "Repeat the text.",
    "split_index(separator, index)": "Return a part between separators, from 0.",
    "str_to_map(list_delimiter?, key_value_delimiter?)": "Parse a text as a map.",
    "split(delimiter)": "Return the parts between delimiters, as an array.",
    "printf(*obj)": "Fill values into the text as a format.",
    "elt(expr, *exprs)": "Return the value at this position (from 1).",
    "json_quote()": "Write the text as JSON, in quotes.",
    "json_unquote()": "Return the text that a JSON string stands for.",
    # Arrays, maps and objects.
    "object_update(*kv)": "Replace fields of an object, given as names and values alternately.",
    "array_append(addition)": "Add an element at the end.",
    "array_contains(needle)": "Test if a value is in the array.",
    "array_distinct()": "Keep each element once.",
    "array_position(needle)": "Return the position of a value, from 1; 0 if it is not there.",
    "array_prepend(addition)": "Add an element at the beginning.",
    "array_remove(needle)": "Remove a value.",
    "array_reverse()": "Reverse the array.",
    "array_slice(start_offset, end_offset?)": "Return the part between positions (from 1).",
    "array_union(array)": "Return the elements of both arrays, each once.",
    "array_max()": "Return the greatest element.",
    "array_min()": "Return the least element.",
    "array_join(delimiter, null_replacement?)": "Join the elements to one text.",
    "array_except(array)": "Return the elements that are not in another array.",
    "array_intersect(array)": "Return the elements that are in both arrays.",
    "array_sort(ascending_order?, null_first?)": "Sort the elements.",
    "array_concat(*arrays)": "Append the elements of other arrays.",
    "map_union(*maps)": "Merge with other maps; the last value of a key counts.",
    # Bitmaps.
    "bitmap_build()": "Build a bitmap of the integers of an array.",
    "bitmap_from_bytes()": "Read a bitmap from the portable format of Roaring bitmaps.",
    "bitmap_and(bitmap2)": "Return the integers that are in both.",
    "bitmap_andnot(bitmap2)": "Return the integers that are not in the other.",
    "bitmap_or(bitmap2)": "Return the integers that are in either.",
    "bitmap_xor(bitmap2)": "Return the integers that are in exactly one of the two.",
    "bitmap_cardinality()": "Count the integers.",
    "bitmap_to_array()": "Return the integers as an array.",
    "bitmap_to_bytes()": "Write the bitmap in the portable format of Roaring bitmaps.",
    "bitmap_to_string()": "Return the integers as text, without a sign.",
    "bitmap_build_agg()": "Aggregate integers to a bitmap.",
    "bitmap_build_cardinality_agg()": "Count the distinct integers of all rows.",
    "bitmap_and_agg()": "Return the integers that are in all bitmaps.",
    "bitmap_and_cardinality_agg()": "Count the integers that are in all bitmaps.",
    "bitmap_or_agg()": "Return the integers that are in any of the bitmaps.",
    "bitmap_or_cardinality_agg()": "Count the integers that are in any of the bitmaps.",
    "bitmap_xor_agg()": "Return the integers that are in an odd number of the bitmaps.",
    "bitmap_xor_cardinality_agg()": "Count the integers that are in an odd number of the bitmaps.",
    # Aggregates.
    "list_agg(separator?): LISTAGG": "Join the texts of all rows, with separators.",
    "percentile(percentage, frequency?)": "Return the value below which a part of all lies.",
}


def signature_of(declaration: str) -> tuple[str, str, inspect.Signature]:
    """Return the method that a key of ``METHODS`` declares.

    Returns:
        Its name, the function of SQL that it calls, and its signature.
    """
    method, _, function = declaration.partition(": ")
    name, _, parameters = method.removesuffix(")").partition("(")
    listed = [_parameter(each) for each in ("self", *parameters.split(", ")) if each]
    return name, function or name.upper(), inspect.Signature(listed, return_annotation="Self")


def _parameter(text: str) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if text.startswith("*"):
        return inspect.Parameter(text[1:], inspect.Parameter.VAR_POSITIONAL)
    if text.endswith("?"):
        return inspect.Parameter(text[:-1], kind, default=None)
    name, _, default = text.partition("=")
    return inspect.Parameter(
        name, kind, default=int(default) if default else inspect.Parameter.empty
    )


class FunctionMethods(BaseExpression):
    """Expressions that have the methods of the table."""


def _define(declaration: str, documentation: str) -> None:
    name, function, signature = signature_of(declaration)

    def method(*given: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            message = f"{name}(): {error}"
            raise TypeError(message) from None
        bound.apply_defaults()
        expression, *arguments = bound.args
        return expression._call(function, *arguments)  # noqa: SLF001 - a method of it

    method.__name__ = name
    method.__qualname__ = f"{FunctionMethods.__qualname__}.{name}"
    method.__doc__ = documentation
    method.__annotations__ = {"return": "Self"}
    method.__signature__ = signature  # type: ignore[attr-defined]
    setattr(FunctionMethods, name, method)


for _declaration, _documentation in METHODS.items():
    _define(_declaration, _documentation)
