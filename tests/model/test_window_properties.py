"""Window operators against the model: every assigner x trigger x evictor x function.

Random records out of order, random watermarks, lateness, steps of processing time, epochs cut
and crashed anywhere: the outputs of every step, their order per key, their timestamps and the
late records must be those of the model.
"""

from __future__ import annotations

import itertools

import pytest
from tests.model.cases import cases
from tests.model.window_programs import (
    ASSIGNERS,
    EVICTORS,
    FUNCTIONS,
    TRIGGERS,
    check,
    random_program,
    random_script,
)

NEVER_TOGETHER = {
    (assigner, trigger)
    for assigner in ASSIGNERS
    if "session" in assigner
    for trigger in ("delta", "never")
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("assigner", "trigger"),
    [pair for pair in itertools.product(ASSIGNERS, TRIGGERS) if pair not in NEVER_TOGETHER],
)
def test_oracle_assigner_and_trigger(assigner: str, trigger: str) -> None:
    for chance, replay in cases(4):
        program = random_program(chance, assigner=assigner, trigger=trigger)
        check(program, random_script(chance), replay)


@pytest.mark.parametrize(
    ("evictor", "function"),
    [
        (evictor, function)
        for evictor, function in itertools.product(EVICTORS, FUNCTIONS)
        if not (evictor == "odd" and function.startswith("reduce"))
    ],
)
def test_oracle_evictor_and_function(evictor: str, function: str) -> None:
    for chance, replay in cases(10):
        program = random_program(chance, evictor=evictor, function=function)
        check(program, random_script(chance), replay)
