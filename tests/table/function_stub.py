"""``python -m tests.table.function_stub`` writes the stub of the methods that call a function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.table import function_methods

if TYPE_CHECKING:
    import inspect

STUB: Final = Path(function_methods.__file__).with_suffix(".pyi")
_HEAD: Final = """\
# Written by `python -m tests.table.function_stub`.
import inspect
from typing import Any, Final, Self

from millstream.table.expression_nodes import BaseExpression

METHODS: Final[dict[str, str]]

def signature_of(declaration: str) -> tuple[str, str, inspect.Signature]: ...

class FunctionMethods(BaseExpression):
"""


def stub() -> str:
    """Return the text of the stub."""
    return _HEAD + "".join(map(_line, function_methods.METHODS))


def _line(declaration: str) -> str:
    name, _, signature = function_methods.signature_of(declaration)
    parameters = [_shown(each) for each in signature.parameters.values()]
    return f"    def {name}({', '.join(parameters)}) -> Self: ...\n"


def _shown(parameter: inspect.Parameter) -> str:
    if parameter.name == "self":
        return "self"
    annotated = parameter.replace(annotation=Any)
    return str(annotated).replace("typing.Any", "Any")


if __name__ == "__main__":
    STUB.write_text(stub())
