"""Read-only handles on the states before and after a transaction, for functions that rules call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from rederive.boundary import guard_class
from rederive.commit.state import DatabaseState
from rederive.delta import sort_rows
from rederive.engines.protocol import Operation
from rederive.ir.terms import Row, Value
from rederive.queries import positions

OLD, NEW = "old", "new"


@guard_class
class StateHandle:
    """One state of the database, to read: `old` is before the transaction, `new` after it.

    Reading `new` applies the transaction to the tables that the query needs, and evaluates views over them: the cost follows
    their rows. It is valid while the function runs.
    """

    def __init__(self, state: DatabaseState, operations: Callable[[], Sequence[Operation]]) -> None:
        self._state = state
        self._operations = operations

    def rows(self, relation: str, **columns: Value) -> list[Row]:
        """Return the rows of a table or view with these values in these columns, in order."""
        from rederive.commit.sql_changes import answers
        from rederive.lang.sql.dml import CompiledQuery

        operations = self._operations()
        if not operations:
            return self._state.rows(relation, columns)
        declared = self._state.relation(relation)
        found = answers(self._state, CompiledQuery(self._state.program, declared.name), operations)
        bound = positions(declared, columns)
        return sort_rows(row for row in found if all(row[i] == value for i, value in bound.items()))

    def query(self, text: str) -> list[Row]:
        """Return the answers of a query in SQL, in order."""
        from rederive.commit.sql_changes import answer_query
        from rederive.lang.sql.parser import parse

        return answer_query(self._state, parse(text, "<query>")[0], self._operations()).rows


def call_states(
    function: Callable[..., Any], state: DatabaseState, operations: Callable[[], Sequence[Operation]]
) -> dict[str, StateHandle]:
    """Return the handles that a function has parameters for: `old`, `new`, both or none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}  # a function in C without a signature takes rows alone
    names = {one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)}
    handles = {OLD: StateHandle(state, lambda: ()), NEW: StateHandle(state, operations)}
    return {name: handle for name, handle in handles.items() if name in names}
