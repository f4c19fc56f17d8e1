"""Active rules one by one: the order of firing, events, activity, failures, what is kept, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rederive
from rederive.errors import (
    ActionFailed,
    CascadeLimit,
    IllTypedRow,
    InAction,
    NoStore,
    ProgramError,
    RederiveError,
    StillNeeded,
    UnknownFunction,
    UnknownName,
)
from rederive.lang.rules.parser import parse_rule_statement
from rederive.lang.sql.parser import parse

PROGRAM = """
.decl stock(item: symbol, n: number) key(item)
.decl seen(item: symbol)
.decl low(item: symbol)
.decl out(item: symbol)
low(x) :- stock(x, n), n < 5.
out(x) :- stock(x, n), n < 1.
"""
Calls = list[tuple[object, ...]]


def opened(path: Path | None = None) -> tuple[rederive.Database, Calls]:
    db = rederive.open(path)
    calls: Calls = []
    for name in ("one", "two", "three"):
        db.rules.register(lambda *rows, name=name: calls.append((name, *rows)), name)
    db.migrate(PROGRAM)
    return db, calls


def put(db: rederive.Database, **stock: int) -> rederive.Result:
    with db.transaction() as tx:
        tx.upsert("stock", list(stock.items()))
    return tx.result


# Order


def test_priority_then_name() -> None:
    db, calls = opened()
    db.sql("""
        CREATE RULE b WHEN TABLE low DO CALL one; CREATE RULE c WHEN TABLE low DO CALL two PRIORITY 5;
        CREATE RULE a WHEN TABLE low DO CALL three; CREATE RULE d WHEN TABLE low DO CALL three PRIORITY -1 IMMEDIATE;
    """)
    put(db, bolt=1)
    rows = [("bolt",)]
    assert calls == [("three", rows), ("two", rows), ("three", rows), ("one", rows)]
    assert [firing.rule for firing in db.rules.firings()] == ["d", "c", "a", "b"]


def test_both_signs_are_handed_over_together() -> None:
    db, calls = opened()
    db.sql("CREATE RULE r WHEN TABLE low DO CALL one ON BOTH")
    put(db, bolt=1, nut=1)
    put(db, bolt=9, gear=1)
    assert calls == [("one", [("bolt",), ("nut",)], []), ("one", [("gear",)], [("bolt",)])]


def test_a_lower_rule_sees_what_a_higher_one_changed() -> None:
    """Net changes: the first rule refills, so that the second has nothing to fire for."""
    db, calls = opened()
    db.sql("""
        CREATE RULE refill WHEN SELECT item FROM low DO UPDATE stock SET n = 9 WHERE item IN (SELECT item FROM firing)
            PRIORITY 1 RECURSIVE;
        CREATE RULE tell WHEN TABLE low DO CALL one;
    """)
    result = put(db, bolt=1)
    assert (db.rows("stock"), calls, [f.rule for f in result.firings]) == ([("bolt", 9)], [], ["refill"])
    assert "low" not in result.changes


def test_a_cascade_is_one_version() -> None:
    db, calls = opened()
    db.sql("""
        CREATE RULE first WHEN TABLE low DO INSERT INTO seen SELECT item FROM firing;
        CREATE RULE then WHEN TABLE seen DO CALL one(item);
    """)
    assert put(db, bolt=1).version == 1
    assert (db.version, db.rows("seen"), calls) == (1, [("bolt",)], [("one", [("bolt",)])])


def test_an_immediate_rule_fires_before_a_deferred_one_of_higher_priority() -> None:
    db, calls = opened()
    db.sql("""
        CREATE RULE a WHEN TABLE low DO INSERT INTO seen SELECT item FROM firing PRIORITY 5;
        CREATE RULE b WHEN TABLE low DO CALL two PRIORITY 4;
        CREATE RULE c WHEN TABLE seen DO CALL three IMMEDIATE;
    """)
    result = put(db, bolt=1)
    assert ([firing.rule for firing in result.firings], len(calls)) == (["a", "c", "b"], 2)


def test_a_row_that_was_true_and_is_back_has_entered_between_statements() -> None:
    """And not for a deferred rule, which sees no net change."""
    db, calls = opened()
    put(db, bolt=1)
    db.sql("CREATE RULE now WHEN TABLE low DO CALL one IMMEDIATE; CREATE RULE late WHEN TABLE low DO CALL two")
    with db.transaction() as tx:
        tx.upsert("stock", [("bolt", 9)])
        tx.upsert("stock", [("bolt", 1)])
    assert calls == [("one", [("bolt",)])]


def test_a_row_that_left_and_came_back_has_left_between_statements() -> None:
    db, calls = opened()
    db.sql("CREATE RULE now WHEN TABLE low DO CALL one IMMEDIATE ON MINUS")
    with db.transaction() as tx:
        tx.upsert("stock", [("bolt", 1)])
        tx.upsert("stock", [("bolt", 9)])
    assert calls == [("one", [("bolt",)])]


# How conditions are monitored: what is kept must be told everything, exactly

MIXED = """
.decl e(x: number, y: number)
.decl step(x: number, y: number)
.decl path(x: number, y: number)
.decl start(x: number)
.decl total(n: number)
.decl some()
.decl other(x: number)
step(x, y) :- e(x, y), x != y.
path(x, y) :- step(x, y).
path(x, y) :- path(x, z), step(z, y).
start(x) :- step(x, _).
total(n) :- n = sum x : { start(x) }.
some() :- start(_).
other(x) :- e(x, x).
.output other
"""


@pytest.mark.parametrize("precision", ["strict", "nervous"])
@pytest.mark.parametrize(("view", "row"), [("path", (1, 3)), ("total", (3,)), ("some", ())])
def test_kept_parts_over_parts_that_are_not_kept(view: str, row: tuple[object, ...], precision: str) -> None:
    """Recursion, a sum and a count over differenced views, of which only rows that enter are wanted; e(1, 4) and e(1, 2) are
    two derivations of start(1), so that an inexact change would add up."""
    db = rederive.open()
    db.define(MIXED)
    db.load("e", [(2, 3), (1, 4)])
    fired: list[int] = []
    db.rules.on(view, name="r", precision=precision)(lambda rows: fired.append(db.version + 1) if row in rows else None)
    steps = [("insert", (1, 2)), ("delete", (1, 4)), ("delete", (1, 2)), ("insert", (1, 2)), ("delete", (2, 3))]
    for call, edge in [*steps, ("delete", (1, 2)), ("insert", (2, 3)), ("insert", (1, 2))]:
        with db.transaction() as tx:
            getattr(tx, call)("e", [edge])
    assert fired == {"path": [2, 5, 9], "total": [5, 9], "some": [8]}[view]  # version 1 is the load


# Events


@pytest.mark.parametrize(("event", "fires"), [("INSERT", [1]), ("UPDATE", [2]), ("DELETE", [])])
def test_events(event: str, fires: list[int]) -> None:
    db, calls = opened()
    db.sql(f"CREATE RULE r ON {event} OF stock WHEN TABLE low DO CALL one")
    put(db, bolt=3)
    put(db, nut=9)
    calls_after_insert = len(calls)
    put(db, nut=2)
    assert [calls_after_insert, len(calls) - calls_after_insert] == [1 in fires, 2 in fires]


def test_an_event_that_the_net_effect_does_not_have() -> None:
    db, calls = opened()
    put(db, bolt=9)
    db.sql("CREATE RULE r ON DELETE OF seen WHEN TABLE low DO CALL one")
    with db.transaction() as tx:
        tx.insert("seen", [("bolt",)])
        tx.delete("seen", [("bolt",)])
        tx.upsert("stock", [("bolt", 1)])
    assert calls == []


# Activity


def test_activity_as_a_whole_and_for_single_values() -> None:
    db, calls = opened()
    db.sql("CREATE RULE r WHEN TABLE low DO CALL one; ALTER RULE r DEACTIVATE FOR ('bolt')")
    put(db, bolt=1, nut=1)
    db.sql("ALTER RULE r DEACTIVATE; ALTER RULE r ACTIVATE FOR ('gear')")
    put(db, cog=1, gear=1)
    db.sql("ALTER RULE r ACTIVATE")
    put(db, bolt=9)
    put(db, bolt=1)
    assert calls == [("one", [("nut",)]), ("one", [("gear",)]), ("one", [("bolt",)])]


def test_a_rule_does_not_fire_for_what_was_true_before_it_stood() -> None:
    db, calls = opened()
    put(db, bolt=1)
    db.sql("CREATE RULE r WHEN TABLE low DO CALL one")
    put(db, nut=1)
    assert calls == [("one", [("nut",)])]


def test_values_must_fit_the_condition() -> None:
    db, _ = opened()
    db.sql("CREATE RULE r WHEN TABLE low DO CALL one")
    with pytest.raises(IllTypedRow, match=r"<text>:1:1.*the condition of 'r'"):
        db.sql("ALTER RULE r DEACTIVATE FOR (7)")
    with pytest.raises(IllTypedRow, match="has 1 columns, not 2"):
        db.rules.deactivate("r", "bolt", 7)


# Failures


def fail(rows: list[object]) -> None:
    raise OSError("no paper")


@pytest.mark.parametrize("mode", ["DEFERRED", "IMMEDIATE"])
def test_an_action_that_fails_rolls_everything_back(mode: str) -> None:
    db, _ = opened()
    db.rules.register(fail)
    db.sql(f"""
        CREATE RULE note WHEN TABLE low DO INSERT INTO seen SELECT item FROM firing PRIORITY 1;
        CREATE RULE print WHEN TABLE low DO CALL fail {mode}
    """)
    with pytest.raises(ActionFailed, match="rule 'print': its action failed: OSError: no paper"):
        put(db, bolt=1)
    assert (db.version, db.rows("stock"), db.rows("seen"), db.rows("low")) == (0, [], [], [])
    assert [(f.rule, f.outcome, f.detail) for f in db.rules.firings()] == [("print", "failed", "OSError: no paper")]
    put(db, nut=9)
    assert db.rows("stock") == [("nut", 9)]


def test_going_on_after_an_immediate_failure_is_refused() -> None:
    db, _ = opened()
    db.rules.register(fail)
    db.sql("CREATE RULE print WHEN TABLE low DO CALL fail IMMEDIATE")
    with pytest.raises(ActionFailed), db.transaction() as tx:
        with pytest.raises(ActionFailed):
            tx.insert("stock", [("bolt", 1)])
        tx.insert("stock", [("nut", 9)])
    assert db.rows("stock") == []


def test_a_row_that_an_action_adds_may_break_a_key() -> None:
    db, _ = opened()
    db.sql("CREATE RULE r WHEN TABLE seen DO INSERT INTO stock SELECT item, 1 FROM firing")
    put(db, bolt=3)
    with pytest.raises(ActionFailed, match="two rows share it"), db.transaction() as tx:
        tx.insert("seen", [("bolt",)])
    assert db.rows("seen") == []


def test_a_cascade_without_end_is_stopped() -> None:
    db = rederive.open()
    db.define(".decl n(x: number)")
    db.sql("CREATE RULE r WHEN TABLE n DO INSERT INTO n SELECT x + 1 FROM firing RECURSIVE")
    with pytest.raises(CascadeLimit, match="rule 'r': the transaction set off more than 100 firings"), db.transaction() as tx:
        tx.insert("n", [(0,)])
    assert (db.version, db.rows("n")) == (0, [])


def test_a_cascade_that_ends() -> None:
    db = rederive.open()
    db.define(".decl n(x: number)")
    db.sql("CREATE RULE r WHEN SELECT x FROM n WHERE x < 10 DO INSERT INTO n SELECT x + 1 FROM firing RECURSIVE")
    with db.transaction() as tx:
        tx.insert("n", [(0,)])
    assert (db.rows("n"), len(tx.result.firings)) == ([(x,) for x in range(11)], 10)


@pytest.mark.parametrize(
    "inside",
    [
        lambda db: db.transaction(),
        lambda db: db.define(".decl more(x: number)"),
        lambda db: db.rules.drop("r"),
        lambda db: db.sql("INSERT INTO seen VALUES ('x')"),
    ],
)
def test_a_function_begins_nothing_of_its_own(inside: Callable[[rederive.Database], object]) -> None:
    db, _ = opened()
    db.rules.on("low", name="r")(lambda rows: inside(db))
    with pytest.raises(InAction, match="inside a function that a rule calls"):
        put(db, bolt=1)
    assert db.rows("stock") == []


def test_a_function_reads_the_state_before_the_transaction() -> None:
    db, _ = opened()
    found: list[object] = []
    db.rules.on("low", name="r")(lambda rows: found.append(db.rows("low")))
    put(db, bolt=1)
    put(db, nut=1)
    assert found == [[], [("bolt",)]]


# Definitions


def test_immediate_actions_are_seen_by_the_statements_after_them() -> None:
    db, _ = opened()
    db.sql("CREATE RULE r WHEN TABLE low DO INSERT INTO seen SELECT item FROM firing IMMEDIATE")
    db.sql("BEGIN; INSERT INTO stock VALUES ('bolt', 1); DELETE FROM seen WHERE item = 'bolt'; COMMIT")
    assert (db.rows("low"), db.rows("seen")) == ([("bolt",)], [])


def test_a_rule_in_python_may_be_defined_again() -> None:
    db, calls = opened()
    for _ in range(2):
        db.rules.on("low", name="r", priority=3)(lambda rows: calls.append(("r", rows)))
    put(db, bolt=1)
    assert calls == [("r", [("bolt",)])]


def test_rules_over_bags() -> None:
    """A row is true or it is not: one copy more, or one of two less, is no change of the condition."""
    db, calls = opened()
    db.sql("""
        CREATE TABLE visit (who STRING NOT NULL);
        CREATE VIEW visitor AS SELECT who FROM visit;
        CREATE RULE came WHEN SELECT who FROM visitor DO CALL one;
        CREATE RULE left_ WHEN TABLE visitor DO CALL two ON MINUS;
    """)
    for statement in ("INSERT INTO visit VALUES ('ada'), ('ada')", "INSERT INTO visit VALUES ('ada')", "DELETE FROM visit"):
        db.sql(statement)
    assert calls == [("one", [("ada",)]), ("two", [("ada",)])]


def test_recursive_and_aggregated_conditions() -> None:
    db, calls = opened()
    db.define("""
        .decl edge(x: number, y: number)  .decl path(x: number, y: number)
        path(x, y) :- edge(x, y).  path(x, y) :- path(x, z), edge(z, y).
        .output low
    """)
    db.sql("""
        CREATE RULE cycle WHEN SELECT x FROM path WHERE x = y DO CALL one(x);
        CREATE RULE busy WHEN SELECT x FROM edge GROUP BY x HAVING count(*) > 1 DO CALL two(x);
    """)
    with db.transaction() as tx:
        tx.insert("edge", [(1, 2), (2, 3)])
    with db.transaction() as tx:
        tx.insert("edge", [(3, 1), (3, 4)])
    assert calls == [("two", [(3,)]), ("one", [(1,), (2,), (3,)])]


def test_a_view_that_a_rule_needs_cannot_be_dropped() -> None:
    db, calls = opened()
    db.sql("CREATE RULE r WHEN TABLE low DO CALL one")
    with pytest.raises(StillNeeded, match="the rule 'r' still needs this"):
        db.definitions.drop_view("low")
    db.sql("DROP RULE r")
    db.definitions.drop_view("low")
    put(db, bolt=1)
    assert calls == []


def test_a_rule_follows_a_changed_view_without_firing_for_the_change() -> None:
    db, calls = opened()
    put(db, bolt=7, nut=1)
    db.sql("CREATE RULE r WHEN TABLE low DO CALL one")
    db.definitions.replace_view("low", "low(x) :- stock(x, n), n < 10.")
    put(db, gear=9)
    assert calls == [("one", [("gear",)])]


BAD = [
    ("WHEN TABLE low DO CALL nobody", "unknown_name", "1:38", "unknown function 'nobody'"),
    ("WHEN TABLE lo DO CALL one", "unknown_name", "1:26", "did you mean 'low'?"),
    ("WHEN SELECT item FROM lo DO CALL one", "unknown_name", "1:37", "unknown table or view 'lo'"),
    ("WHEN SELECT nothing FROM low DO CALL one", "unknown_name", "1:27", "unknown column 'nothing'"),
    ("WHEN TABLE low DO CALL one(itme)", "unknown_name", "1:42", "did you mean 'item'?"),
    ("WHEN TABLE low DO INSERT INTO stock SELECT item, NULL FROM firing", "ill_typed", "1:33", "NULL in a NOT NULL column"),
    ("WHEN TABLE low DO INSERT INTO stock SELECT item, DATE '2024-01-01' FROM firing", "type_clash", "", ""),
    ("WHEN TABLE low DO INSERT INTO low SELECT item FROM firing", "not_a_base", "1:33", "'low' is a view"),
    ("WHEN TABLE low DO INSERT INTO stock SELECT item FROM firing", "wrong_arity", "1:33", "expected 2 values, but there are 1"),
    ("WHEN TABLE low DO INSERT INTO seen SELECT who FROM firing", "unknown_name", "1:57", "unknown column 'who'"),
    (
        "WHEN TABLE seen DO INSERT INTO seen SELECT item FROM firing",
        "unsupported",
        "1:34",
        "rules that set each other off: r -> r",
    ),
    ("WHEN TABLE low DO DELETE FROM stock ON BOTH", "unsupported", "1:33", "one rule ON PLUS and another ON MINUS"),
    ("WHEN TABLE low DO WEBHOOK 'https://example.com'", "no_store", "", "needs a store"),
    ("WHEN TABLE low DO WEBHOOK example", "syntax", "1:41", "an address in quotes"),
    ("WHEN TABLE low DO DROP VIEW low", "unsupported", "1:33", "CALL, WEBHOOK, INSERT, UPDATE or DELETE"),
    ("WHEN TABLE low CALL one", "syntax", "1:30", "expected DO, not 'CALL'"),
    ("WHEN SELECT item FROM low", "syntax", "1:37", "expected DO and an action"),
    ("WHEN SELECT item FRM low DO CALL one", "syntax", "1:36", "not SQL"),
    ("WHEN DELETE FROM seen DO CALL one", "syntax", "1:20", "the condition of a rule must be a query"),
    ("WHEN TABLE low DO CALL one STRICT NERVOUS", "syntax", "1:42", "given twice"),
    ("ON UPDATE OF seen WHEN TABLE low DO CALL one", "syntax", "1:28", "has no key"),
    ("ON INSERT OF low WHEN TABLE low DO CALL one", "unknown_name", "1:28", "unknown table 'low'"),
    ("ON TRUNCATE OF low WHEN TABLE low DO CALL one", "syntax", "1:18", "expected INSERT or UPDATE or DELETE, not 'TRUNCATE'"),
]


@pytest.mark.parametrize(("rule", "code", "place", "reason"), BAD)
def test_bad_rules(rule: str, code: str, place: str, reason: str) -> None:
    """Refused with the place and the reason, and nothing is changed: not even by the statements before it in the text."""
    db, calls = opened()
    with pytest.raises(RederiveError) as caught:
        db.sql(f"CREATE RULE r {rule}")
    assert (caught.value.code, reason in str(caught.value)) == (code, True), str(caught.value)
    found = caught.value
    assert not place or str(found.span if isinstance(found, ProgramError) else found.place) == f"<text>:{place}"
    assert (list(db.rules), db.version) == ([], 0)
    put(db, bolt=1)
    assert calls == []


def test_a_cycle_of_two_rules_is_refused() -> None:
    db, _ = opened()
    db.sql("CREATE RULE a WHEN TABLE low DO INSERT INTO seen SELECT item FROM firing")
    with pytest.raises(ProgramError, match="rules that set each other off: a -> b -> a"):
        db.sql("CREATE RULE b WHEN TABLE seen DO INSERT INTO stock SELECT item, 1 FROM firing")
    db.sql("CREATE RULE b WHEN TABLE seen DO DELETE FROM stock WHERE item IN (SELECT item FROM firing)")
    assert [one.name for one in db.rules] == ["a", "b"]


@pytest.mark.parametrize(
    ("directive", "place", "reason"),
    [
        ('.rule r(when=low, do="CALL nobody(item)")', "1:28", "unknown function 'nobody'"),
        ('.rule r(when=lo, do="CALL one")', "1:9", "did you mean 'low'?"),
        ('.rule r(when=low, do="CALL one(itme)")', "1:32", "did you mean 'item'?"),
        ('.rule r(when=low, do="CALL")', "1:23", "expected a name"),
        ('.rule r(when=low, do="SHOUT")', "1:23", "CALL, WEBHOOK, INSERT, UPDATE or DELETE"),
        ('.rule r(do="CALL one")', "1:7", "has no option 'when'"),
        ('.rule r(when=low, do="CALL one", priorty=3)', "1:34", "did you mean 'priority'?"),
        ('.rule r(when=low, do="CALL one", on=often)', "1:34", "unknown on 'often'"),
        ('.rule r(when=low, do="CALL one", priority="x")', "1:34", "'x' is not a number"),
        ('.rule r(when=low, do="CALL one", event="INSERT stock")', "1:34", "is not an event"),
        ('.rule r(when=low, do="INSERT INTO stock SELECT item FROM firing")', "1:23", "expected 2 values, but there are 1"),
    ],
)
def test_bad_directives(directive: str, place: str, reason: str) -> None:
    db, _ = opened()
    with pytest.raises(ProgramError) as caught:
        db.define(directive)
    assert (str(caught.value.span), reason in str(caught.value)) == (f"<text>:{place}", True), str(caught.value)
    assert not db.rules


def test_a_directive_with_everything() -> None:
    db, calls = opened()
    db.define("""
        .rule r(when=low, do="CALL one(item)", on=both, mode=immediate, precision=strict, priority=7, event="INSERT OF stock")
        .rule s(when=low, do="INSERT INTO seen SELECT item FROM firing", recursive=true)
    """)
    put(db, bolt=1)
    assert (calls, db.rows("seen")) == ([("one", [("bolt",)], [])], [("bolt",)])
    db.rules.drop("s")
    assert [one.name for one in db.rules] == ["r"]


def test_unknown_rules() -> None:
    db, _ = opened()
    db.sql("CREATE RULE watch WHEN TABLE low DO CALL one; DROP RULE IF EXISTS nothing")
    with pytest.raises(UnknownName, match="did you mean 'watch'"):
        db.sql("DROP RULE wach")
    with pytest.raises(UnknownName):
        db.rules.activate("wach")
    with pytest.raises(ProgramError, match="there is a rule 'watch' already"):
        db.sql("CREATE RULE watch WHEN TABLE low DO CALL one")


# In a store


def test_what_a_store_keeps_of_rules(tmp_path: Path) -> None:
    db, _ = opened(tmp_path)
    db.sql("""
        CREATE RULE a WHEN SELECT item FROM stock WHERE n < 5 DO INSERT INTO seen SELECT item FROM firing;
        CREATE RULE b WHEN TABLE low DO CALL one; ALTER RULE b DEACTIVATE FOR ('bolt');
        CREATE RULE c WHEN TABLE low DO CALL two; ALTER RULE c DEACTIVATE;
        CREATE RULE d WHEN TABLE low DO CALL two; DROP RULE d;
    """)
    put(db, bolt=1)
    db.close()
    db, calls = opened(tmp_path)
    assert [(one.name, one.activity.is_active) for one in db.rules] == [("a", True), ("b", True), ("c", False)]
    put(db, bolt=9, nut=1)
    put(db, bolt=1)
    assert (calls, db.rows("seen")) == ([("one", [("nut",)])], [("bolt",), ("nut",)])
    assert [(f.version, f.rule, f.plus) for f in db.rules.firings(since=1)] == [
        (2, "a", (("nut",),)),
        (2, "b", (("nut",),)),
        (3, "a", (("bolt",),)),
    ]
    assert [f.version for f in db.rules.firings("b")] == [2]
    db.close()


def test_a_function_that_nobody_registered_again(tmp_path: Path) -> None:
    """The store opens, and reads go on; the first transaction that needs the function is refused."""
    db, _ = opened(tmp_path)
    db.sql("CREATE RULE r WHEN TABLE low DO CALL one")
    db.close()
    with rederive.open(tmp_path) as db:
        put(db, bolt=9)
        with pytest.raises(UnknownFunction, match="its function 'one' is not registered"):
            put(db, bolt=1)
        assert (db.version, db.rows("stock")) == (1, [("bolt", 9)])
        assert [(f.version, f.outcome) for f in db.rules.firings()] == [(2, "failed")]
        db.rules.deactivate("r")
        put(db, bolt=1)


def test_firings_are_kept_within_the_retention(tmp_path: Path) -> None:
    with rederive.open(tmp_path, retention=2) as db:
        db.migrate(PROGRAM)
        db.rules.on("low", name="r")(lambda rows: None)
        for number in range(5):
            put(db, **{f"item{number}": 1})
        assert [f.version for f in db.rules.firings()] == [4, 5]


def test_a_repeated_transaction_fires_nothing(tmp_path: Path) -> None:
    db, calls = opened(tmp_path)
    db.sql("CREATE RULE a WHEN TABLE low DO CALL one; CREATE RULE b WHEN TABLE low DO CALL two IMMEDIATE")
    for _ in range(2):
        with db.transaction(key="once") as tx:
            tx.insert("stock", [("bolt", 1)])
    assert (len(calls), tx.result.repeated, db.version) == (2, True, 1)
    db.close()


def test_webhooks_need_a_store() -> None:
    db, _ = opened()
    with pytest.raises(NoStore):
        db.sql("CREATE RULE r WHEN TABLE low DO WEBHOOK 'https://example.com/'")


# Fuzz

WORDS = """CREATE OR REPLACE RULE ALTER DROP r ON INSERT DELETE UPDATE OF stock WHEN TABLE low SELECT item FROM DO CALL one ( ) ,
           WEBHOOK 'u' INTO VALUES firing STRICT NERVOUS IMMEDIATE DEFERRED PLUS MINUS BOTH PRIORITY 1 1e5 - RECURSIVE ACTIVATE
           FOR IF EXISTS CONSTRAINT VIEW REJECT AS ; `q` NULL""".split()
STARTS = ("CREATE RULE r", "ALTER RULE r", "CREATE CONSTRAINT", "CREATE RULE r WHEN TABLE low DO", "DROP RULE")


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(start=st.sampled_from(STARTS), words=st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_words_are_a_rule_or_are_refused(start: str, words: list[str]) -> None:
    db, _ = FUZZED
    text = f"{start} {' '.join(words)}"
    try:
        for parsed in parse(text):
            if parsed.kind == "rule":
                parse_rule_statement(parsed)
    except RederiveError:
        return
    with suppress(RederiveError):
        db.sql(text)


FUZZED = opened()
