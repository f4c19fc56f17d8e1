"""What is typed at the prompt: where an input ends, in which language it is, and how it may be completed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rederive.errors import RederiveError
from rederive.lang.datalog.compiler import parse_statements
from rederive.lang.sql.parser import parse

if TYPE_CHECKING:
    from rederive.ir.rules import Program

# A statement of SQL begins with one of these words; in Datalog, a parenthesis would follow the name.
_SQL: Final = re.compile(
    r"\s*\(*\s*(alter|begin|commit|create|delete|describe|desc|drop|explain|from|insert|merge|refresh|rollback|savepoint|select"
    r"|show|start|table|truncate|update|values|with)\b(?!\s*\()",
    re.IGNORECASE,
)
_BEGIN: Final = re.compile(r"\s*(begin|start\s+transaction)\b", re.IGNORECASE)
_END: Final = re.compile(r"(commit|rollback)\s*;\s*\Z", re.IGNORECASE)
WORDS: Final = {"help": ".help", "quit": ".quit", "exit": ".quit", "\\q": ".quit", "\\d": ".tables", "\\?": ".help"}
"""What other prompts call these commands, alone on a line."""
DIRECTIVES: Final = (".decl", ".type", ".input", ".output", ".remote", ".stored", ".constraint", ".rule", ".comp", ".init")
_KEYWORDS: Final = (
    "CREATE TABLE", "CREATE VIEW", "CREATE OR REPLACE VIEW", "CREATE RULE", "DROP VIEW", "INSERT INTO", "DELETE FROM", "UPDATE",
    "MERGE INTO", "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "WITH RECURSIVE",
    "UNION", "UNION ALL", "EXCEPT", "INTERSECT", "VALUES", "PRIMARY KEY", "STRING", "INT", "BIGINT", "DOUBLE", "BOOLEAN", "DATE",
    "TIMESTAMP", "NOT NULL", "BEGIN", "COMMIT", "ROLLBACK", "SHOW TABLES", "SHOW VIEWS", "DESCRIBE", "EXPLAIN",
)  # fmt: skip


def is_sql(text: str) -> bool:
    """Whether an input is SQL, and not Datalog.

    >>> is_sql("select 1;"), is_sql('edge("a", "b").'), is_sql("select(1).")
    (True, False, False)

    A semicolon ends nothing in Datalog, so that a misspelt word is SQL, too.

    >>> is_sql("selec 1;"), is_sql("p(x) :- q(x);")
    (True, False)
    """
    bare = without_comments(text)
    if _SQL.match(bare):
        return True
    without_texts = _without_texts(bare).strip()
    return without_texts.endswith(";") and ":-" not in without_texts


def is_command(text: str, commands: Iterable[str]) -> bool:
    """Whether an input is a command of the shell, such as `.help`, and not a directive of Datalog.

    >>> is_command(".help", [".help"]), is_command(".decl e(x: symbol)", [".help"]), is_command(".hlep", [".help"])
    (True, False, True)
    """
    if text.removesuffix(";").lower() in WORDS:
        return True
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    return word in commands or (word.startswith(".") and word not in DIRECTIVES)


def has_rules(text: str) -> bool:
    """Whether an input of Datalog is rules, without a directive.

    >>> has_rules("p(x) :- q(x)."), has_rules('q(":-").'), has_rules(".decl p(x: symbol) p(x) :- q(x).")
    (True, False, False)
    """
    bare = _without_texts(without_comments(text)).strip()
    return ":-" in bare and not bare.startswith(".")


def is_complete(text: str) -> bool:
    """Whether an input has its end: a semicolon in SQL, after COMMIT if it begins a transaction; a dot or `?` in Datalog.

    A directive of Datalog ends with its line.

    >>> is_complete("select 1"), is_complete("select ';'"), is_complete("select 1;"), is_complete("begin; delete from t;")
    (False, False, True, False)
    >>> is_complete('edge("a",'), is_complete('edge("a", "b").'), is_complete("edge(x, y)?"), is_complete(".decl e(x: symbol)")
    (False, True, True, True)
    """
    bare = _without_texts(without_comments(text)).strip()
    if is_sql(text):
        return bare.endswith(";") and (not _BEGIN.match(bare) or _END.search(bare) is not None)
    if bare.split(maxsplit=1)[:1] and bare.split(maxsplit=1)[0] in DIRECTIVES:
        return bare.count("(") == bare.count(")") and not bare.endswith(",")
    return bare.endswith((".", "?"))


def missing_end(text: str) -> str | None:
    """How to end an input that could end here; None if it is complete, or needs more than an end.

    >>> missing_end("select 1"), missing_end("select"), missing_end("select 1;")
    ('a statement of SQL ends with ;', None, None)
    >>> missing_end("begin; delete from t;")
    'a transaction ends with COMMIT; or ROLLBACK;'
    >>> missing_end('edge("a", "b")'), missing_end("p(x) :-"), missing_end('edge("a",')
    ('a fact, rule or transaction of Datalog ends with . and a query with ?', None, None)
    """
    if is_complete(text):
        return None
    if not is_sql(text):
        could_end = signed_atoms(text) is not None or _parses(parse_statements, f"{text}\n.")
        return "a fact, rule or transaction of Datalog ends with . and a query with ?" if could_end else None
    if not _parses(parse, text):
        return None
    bare = _without_texts(without_comments(text)).strip()
    begun = _BEGIN.match(bare) is not None and bare.endswith(";")
    return "a transaction ends with COMMIT; or ROLLBACK;" if begun else "a statement of SQL ends with ;"


def _parses(parser: Callable[[str], object], text: str) -> bool:
    try:
        parser(text)
    except RederiveError:
        return False
    return True


def without_comments(text: str) -> str:
    """An input without its comments, in either language; texts in quotes stay.

    >>> without_comments("select '--' -- a comment").rstrip()
    "select '--'"
    """
    return _COMMENT.sub(lambda found: found[1] or " ", text)


def _without_texts(text: str) -> str:
    return _TEXT.sub("''", text)


_QUOTED: Final = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\""
_TEXT: Final = re.compile(_QUOTED, re.DOTALL)
_COMMENT: Final = re.compile(rf"({_QUOTED})|--[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)


def signed_atoms(text: str) -> list[tuple[str, str]] | None:
    """The atoms of `+edge("a", "b"), -edge("b", "c").`: a transaction in Datalog. None for any other input.

    >>> signed_atoms('+edge("a", "b, -"), -edge("b", "c").')
    [('+', 'edge("a", "b, -")'), ('-', 'edge("b", "c")')]
    """
    found, rest = [], without_comments(text).strip().removesuffix(".")
    while match := _SIGNED.match(rest):
        found.append((match[1], match[2]))
        rest = rest[match.end() :]
    return found if found and not rest.strip() else None


_SIGNED: Final = re.compile(rf"\s*([+-])\s*(\w+\s*\((?:{_QUOTED}|[^()\"'])*\))\s*(?:,|\Z)", re.DOTALL)


def completions(word: str, program: Program, commands: Iterable[str], *, at_start: bool) -> Iterator[str]:
    """What a word may become: commands and directives at the start of a line, else names of the program and words of SQL."""
    names = {name for name, relation in program.relations.items() if not relation.is_auxiliary}
    columns = {column.name for name in names for column in program.relations[name].columns}
    offered = [*commands, *DIRECTIVES] if at_start and word.startswith(".") else [*sorted(names), *sorted(columns), *_KEYWORDS]
    yield from (one for one in dict.fromkeys(offered) if one.lower().startswith(word.lower()) and one != word)
