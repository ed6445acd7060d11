"""Methods of expressions that are numbers.

What it is: PyFlink's names over functions of SQL, whose reference says what they do.
What it is not: the functions (``expressions/functions/``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.table.expression_nodes import BaseExpression, function_node

if TYPE_CHECKING:
    from typing import Self

__all__ = ["NumberMethods"]


class NumberMethods(BaseExpression):
    """What can be made of numbers."""

    @property
    def exp(self) -> Self:
        """Euler's number to the power of it."""
        return self._call("EXP")

    @property
    def log10(self) -> Self:
        """The logarithm of base 10."""
        return self._call("LOG10")

    @property
    def log2(self) -> Self:
        """The logarithm of base 2."""
        return self._call("LOG2")

    @property
    def ln(self) -> Self:
        """The natural logarithm."""
        return self._call("LN")

    @property
    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return self._call("COSH")

    @property
    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return self._call("SINH")

    @property
    def sin(self) -> Self:
        """The sine."""
        return self._call("SIN")

    @property
    def cos(self) -> Self:
        """The cosine."""
        return self._call("COS")

    @property
    def tan(self) -> Self:
        """The tangent."""
        return self._call("TAN")

    @property
    def cot(self) -> Self:
        """The cotangent."""
        return self._call("COT")

    @property
    def asin(self) -> Self:
        """The arc sine."""
        return self._call("ASIN")

    @property
    def acos(self) -> Self:
        """The arc cosine."""
        return self._call("ACOS")

    @property
    def atan(self) -> Self:
        """The arc tangent."""
        return self._call("ATAN")

    @property
    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self._call("TANH")

    @property
    def degrees(self) -> Self:
        """An angle in degrees."""
        return self._call("DEGREES")

    @property
    def radians(self) -> Self:
        """An angle in radians."""
        return self._call("RADIANS")

    @property
    def sqrt(self) -> Self:
        """The square root."""
        return self._call("SQRT")

    @property
    def abs(self) -> Self:
        """Without its sign."""
        return self._call("ABS")

    @property
    def sign(self) -> Self:
        """Its sign: -1, 0 or 1."""
        return self._call("SIGN")

    @property
    def bin(self) -> Self:
        """In binary digits."""
        return self._call("BIN")

    @property
    def hex(self) -> Self:
        """In hexadecimal digits."""
        return self._call("HEX")

    @property
    def unhex(self) -> Self:
        """The bytes of hexadecimal digits."""
        return self._call("UNHEX")

    def log(self, base: Any = None) -> Self:
        """The logarithm of a base; without one, the natural one."""
        if base is None:
            return self._call("LOG")
        return self._of(function_node("LOG", base, self))

    def round(self, places: Any) -> Self:
        """Rounded to places behind the point."""
        return self._call("ROUND", places)

    def truncate(self, n: Any = 0) -> Self:
        """Cut off at places behind the point."""
        return self._call("TRUNCATE", n)
