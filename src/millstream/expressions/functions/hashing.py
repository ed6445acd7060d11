"""The hash functions of Flink's reference: MD5 and the SHA family, in hexadecimal digits.

Read next: ``expressions/functions/definition.py``.
"""

from __future__ import annotations

import hashlib
from typing import Final

from millstream.expressions.functions.definition import FunctionGroup
from millstream.expressions.functions.signatures import binary, character, integer, signature
from millstream.types.logical_types import CharType, VarCharType

__all__ = ["functions"]

functions = FunctionGroup("hash")

_SHA2: Final = (224, 256, 384, 512)


def _hashed(name: str, data: str | bytes) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return hashlib.new(name, raw, usedforsecurity=False).hexdigest()


def _register(name: str, algorithm: str, length: int, example: str) -> None:
    def hashed(data: str | bytes) -> str:
        return _hashed(algorithm, data)

    functions.scalar(
        name,
        signatures=(
            signature(character(), result=CharType(length)),
            signature(binary(), result=CharType(length)),
        ),
        can_fail=False,
        documentation=f"The {algorithm.upper()} hash of a string, in UTF-8, or of bytes.",
        examples=((f"SUBSTRING({name}('abc'), 1, 8)", example),),
    )(hashed)


_register("MD5", "md5", 32, "90015098")
_register("SHA1", "sha1", 40, "a9993e36")
_register("SHA224", "sha224", 56, "23097d22")
_register("SHA256", "sha256", 64, "ba7816bf")
_register("SHA384", "sha384", 96, "cb00753f")
_register("SHA512", "sha512", 128, "ddaf35a1")


@functions.scalar(
    "SHA2",
    signatures=(
        signature(character(), integer("bits"), result=VarCharType(128)),
        signature(binary(), integer("bits"), result=VarCharType(128)),
    ),
    examples=(("SUBSTRING(SHA2('abc', 256), 1, 8)", "ba7816bf"),),
)
def sha2(data: str | bytes, bits: int) -> str:
    """The SHA-2 hash of a string, in UTF-8, or of bytes: 224, 256, 384 or 512 bits of it."""
    if bits not in _SHA2:
        message = f"SHA2: there are 224, 256, 384 and 512 bits, not {bits}"
        raise ValueError(message)
    return _hashed(f"sha{bits}", data)
