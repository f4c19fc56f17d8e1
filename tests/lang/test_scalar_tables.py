"""The tables of functions agree: what has a signature has an implementation, and the other way round."""

from __future__ import annotations

from rederive.ir.terms import FLOAT, NUMBER
from rederive.scalar.datalog.implementations import functor_function
from rederive.scalar.datalog.signatures import FUNCTORS
from rederive.scalar.sql.casts import CASTS
from rederive.scalar.sql.dates import DATES
from rederive.scalar.sql.implementations import scalar_function
from rederive.scalar.sql.numbers import ARITHMETIC, ROUNDING
from rederive.scalar.sql.signatures import LAZY, SCALARS
from rederive.scalar.sql.text import TEXT


def test_each_scalar_function_has_an_implementation() -> None:
    compiled = {*LAZY, "in"}  # the engines compile these
    for name in SCALARS.keys() - compiled:
        assert callable(scalar_function(name, (), FLOAT)), name


def test_each_implementation_has_a_signature() -> None:
    tables = (ARITHMETIC, ROUNDING, CASTS, TEXT, DATES)
    implemented = {entry if isinstance(entry, str) else entry.name for table in tables for entry in table}
    assert SCALARS.keys() >= implemented


def test_each_functor_has_an_implementation() -> None:
    for functor in FUNCTORS.values():
        assert callable(functor_function(functor.name, NUMBER, functor.arity[0])), functor.name
