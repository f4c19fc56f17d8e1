"""A plan that is extended by definitions is the plan of the whole program, whatever is defined over what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.analysis.graph import edges
from rederive.commit import restart
from rederive.delta import BOTH, Sign
from rederive.engines.resident.run.installed import Installed
from rederive.errors import StrategyError
from rederive.ir.rules import Program
from rederive.lang import compile_program
from rederive.maintain.extend_plan import Planned, PlanRequest
from rederive.maintain.plan import STRATEGIES
from rederive.maintain.program import Section
from tests.selection import examples

BASES = ".decl e(x: number, y: number)  .decl n(x: number, y: number, z: number) key(x)"
BODIES = (
    "{head}(x, y) :- {a}(x, z), {b}(z, y).",
    "{head}(x, y) :- {a}(x, y), !{b}(y, x).",
    "{head}(x, y) :- {a}(x, y).  {head}(x, y) :- {b}(y, x), x > 1.",
    "{head}(x, y) :- {a}(1, x), {b}(x, y).",
    "{head}(x, y) :- {a}(x, y).  {head}(x, y) :- {head}(x, z), {head}(z, y).",
    "{head}(x, y) :- {a}(x, y).  {head}(x, y) :- {head}(x, z), {b}(z, y).",
    "{head}(x, y) :- n(x, _, _), y = sum z : {{ {a}(x, z) }}.",
    "{head}(x, y) :- n(x, y, _), {a}(x, _).",
)


def _text(number: int, kind: int, first: int, second: int) -> str:
    return _rules(f"v{number}", kind, first, second, ["e", *(f"v{i}" for i in range(number))])


def _rules(head: str, kind: int, first: int, second: int, names: Sequence[str]) -> str:
    a, b = names[first % len(names)], names[second % len(names)]
    return f".decl {head}(x: number, y: number)  " + BODIES[kind % len(BODIES)].format(head=head, a=a, b=b)


def _outline(planned: Planned) -> object:
    """What a plan says, whatever the order of independent sections."""
    found = planned.maintenance
    program = found.program
    return (
        {section.component.relations: section for section in found.sections},
        {name: program.relations[name] for name in program.relations},
        {name: set(program.definitions_of(name)) for name in program.relations},
        set(found.bases),
        set(found.derived_views),
        set(found.stored_views),
        dict(found.states),
        found.components,
        {name: found.signs.get(name) for name in program.views},
    )


def _check_order(planned: Planned) -> None:
    """Every section comes after those that it reads."""
    place = {n: i for i, s in enumerate(planned.maintenance.sections) for n in s.component.relations}
    for i, section in enumerate(planned.maintenance.sections):
        for definition in section.component.definitions:
            assert all(place[edge.source] <= i for edge in edges(definition) if edge.source in place)


def _request(program: Program, monitored: Mapping[str, frozenset[Sign]], strategy: str) -> PlanRequest:
    return PlanRequest(program, monitored, strategy, "exact")


@examples(100)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 9), st.integers(0, 9), st.sampled_from(["both", "plus", "none"])), max_size=6
    ),
    st.sampled_from([s for s in STRATEGIES if s != "differencing"]),
)
def test_an_extended_plan_is_the_plan_of_the_whole(choices: Sequence[tuple[int, int, int, str]], strategy: str) -> None:
    signs = {"both": BOTH, "plus": frozenset({Sign.PLUS})}
    program, monitored = compile_program(BASES), dict[str, frozenset[Sign]]()
    planned = Planned.whole(_request(program, monitored, strategy))
    for number, (kind, first, second, followed) in enumerate(choices):
        program = compile_program(_text(number, kind, first, second), known=program)
        if followed in signs:
            monitored = {**monitored, f"v{number}": signs[followed]}
        request = _request(program, monitored, strategy)
        try:
            whole = Planned.whole(request)
        except StrategyError:  # counting is for views without recursion
            return
        extended = planned.extend(request)
        if extended is not None:
            assert _outline(extended) == _outline(whole)
            _check_order(extended)
        planned = extended or whole


@examples(200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "create", "create", "replace", "drop"]),
            st.integers(0, 7),
            st.integers(0, 9),
            st.integers(0, 9),
            st.sampled_from(["both", "both", "plus", "none", "condition"]),
        ),
        max_size=8,
    ),
    st.sampled_from([s for s in STRATEGIES if s != "differencing"]),
)
def test_a_plan_follows_definitions_that_are_replaced_and_dropped(
    choices: Sequence[tuple[str, int, int, int, str]], strategy: str
) -> None:
    signs = {"both": BOTH, "plus": frozenset({Sign.PLUS}), "condition": BOTH}
    views: dict[str, tuple[str, str]] = {}  # of each view: its text, and how it is followed
    program = compile_program(BASES)
    planned = Planned.whole(_request(program, {}, strategy))
    for number, (what, kind, first, second, followed) in enumerate(choices):
        names = list(views)
        if what == "create" or not names:
            views[f"v{number}"] = _rules(f"v{number}", kind, first, second, ["e", *names]), followed
        else:
            at = first % len(names)
            if what == "replace":
                views[names[at]] = _rules(names[at], kind, first, second, ["e", *names[:at]]), views[names[at]][1]
            elif not any(f"{names[at]}(" in text for name, (text, _) in views.items() if name != names[at]):
                del views[names[at]]
        program = compile_program(BASES + " ".join(text for text, _ in views.values()))
        monitored = {name: signs[how] for name, (_, how) in views.items() if how in signs}
        conditions = {name: "exact" for name, (_, how) in views.items() if how == "condition"}
        request = PlanRequest(program, monitored, strategy, "exact", conditions=conditions)
        try:
            whole = Planned.whole(request)
        except StrategyError:  # counting is for views without recursion
            return
        extended = planned.extend(request)
        if extended is not None:
            assert _outline(extended) == _outline(whole)
            assert extended.readers.keys() >= whole.readers.keys()
            assert all(sorted(extended.readers[name]) == sorted(whole.readers[name]) for name in whole.readers)
            _check_order(extended)
        planned = extended or whole


@pytest.mark.parametrize(
    "change",
    [
        lambda texts: texts[:2],  # the last view is dropped
        lambda texts: [*texts[:2], _text(2, 1, 0, 1)],
        lambda texts: [texts[0], _text(1, 3, 0, 1), texts[2]],
    ],
)
def test_a_dropped_or_replaced_view_leaves_the_other_sections(change: Callable[[list[str]], list[str]]) -> None:
    texts = [_text(0, 0, 0, 0), _text(1, 6, 0, 0), _text(2, 2, 1, 2)]
    other = ".decl other(x: number, y: number)  other(x, y) :- e(x, z), e(z, y), x < y."
    monitored = {"v0": BOTH, "v1": BOTH, "v2": BOTH, "other": BOTH}
    before = compile_program(" ".join([BASES, other, *texts]))
    planned = Planned.whole(_request(before, monitored, "auto"))
    after = compile_program(" ".join([BASES, other, *change(texts)]))
    left = {name: signs for name, signs in monitored.items() if name in after.relations}
    extended = planned.extend(_request(after, left, "auto"))
    assert extended is not None
    extension = extended.maintenance.extends
    assert extension is not None
    assert extension.gone
    assert not {"v0", "other"} & extension.gone
    assert extended.maintenance.section_of["other"] is planned.maintenance.section_of["other"]


@pytest.mark.parametrize("kind", [0, 1, 2, 5, 6, 7])
def test_one_more_view_extends_the_plan(kind: int) -> None:
    """Without this, everything would still be right, and take the time of a whole plan."""
    program = compile_program(_text(1, 0, 0, 1), known=compile_program(_text(0, 6, 0, 0), known=compile_program(BASES)))
    monitored = {"v0": BOTH, "v1": BOTH}
    planned = Planned.whole(_request(program, monitored, "auto"))
    after = compile_program(_text(2, kind, 1, 2), known=program)
    extended = planned.extend(_request(after, {**monitored, "v2": BOTH}, "auto"))
    assert extended is not None
    extension = extended.maintenance.extends
    assert extension is not None
    assert {n for s in extension.added for n in s.component.relations} == set(after.relations) - set(program.relations)


TABLES = "CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT); CREATE TABLE b (k INT, v INT);"
ROWS = "INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30); INSERT INTO b VALUES (1, 1), (1, 1), (2, 5)"


def _same_rows(db: rederive.Database, other: rederive.Database, views: Sequence[str]) -> bool:
    return all(db.query(f"SELECT * FROM {view}") == other.query(f"SELECT * FROM {view}") for view in views)


def test_a_view_that_was_only_summed_is_stored_when_another_view_reads_it() -> None:
    db = rederive.open()
    db.sql(TABLES + ROWS)
    db.sql("CREATE VIEW m AS SELECT k, v + 1 AS w FROM b")  # a bag: its rows are counted, and nothing else reads them
    db.sql("CREATE VIEW above AS SELECT m.k, m.w, t.v FROM m JOIN t ON m.k = t.k")
    db.sql("INSERT INTO b VALUES (1, 7); DELETE FROM b WHERE v = 5")
    assert sorted(db.query("SELECT * FROM m")) == [(1, 2), (1, 2), (1, 8)]
    assert sorted(db.query("SELECT * FROM above")) == sorted((1, w, v) for w in (2, 2, 8) for v in (10, 20))


def test_a_refused_definition_leaves_what_it_shares_as_it_was() -> None:
    db = rederive.open()
    db.sql(TABLES + ROWS)
    db.sql("CREATE VIEW m AS SELECT k, v + 1 AS w FROM b; CREATE VIEW s AS SELECT k, max(w) AS most FROM m GROUP BY k")
    with pytest.raises(rederive.RederiveError):
        db.sql("CREATE VIEW fails AS SELECT m.k, m.w, 1 / (m.k - m.k) AS x FROM m JOIN t ON m.k = t.k")
    db.sql("INSERT INTO b VALUES (1, 7); DELETE FROM b WHERE v = 5")
    assert sorted(db.query("SELECT * FROM m")) == [(1, 2), (1, 2), (1, 8)]
    assert sorted(db.query("SELECT * FROM s")) == [(1, 8)]
    db.sql("CREATE VIEW fails AS SELECT m.k, m.w, t.v AS x FROM m JOIN t ON m.k = t.k")
    db.sql("DELETE FROM b WHERE v = 1")
    assert sorted(db.query("SELECT * FROM fails")) == [(1, 8, 10), (1, 8, 20)]
    assert sorted(db.query("SELECT * FROM s")) == [(1, 8)]


def test_a_snapshot_of_an_extended_plan_is_the_one_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store plans the whole program when it is opened, with its sections in another order."""
    monkeypatch.setattr(restart, "WORTH_SAVING", 1)
    evaluated: list[Section] = []
    with rederive.open(tmp_path) as db:
        db.sql(TABLES + ROWS)
        db.sql("CREATE VIEW m AS SELECT k, v + 1 AS w FROM b; CREATE VIEW s AS SELECT k, max(w) AS most FROM m GROUP BY k")
        db.sql("CREATE VIEW above AS SELECT m.k, m.w, t.v FROM m JOIN t ON m.k = t.k")
    monkeypatch.setattr(Installed, "_fill", lambda self, section: evaluated.append(section))
    with rederive.open(tmp_path) as db:
        assert not [section for section in evaluated if section.strategy.is_stored]
        assert db.rows("s") == [(1, 2), (2, 6)]
