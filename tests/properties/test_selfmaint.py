"""Random views, instances and updates: compiled test, runtime decision and definition agree, and what is maintained is right.

A yes is checked against every database of the domain that is consistent with the views: all must give the maintained view. A no
is checked by its evidence: two states of the sources that give the stored views and differ after the update. Values may be any
at all, so a no may need values beyond a small domain: evidence has symbols for them, and no domain is large enough to refute it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from rederive.ir.rules import Atom, Column, Relation
from rederive.ir.terms import NUMBER, Constant, Simple, Variable
from rederive.warehouse.selfmaint.compiled_maintenance import compile_maintenance
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, ViewClass
from rederive.warehouse.selfmaint.search import KnownRows, Maintainability, SearchDecision, decide
from rederive.warehouse.selfmaint.source_update import PartialCopy, SourceUpdate
from tests.properties.test_maintained_equals_recomputed import examples
from tests.warehouse.checks import by_engine, by_oracle, extents, given_of, kind_of
from tests.warehouse.witness import Database, answers, consistent, outcomes, updated

DOMAIN = (0, 1, 2)
SCHEMAS: tuple[dict[str, int], ...] = ({"r": 2, "s": 1}, {"r": 1, "s": 1, "t": 1}, {"r": 2})
VARIABLES = tuple(Variable(name) for name in "xyz")


@st.composite
def queries(draw: st.DrawFn, name: str, schema: Mapping[str, int], hides: bool) -> ConjunctiveQuery:
    terms: st.SearchStrategy[Simple] = st.sampled_from((*VARIABLES, *VARIABLES, Constant(0, NUMBER)))
    body = []
    for _ in range(draw(st.integers(1, 3))):
        relation = draw(st.sampled_from(sorted(schema)))
        body.append(Atom(relation, tuple(draw(terms) for _ in range(schema[relation]))))
    query = ConjunctiveQuery(Atom(name, ()), tuple(dict.fromkeys(body)))
    shown = [v for v in query.variables if not hides or draw(st.booleans())]
    return ConjunctiveQuery(Atom(name, tuple(draw(st.permutations(shown)))), query.body)


@st.composite
def views(draw: st.DrawFn, name: str, schema: Mapping[str, int], plain: bool) -> StoredView:
    first = draw(queries(name, schema, hides=not plain))
    found = [first]
    if not plain and draw(st.booleans()):
        second = draw(queries(name, schema, hides=True))
        if len(second.head.terms) == len(first.head.terms):
            found.append(second)
    kind = ViewClass.UNION if len(found) > 1 else ViewClass.PROJECTION if first.hidden else ViewClass.PLAIN
    return StoredView(name, kind, tuple(found), tuple(sorted({atom.relation for query in found for atom in query.body})))


@st.composite
def definitions(draw: st.DrawFn, plain: bool) -> tuple[dict[str, int], tuple[StoredView, ...]]:
    schema = draw(st.sampled_from(SCHEMAS))
    return schema, tuple(draw(views(f"v{i}", schema, plain)) for i in range(draw(st.integers(1, 3))))


def row_sets(arity: int, most: int) -> st.SearchStrategy[frozenset[tuple[int, ...]]]:
    return st.frozensets(st.tuples(*[st.sampled_from(DOMAIN)] * arity), max_size=most)


@st.composite
def updates(draw: st.DrawFn, schema: Mapping[str, int]) -> SourceUpdate:
    insert = {name: draw(row_sets(arity, 2)) for name, arity in schema.items()}
    delete = {name: draw(row_sets(arity, 1)) for name, arity in schema.items() if draw(st.booleans())}
    return SourceUpdate.of(insert, delete)


@st.composite
def problems(draw: st.DrawFn, plain: bool) -> tuple[dict[str, int], tuple[StoredView, ...], Database, SourceUpdate]:
    schema, found = draw(definitions(plain))
    database = {name: draw(row_sets(arity, 4)) for name, arity in schema.items()}
    return schema, found, database, draw(updates(schema))


def relations(schema: Mapping[str, int], found: Sequence[StoredView]) -> dict[str, Relation]:
    arities = {**schema, **{view.name: len(view.queries[0].head.terms) for view in found}}
    return {name: Relation(name, tuple(Column(f"c{i}", NUMBER) for i in range(n))) for name, n in arities.items()}


def stored(found: Sequence[StoredView], database: Database) -> KnownRows:
    return KnownRows({view.name: answers(view, database) for view in found})


def check_evidence(
    view: StoredView, found: Sequence[StoredView], knowledge: KnownRows, update: SourceUpdate, decision: SearchDecision
) -> None:
    assert decision.evidence is not None
    names = {atom.relation for other in found for query in other.queries for atom in query.body} | update.relations
    states = [{name: frozenset(state.get(name, ())) for name in names} for state in decision.evidence]
    for state in states:
        assert all(answers(other, state) == knowledge.views[other.name] for other in found)
    assert answers(view, updated(update, states[0])) != answers(view, updated(update, states[1]))


@examples(20)
@given(problems(plain=True))
def test_compiled_test_and_runtime_decision_agree_with_the_definition(
    problem: tuple[dict[str, int], tuple[StoredView, ...], Database, SourceUpdate],
) -> None:
    schema, found, database, update = problem
    declared, knowledge = relations(schema, found), stored(found, database)
    for view in found:
        test = compile_maintenance(view, found, declared, kind_of(update), given_of(knowledge, update))
        assert test is not None
        maintainable, after = by_oracle(test, extents(knowledge, update))
        decision = decide(view, found, declared, knowledge, update, steps=10**7)
        assert decision.answer is (Maintainability.YES if maintainable else Maintainability.NO)
        if maintainable:
            candidates = consistent(found, knowledge.views, schema, DOMAIN)
            assert outcomes(view, candidates, update) == {frozenset(after)} == {decision.rows}
        else:
            check_evidence(view, found, knowledge, update, decision)


@examples(20)
@given(problems(plain=True))
def test_the_resident_engine_gives_the_same_answers(
    problem: tuple[dict[str, int], tuple[StoredView, ...], Database, SourceUpdate],
) -> None:
    schema, found, database, update = problem
    knowledge = stored(found, database)
    test = compile_maintenance(found[0], found, relations(schema, found), kind_of(update), given_of(knowledge, update))
    assert test is not None
    rows = extents(knowledge, update)
    assert by_engine(test, rows) == by_oracle(test, rows)


@examples(20)
@given(problems(plain=False))
def test_with_projections_and_unions_the_search_agrees_with_the_definition(
    problem: tuple[dict[str, int], tuple[StoredView, ...], Database, SourceUpdate],
) -> None:
    schema, found, database, update = problem
    declared, knowledge = relations(schema, found), stored(found, database)
    for view in found:
        decision = decide(view, found, declared, knowledge, update, steps=20_000)
        if decision.answer is Maintainability.YES:
            assert outcomes(view, consistent(found, knowledge.views, schema, DOMAIN), update) == {decision.rows}
        elif decision.answer is Maintainability.NO:
            check_evidence(view, found, knowledge, update, decision)


@examples(20)
@given(problems(plain=True), st.data())
def test_with_relations_read_and_partial_copies(
    problem: tuple[dict[str, int], tuple[StoredView, ...], Database, SourceUpdate], data: st.DataObject
) -> None:
    """What is known besides the views narrows the databases that have to agree, and is used in full."""
    schema, found, database, update = problem
    net = data.draw(st.booleans())
    if net:
        insert = {name: rows - database[name] for name, rows in update.inserts.items()}
        update = SourceUpdate.of(insert, {name: rows & database[name] for name, rows in update.deletes.items()}, net=True)
    some = st.sets(st.sampled_from(sorted(schema)))
    read, local, logged = data.draw(some), data.draw(some), data.draw(some)
    log = PartialCopy(
        {name: frozenset(data.draw(st.sets(st.sampled_from(sorted(database[name]))))) for name in logged if database[name]},
        {name: data.draw(row_sets(schema[name], 3)) - database[name] for name in logged},
    )
    after = updated(update, database)
    knowledge = KnownRows(
        stored(found, database).views,
        {name: database[name] for name in local},
        {name: after[name] for name in read - local},
        log,
    )

    def agrees(other: Database) -> bool:
        return (
            all(other[name] == rows for name, rows in knowledge.local.items())
            and all(updated(update, other)[name] == rows for name, rows in knowledge.read.items())
            and all(rows <= other[name] for name, rows in log.present.items())
            and all(not rows & other[name] for name, rows in log.absent.items())
            and (not net or all(not rows & other[name] for name, rows in update.inserts.items()))
            and (not net or all(rows <= other[name] for name, rows in update.deletes.items()))
        )

    declared = relations(schema, found)
    for view in found:
        test = compile_maintenance(view, found, declared, kind_of(update), given_of(knowledge, update))
        assert test is not None
        maintainable, rows = by_oracle(test, extents(knowledge, update))
        decision = decide(view, found, declared, knowledge, update, steps=10**7)
        assert decision.answer is (Maintainability.YES if maintainable else Maintainability.NO)
        if maintainable:
            candidates = filter(agrees, consistent(found, knowledge.views, schema, DOMAIN))
            assert outcomes(view, candidates, update) == {frozenset(rows)} == {decision.rows}
        else:
            check_evidence(view, found, knowledge, update, decision)
            assert decision.evidence is not None
            assert all(agrees({name: frozenset(state.get(name, ())) for name in schema}) for state in decision.evidence)
