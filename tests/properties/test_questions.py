"""A question with any binding pattern is answered as the oracle answers it, whether or not the view is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.lang import compile_program
from tests.oracle import evaluate, initial
from tests.properties.programs import DOMAIN, Draw, Row, Signature, constant, scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario, apply, changed, examples, loading


@st.composite
def bindings(draw: Draw, view: Signature) -> dict[int, Any]:
    """Values for some of a view's columns; seldom one that no row has."""
    columns = draw(st.sets(st.sampled_from(range(len(view.types))))) if view.types else set()
    absent = {"symbol": "never", "number": 77, "float": 7.5}
    return {i: draw(st.sampled_from([*DOMAIN[view.types[i]], absent[view.types[i]]])) for i in sorted(columns)}


def matching(rows: set[Row], bound: dict[int, Any]) -> list[Row]:
    return sorted(row for row in rows if all(row[i] == value for i, value in bound.items()))


def atom(draw: Draw, view: Signature, bound: dict[int, Any]) -> tuple[str, list[list[int]]]:
    """A query's text, and the columns that share a variable."""
    terms: list[str] = []
    shared: dict[str, list[int]] = {}
    for i, kind in enumerate(view.types):
        if i in bound:
            terms.append(constant(bound[i]))
        elif draw(st.booleans()):
            terms.append("_")
        else:
            terms.append(f"{kind}{draw(st.integers(0, 1))}")
            shared.setdefault(terms[-1], []).append(i)
    return f"{view.name}({', '.join(terms)})", list(shared.values())


@pytest.mark.parametrize(("strategy", "share"), [("on_demand", 60), ("filtration", 15), ("recompute", 15), ("materialized", 15)])
def test_bound_rows_and_queries(strategy: str, share: int) -> None:
    @examples(share)
    @given(scenario=scenarios(), data=st.data())
    def check(scenario: Scenario, data: st.DataObject) -> None:
        sample, start, transactions = scenario
        program = compile_program(sample.text)
        db = rederive.open(strategy=strategy)
        db.define(sample.text)
        base = initial(program)
        for change in [loading(start), *transactions[:2]]:
            base = changed(base, change)
            with db.transaction() as tx:
                apply(tx, change)
            rows = evaluate(program, base)
            for view in sample.views:
                bound = data.draw(bindings(view))
                expected = matching(rows[view.name], bound)
                assert db.rows(view.name, **{f"c{i}": value for i, value in bound.items()}) == expected
                text, shared = data.draw(st.composite(atom)(view, bound))
                same = [row for row in expected if all(len({row[i] for i in where}) == 1 for where in shared)]
                assert db.query(text) == same, text

    check()
