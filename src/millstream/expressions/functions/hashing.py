"""Hash functions of Flink's reference, and HASH_CODE, which distributes DISTINCT values."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.expressions.functions.definition import (
    FunctionGroup,
    binary,
    character,
    integer,
    signature,
)
from millstream.types.logical_types import CharType, IntType, VarCharType

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import CallInfo


functions = FunctionGroup("hash")

_SHA2: Final = (1, 224, 256, 384, 512)


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
    """The SHA-2 hash of a string, in UTF-8, or of bytes: 224, 256, 384 or 512 bits of it.

    As in Flink, 1 stands for SHA-1 where it is no constant.
    """
    if bits not in _SHA2:
        message = f"SHA2: there are 224, 256, 384 and 512 bits, not {bits}"
        raise ValueError(message)
    return _hashed(f"sha{bits}", data)


#: Knuth's multiplier for numbers of 64 bits, whose upper half tells them apart.
_FACTOR: Final = 6364136223846793005
_MASK: Final = 2**64 - 1
_UPPER: Final = 33


def _hash_code_kernel(_: CallInfo, value: Any) -> Any:
    if not isinstance(value, pa.Array):
        return NotImplemented
    if not pa.types.is_integer(value.type):
        coded = value.dictionary_encode()
        codes = [None if each is None else hash_code(each) for each in coded.dictionary.to_pylist()]
        return pa.array(codes, pa.int32()).take(coded.indices)
    numbers = value.fill_null(0).cast(pa.int64()).to_numpy().view(np.uint64)
    codes = ((numbers * np.uint64(_FACTOR)) >> np.uint64(_UPPER)).astype(np.int32)
    return pa.array(codes, mask=np.asarray(value.is_null()))


@functions.scalar(
    "HASH_CODE",
    signatures=(signature(integer(), result=IntType()), signature(character(), result=IntType())),
    kernel=_hash_code_kernel,
    can_fail=False,
    examples=(("HASH_CODE('abc')", "891568578"), ("HASH_CODE(7)", "891213470")),
)
def hash_code(value: int | str) -> int:
    """A whole number, not negative, of what a value is; the same in every run and release.

    The planner writes it where it spreads the values of DISTINCT
    (``table.optimizer.distinct-agg.split.enabled``).  It is not the number that Flink has.
    """
    if isinstance(value, str):
        return zlib.crc32(value.encode()) & 0x7FFFFFFF
    return (value * _FACTOR & _MASK) >> _UPPER
