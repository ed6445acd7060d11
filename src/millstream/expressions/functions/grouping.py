"""Grouping functions of Flink's reference: GROUPING and GROUP_ID, names and types."""

from __future__ import annotations

from millstream.expressions.functions.definition import (
    BIGINT,
    FunctionDefinition,
    FunctionGroup,
    FunctionKind,
    Nullability,
    NullBehaviour,
    any_type,
    signature,
)

functions = FunctionGroup("grouping")

functions.add(
    FunctionDefinition(
        "GROUPING",
        "grouping",
        FunctionKind.AGGREGATE,
        aliases=("GROUPING_ID",),
        signatures=(
            signature(
                any_type("expression"), result=BIGINT, repeats=True, nullability=Nullability.NEVER
            ),
        ),
        nulls=NullBehaviour.CALLED,
        documentation="Bits that show which of the expressions are not grouped by in the grouping "
        "set of the row, the first expression's being the highest.",
        syntax="GROUPING(expression1, ...), GROUPING_ID(expression1, ...)",
    )
)
functions.add(
    FunctionDefinition(
        "GROUP_ID",
        "grouping",
        FunctionKind.AGGREGATE,
        signatures=(signature(result=BIGINT, nullability=Nullability.NEVER),),
        nulls=NullBehaviour.CALLED,
        documentation="A number that distinguishes grouping sets of the same expressions.",
    )
)
