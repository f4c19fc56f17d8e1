"""Texts that look like statements of SQL, most of them wrong: a grammar expanded at random, then damaged."""

from __future__ import annotations

import re
from random import Random

BASE = """
CREATE TABLE t (a INT, b INT NOT NULL, c BIGINT, d BOOLEAN, f DOUBLE, m DECIMAL(10,2), s STRING, ts TIMESTAMP, dt DATE);
CREATE TABLE u (k INT PRIMARY KEY, a INT);
CREATE VIEW v AS SELECT a, b FROM t WHERE d;
CREATE VIEW w AS SELECT a, count(*) AS n FROM t GROUP BY a;
INSERT INTO t VALUES (1, 2, 3, TRUE, 1.5, 2.25, 'x', TIMESTAMP '2024-01-01 10:00:00', DATE '2024-01-02'),
  (NULL, 5, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (1, 2, 3, FALSE, 0.0, 0, '', '1999-01-01 00:00:00', '1999-01-01');
INSERT INTO u VALUES (1, 1), (2, NULL);
"""

# Alternatives, one on each line; those before `--` end the text where it is deep already. {name} is expanded in turn.
_GRAMMAR = {
    "statement": """
        {query}
        --
        CREATE VIEW vv AS {query}
        CREATE OR REPLACE VIEW v AS {query}
        CREATE VIEW vv (p, q) AS {query}
        CREATE CONSTRAINT {mode} VIEW cc AS {query}
        CREATE TABLE tt (a {type} {column_option}, b {type}{table_option})
        INSERT INTO {target} {query}
        INSERT INTO {target} VALUES ({e}, {e})
        UPDATE t SET {column} = {e} {where}
        UPDATE u SET {column} = {e} {where}
        DELETE FROM {target} {where}
        CREATE RULE rr {event} WHEN {condition} DO {action}
        MERGE INTO t USING u ON {e} WHEN MATCHED THEN DELETE
        DROP {kind} {target}
        BEGIN; {statement}; COMMIT
        BEGIN; {statement}; ROLLBACK
        ALTER RULE rr DEACTIVATE FOR (1)
        ALTER TABLE t ADD COLUMN z INT
        """,
    "query": """
        SELECT {items} FROM t {where}
        SELECT {items} FROM {table} {where} {group} {order}
        --
        SELECT DISTINCT {items} FROM {table} {where} {group} {having} {order}
        SELECT {items}
        {query} {set} {query}
        WITH {recursive} c AS ({query}) SELECT * FROM c
        SELECT * FROM {table}
        """,
    "items": "{e}\n{e} AS x1, {e} AS y2\n*\na, b, count(*) AS n",
    "table": """
        t
        u
        v
        t AS x
        --
        t VERSION AS OF 1
        nope
        {table} {join} {table} {on}
        ({query}) AS sq
        ({table})
        (VALUES (1, 2)) AS vv(a, b)
        range(10)
        """,
    "join": "JOIN\nLEFT JOIN\nRIGHT JOIN\nFULL JOIN\nCROSS JOIN\nLEFT SEMI JOIN\nLEFT ANTI JOIN\nNATURAL JOIN\n,\nASOF JOIN",
    "on": "ON {e}\nUSING (a)\nON t.a = u.a\n ",
    "where": " \nWHERE {e}",
    "group": " \n \n \nGROUP BY a\nGROUP BY {e}\nGROUP BY ALL\nGROUP BY 1\nGROUP BY ROLLUP(a)\nGROUP BY GROUPING SETS ((a), ())",
    "having": " \nHAVING {e}\nQUALIFY {e}",
    "order": " \n \nORDER BY {e}\nLIMIT 3\nLIMIT 2 OFFSET 1\nFETCH FIRST 2 ROWS ONLY\nLIMIT 10 PERCENT",
    "set": "UNION\nUNION ALL\nEXCEPT\nINTERSECT\nMINUS\nEXCEPT ALL",
    "column": "a\nb\nc\nd\nf\nm\ns\nts\ndt\nk\nt.a\nzz",
    "literal": """
        1
        0
        -1
        NULL
        TRUE
        FALSE
        'x'
        ''
        'it''s'
        '2024-01-01'
        1.5
        1e300
        9999999999999999999
        DATE '2024-02-30'
        DATE '2024-02-28'
        TIMESTAMP '2024-01-01 00:00:00'
        INTERVAL 1 DAY
        X'1F'
        1L
        current_date()
        array(1)
        :p
        """,
    "e": """
        {column}
        {column}
        {literal}
        --
        ({e} {operator} {e})
        ({e} {operator} {e})
        {function}({e})
        {function}({e}, {e})
        {function}({e}, {e}, {e})
        CAST({e} AS {type})
        TRY_CAST({e} AS {type})
        {e}::{type}
        CASE WHEN {e} THEN {e} ELSE {e} END
        CASE {e} WHEN {e} THEN {e} END
        {e} IN ({e}, {e})
        {e} NOT IN ({query})
        {e} BETWEEN {e} AND {e}
        {e} IS NULL
        {e} IS NOT TRUE
        NOT {e}
        - {e}
        EXISTS ({query})
        ({query})
        {aggregate}({e})
        {aggregate}(DISTINCT {e}) FILTER (WHERE {e})
        {aggregate}({e}) OVER (PARTITION BY {e} ORDER BY {e})
        row_number() OVER (ORDER BY {e} DESC NULLS LAST)
        EXTRACT(YEAR FROM {e})
        {e}[0]
        {e} LIKE {e} ESCAPE '!'
        """,
    "operator": "+\n-\n*\n/\n%\n||\n&\n=\n<>\n<\n<=\n>\n>=\n<=>\nDIV\nAND\nOR\nLIKE\nRLIKE",
    "aggregate": "sum\ncount\nmin\nmax\navg\nevery\nstddev\ncollect_list",
    "function": "\n".join(
        "abs upper lower length substring concat coalesce nvl nullif if greatest least round floor sqrt power sign trim lpad rpad"
        " repeat replace reverse year month day hour datediff date_add add_months to_date trunc date_trunc left right instr rand"
        " explode split regexp_replace hash md5 struct try_cast typeof position date_format last_day space".split()
    ),
    "type": "INT\nBIGINT\nSTRING\nBOOLEAN\nDOUBLE\nDATE\nTIMESTAMP\nDECIMAL(10,2)\nDECIMAL(50,2)\nARRAY<INT>\nVARCHAR(3)\nVOID",
    "column_option": " \nNOT NULL\nPRIMARY KEY\nDEFAULT 1\nCOMMENT 1",
    "table_option": " \n, PRIMARY KEY (a)\n, PRIMARY KEY (zz)\n, CHECK (a > 1)",
    "target": "t\nu\nv\nnope\nt (a, b)\nt (zz)",
    "mode": " \nREJECT\nMONITOR",
    "recursive": " \nRECURSIVE",
    "event": " \nON INSERT OF t",
    "condition": "TABLE v\n{query}",
    "action": "INSERT INTO u SELECT 1, 2\nDELETE FROM t WHERE {e}\nUPDATE t SET a = {e}\nCALL f",
    "kind": "VIEW\nTABLE\nRULE\nVIEW IF EXISTS",
}
_PLACE = re.compile(r"\{(\w+)\}")
_DEEP = 4


def _alternatives(text: str) -> tuple[list[str], list[str]]:
    """Those that end a deep text, and all of them."""
    lines = [line.removeprefix("        ") for line in text.strip("\n").split("\n") if line]
    lines = [line for line in lines if line.strip() or line == " "]
    cut = lines.index("--") if "--" in lines else len(lines)
    return lines[:cut], [line for line in lines if line != "--"]


_RULES = {name: _alternatives(text) for name, text in _GRAMMAR.items()}


def _expanded(random: Random, name: str, depth: int = 0) -> str:
    ends, choices = _RULES[name]
    return _PLACE.sub(lambda place: _expanded(random, place[1], depth + 1), random.choice(ends if depth > _DEEP else choices))


def _damaged(random: Random, text: str) -> str:
    """A text with some words taken out, doubled, swapped or replaced."""
    words = text.split()
    for _ in range(random.randrange(3)):
        one, other = random.randrange(len(words)), random.randrange(len(words))
        match random.randrange(4):
            case 0 if len(words) > 1:
                del words[one]
            case 1:
                words.insert(one, words[other])
            case 2:
                words[one], words[other] = words[other], words[one]
            case _:
                words[one] = random.choice(["(", ")", ",", "NULL", "*", "SELECT", "FROM", "'"])
    return " ".join(words)


def any_statement(random: Random) -> str:
    return _damaged(random, _expanded(random, "statement"))
