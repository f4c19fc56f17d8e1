"""INSERT, UPDATE and DELETE, and queries by themselves: compiled to terms and programs, which the database evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from rederive.analysis.graph import check_stratified
from rederive.errors import IllTypedRow, NotABase, Redefined, SyntaxProblem, UnknownName, WrongArity
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Constant, Term, Value, Variable
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.sql.column_defaults import default_of, generate_columns, is_default
from rederive.lang.sql.ddl import define_view
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.merge import lower_merge
from rederive.lang.sql.parser import ParsedStatement
from rederive.lang.sql.predicates import conjuncts
from rederive.lang.sql.query import PreparedQuery, QueryLowering
from rederive.lang.sql.scope import Scope, identifier, identifiers
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.supported_syntax import construct_name
from rederive.lang.sql.types import SqlType, column_type


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A query to evaluate: a program in which the query is the view of this name."""

    program: Program
    view: str


@dataclass(frozen=True, slots=True)
class InsertValues:
    """INSERT ... VALUES: rows of terms without variables."""

    table: str
    rows: tuple[tuple[Term, ...], ...]


@dataclass(frozen=True, slots=True)
class InsertQuery:
    """INSERT ... SELECT: the answers of a query are inserted."""

    table: str
    question: CompiledQuery


@dataclass(frozen=True, slots=True)
class ChangeMatching:
    """UPDATE or DELETE without subqueries: it deletes the rows that have the bindings and fulfil the condition.

    An UPDATE inserts `values` for each of them. The terms are over the columns of the table, called `c0`, `c1` and so on. The
    bindings follow from the condition; they let the database look rows up by a key.
    """

    table: str
    bindings: tuple[tuple[int, Value], ...]
    condition: Term | None
    values: tuple[Term, ...] | None


@dataclass(frozen=True, slots=True)
class ChangeQuery:
    """UPDATE or DELETE with subqueries: an answer is the old row and, for an UPDATE, the new row after it."""

    table: str
    question: CompiledQuery
    updates: bool


@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """INSERT OVERWRITE and INSERT ... REPLACE WHERE: rows leave, and the rows of an INSERT enter, in one statement.

    `condition`: what each row that enters must fulfil, over the columns `c0`, `c1` and so on.
    """

    table: str
    removed: ChangeMatching | ChangeQuery
    added: InsertValues | InsertQuery
    condition: Term | None


@dataclass(frozen=True, slots=True)
class MergeRows:
    """MERGE: an answer of a question is the old row, if it has one, the number of the action, and the new row.

    `matched` and `by_source` have the old row, `by_target` has none. `deletes` are the numbers of the actions that delete.
    """

    table: str
    matched: CompiledQuery | None
    by_target: CompiledQuery | None
    by_source: CompiledQuery | None
    deletes: frozenset[int]


DataChange: TypeAlias = InsertValues | InsertQuery | ChangeMatching | ChangeQuery | ReplaceRows | MergeRows
QUERY_VIEW = "?"


def compile_change(parsed: ParsedStatement, program: Program) -> DataChange:
    """The change that an INSERT, UPDATE or DELETE requests."""
    return _DmlLowering(parsed, program).change()


def compile_select(parsed: ParsedStatement, program: Program) -> CompiledQuery:
    """A query by itself, such as that of `db.query`."""
    builder = ProgramBuilder.of(program)
    context = StatementContext(builder, QUERY_VIEW, parsed)
    rel = QueryLowering(context).query(parsed.tree, None, QUERY_VIEW)
    define_view(builder, QUERY_VIEW, rel, (), parsed, monitored=False)
    return _question(builder)


def _question(builder: ProgramBuilder) -> CompiledQuery:
    program = builder.program()
    check_stratified(program)
    return CompiledQuery(program, QUERY_VIEW)


class _DmlLowering:
    """Lowers one INSERT, UPDATE or DELETE."""

    def __init__(self, parsed: ParsedStatement, program: Program) -> None:
        self.parsed = parsed
        self.program = program
        self.context = StatementContext(ProgramBuilder.of(program), QUERY_VIEW, parsed)
        self.queries = QueryLowering(self.context)
        self.lower = ExpressionLowering(self.context, Scope(self.context.body()), self.queries.subqueries)

    def change(self) -> DataChange:
        tree = self.parsed.tree
        if isinstance(tree, exp.Insert) and tree.args.get("partition") is not None:
            tree = self.without_partition(tree.copy(), tree.args["partition"])
        match tree:
            case exp.Insert() if tree.args.get("overwrite") or tree.args.get("where"):
                return self.replace_rows(tree)
            case exp.Insert():
                return self.insert(tree)
            case exp.Update() if tree.expressions:
                return self.change_rows(tree, tree.expressions)
            case exp.Delete():
                return self.change_rows(tree, ())
            case exp.TruncateTable(expressions=[table]):
                return ChangeMatching(self.table(table).name, (), None, None)
            case exp.Merge():
                return lower_merge(self, tree)
        raise self.parsed.unsupported(f"the statement {construct_name(tree)}", tree)

    def table(self, node: exp.Expr) -> Relation:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            hint = "write INSERT INTO t ..., UPDATE t SET ... or DELETE FROM t ..."
            raise SyntaxProblem("not SQL: expected the name of a table", self.parsed.span, hint=hint)
        if unread := next((part for part, value in node.args.items() if value and part not in ("this", "alias")), None):
            raise self.parsed.unsupported("a name with a schema" if unread in ("db", "catalog") else unread.upper(), node)
        name = identifier(node)
        found = [known for known in self.program.tables if known.lower() == name]
        if not found:
            if name in self.program.views:
                raise NotABase(name)
            raise UnknownName("table", name, self.program.tables, self.context.span(node))
        return self.program.relations[found[0]]

    # INSERT

    def insert(self, tree: exp.Insert) -> InsertValues | InsertQuery:
        target = tree.this
        table = self.table(target.this if isinstance(target, exp.Schema) else target)
        source = tree.expression
        if tree.args.get("with_") is not None:
            source.set("with_", tree.args["with_"].pop())
        by_name = isinstance(source, exp.Query) and tree.args.get("by_name")
        if by_name:
            given = [name for name, _ in self.fresh().queries.prepare(source.copy()).outputs]
        else:
            given = identifiers(target.expressions) if isinstance(target, exp.Schema) else [c.name for c in table.columns]
        positions = [self.position(table, name) for name in given]
        self.check_once(given)
        if not isinstance(source, exp.Query | exp.Values):
            raise self.parsed.unsupported(
                "INSERT without VALUES or a query", tree, "write INSERT INTO t VALUES (...) or INSERT INTO t SELECT ..."
            )
        if isinstance(source, exp.Values) and not source.find(exp.Query):
            return InsertValues(table.name, tuple(self.constants(row, table, positions) for row in source.expressions))
        prepared = self.in_table_order(self.queries.prepare(source), table, positions)
        return InsertQuery(table.name, self.compiled_query(prepared))

    def without_partition(self, tree: exp.Insert, partition: exp.Expr) -> exp.Insert:
        """INSERT ... PARTITION (d = 1, e): the rows have 1 in d, and the last columns of the query are the others, as e.

        With OVERWRITE, the rows with 1 in d are replaced, as with REPLACE WHERE.
        """
        fixed = {identifier(one.this): one.expression for one in partition.expressions if isinstance(one, exp.EQ)}
        others = [identifier(one) for one in partition.expressions if isinstance(one, exp.Column)]
        target, source = tree.this, tree.expression
        table = self.table(target.this if isinstance(target, exp.Schema) else target)
        names = identifiers(target.expressions) if isinstance(target, exp.Schema) else [column.name for column in table.columns]
        self.check_once([*fixed, *others])
        rest = [name for name in names if name not in fixed]
        if len(fixed) + len(others) < len(partition.expressions) or (others and rest[-len(others) :] != others):
            hint = "write PARTITION (column = constant, ...), and columns without a constant last in the table and in PARTITION"
            raise self.parsed.unsupported("this PARTITION", partition, hint)
        if tree.args.get("by_name") or tree.args.get("where") is not None or not isinstance(source, exp.Query | exp.Values):
            raise self.parsed.unsupported("PARTITION with BY NAME or REPLACE WHERE", partition, "name the columns instead")
        if isinstance(source, exp.Values):
            for row in source.expressions:
                row.replace(exp.Tuple(expressions=[*(row.expressions or [row]), *(one.copy() for one in fixed.values())]))
        elif fixed:
            if tree.args.get("with_") is not None:
                source.set("with_", tree.args["with_"].pop())
            inner = exp.Subquery(this=source, alias=exp.TableAlias(this=exp.to_identifier("rows")))
            tree.set("expression", exp.Select(expressions=[exp.Star(), *(one.copy() for one in fixed.values())]).from_(inner))
        bare = (target.this if isinstance(target, exp.Schema) else target).copy()
        tree.set("this", exp.Schema(this=bare, expressions=[exp.to_identifier(name) for name in (*rest, *fixed)]))
        if tree.args.get("overwrite") and fixed:
            tests = [exp.NullSafeEQ(this=exp.column(name), expression=one.copy()) for name, one in fixed.items()]
            tree.set("where", exp.and_(*tests))
        tree.set("partition", None)
        return tree

    def fresh(self) -> _DmlLowering:
        """Another lowering of the same statement: a program holds one query."""
        return _DmlLowering(self.parsed, self.program)

    def replace_rows(self, tree: exp.Insert) -> ReplaceRows:
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        where = tree.args.get("where")
        condition = exp.Where(this=where.copy()) if where is not None else None
        removed = self.fresh().change_rows(exp.Delete(this=target.copy(), where=condition), ())
        added = self.insert(tree)
        table = self.table(target)
        test = None
        if where is not None:
            if not isinstance(removed, ChangeMatching):
                raise self.parsed.unsupported("a subquery in REPLACE WHERE", where, "DELETE the rows, then INSERT")
            test = removed.condition
        return ReplaceRows(table.name, removed, added, test)

    def position(self, table: Relation, name: str) -> int:
        known = [column.name for column in table.columns]
        if name not in known:
            raise UnknownName("column", name, known, self.parsed.span)
        return known.index(name)

    def check_once(self, columns: Sequence[str]) -> None:
        if double := next((name for i, name in enumerate(columns) if name in columns[:i]), None):
            raise Redefined(f"the statement sets column '{double}' twice", self.parsed.span)

    def constants(self, row: exp.Expr, table: Relation, positions: Sequence[int]) -> tuple[Term, ...]:
        nodes = row.expressions if isinstance(row, exp.Tuple) else [row]
        self.check_width(len(nodes), positions)
        named = [(node, i) for node, i in zip(nodes, positions, strict=True) if not is_default(node)]
        typed = [self.lower.lower(node) for node, _ in named]
        return tuple(one.term for one in self.row(typed, table, [i for _, i in named]))

    def check_width(self, width: int, positions: Sequence[int]) -> None:
        if width != len(positions):
            raise WrongArity(f"expected {len(positions)} values, but there are {width}", self.parsed.span)

    def row(self, typed: Sequence[TypedTerm], table: Relation, positions: Sequence[int]) -> list[TypedTerm]:
        """Values in the order and the types of the table's columns; the defaults of columns that are not named."""
        self.check_width(len(typed), positions)
        given = [typed[positions.index(i)] if i in positions else default_of(c) for i, c in enumerate(table.columns)]
        row = [self.lower.cast(v, column_type(c), self.parsed.tree) for v, c in zip(given, table.columns, strict=True)]
        found = generate_columns(row, table, positions)
        for value, column in zip(found, table.columns, strict=True):
            if isinstance(value.term, Constant) and value.term.value is None and not column.nullable:
                raise IllTypedRow(f"relation '{table.name}', column '{column.name}': NULL in a NOT NULL column").at(
                    str(self.parsed.span)
                )
        return found

    def in_table_order(self, prepared: PreparedQuery, table: Relation, positions: Sequence[int]) -> PreparedQuery:
        row = self.row([typed for _, typed in prepared.outputs], table, positions)
        return replace(prepared, outputs=tuple(zip((column.name for column in table.columns), row, strict=True)))

    def compiled_query(self, prepared: PreparedQuery) -> CompiledQuery:
        named = tuple((f"c{i}", typed) for i, (_, typed) in enumerate(prepared.outputs))
        rel = self.queries.project(replace(prepared, outputs=named), QUERY_VIEW)
        define_view(self.context.builder, QUERY_VIEW, rel, (), self.parsed, monitored=False)
        return _question(self.context.builder)

    # UPDATE and DELETE

    def change_rows(self, tree: exp.Expr, updates: Sequence[exp.Expr]) -> ChangeMatching | ChangeQuery:
        table = self.table(tree.this)
        where = tree.args["where"].this if tree.args.get("where") is not None else None
        parts = [*updates, *([where] if where is not None else [])]
        # Without subqueries a row alone decides about itself. A subquery reads tables, so it needs a program.
        if tree.args.get("from_") is not None or any(part.find(exp.Query) for part in parts):
            return self.change_by_query(tree, table, where, updates)
        scope = self.scope(tree.this, table)
        lower = replace(self.lower, scope=scope)
        condition = lower.boolean(where).term if where is not None else None
        values = tuple(typed.term for typed in self.new_row(table, updates, lower)) if updates else None
        return ChangeMatching(table.name, tuple(self.bindings(where, lower)), condition, values)

    def scope(self, node: exp.Expr, table: Relation) -> Scope:
        scope = Scope(self.context.body())
        scope.bind(identifier(node.args.get("alias")) or table.name.lower(), self.context.row_columns(table.columns))
        return scope

    def new_row(self, table: Relation, updates: Sequence[exp.Expr], lower: ExpressionLowering) -> list[TypedTerm]:
        """The columns of the row that an UPDATE makes."""
        # In UPDATE ... FROM the columns of other sources follow those of the table.
        columns = [column.typed for column in lower.scope.columns[: table.arity]]
        alias = lower.scope.columns[0].alias
        for update in updates:
            if not isinstance(update, exp.EQ) or not isinstance(update.this, exp.Column):
                raise self.parsed.unsupported("this form of SET", update, "write SET column = value")
            if identifier(update.this.args.get("table")) not in ("", alias):
                raise UnknownName("table or alias", identifier(update.this.args["table"]), [alias], self.context.span(update))
            i = self.position(table, identifier(update.this))
            type: SqlType = column_type(table.columns[i])
            # Every expression reads the old row: SET a = b, b = a exchanges both.
            written = update.expression
            value = default_of(table.columns[i]) if is_default(written) else lower.lower(written)
            columns[i] = lower.cast(value, type, update) if value.type != type else value
        self.check_once([identifier(update.this) for update in updates])
        given = {self.position(table, identifier(update.this)) for update in updates if not is_default(update.expression)}
        return generate_columns(columns, table, given)

    def bindings(self, where: exp.Expr | None, lower: ExpressionLowering) -> list[tuple[int, Value]]:
        """The columns that the condition equates with constants."""
        # The whole condition is tested, too: a binding may only narrow the rows that are read.
        found: dict[int, Value] = {}
        for part in conjuncts(where) if where is not None else ():
            if isinstance(part, exp.EQ):
                sides = lower.to_common_type([lower.lower(part.this), lower.lower(part.expression)], part)
                for one, other in (sides, sides[::-1]):
                    if isinstance(one.term, Variable) and isinstance(other.term, Constant):
                        found[int(one.term.name[1:])] = other.term.value
        return list(found.items())

    def change_by_query(
        self, tree: exp.Expr, table: Relation, where: exp.Expr | None, updates: Sequence[exp.Expr]
    ) -> ChangeQuery:
        # SELECT * gives the old row; the new row is computed in the same query, so that both are of one state.
        source, others = tree.this.copy(), tree.args.get("from_")
        own = exp.Column(this=exp.Star(), table=exp.to_identifier(source.alias_or_name))
        select = exp.Select(expressions=[own]).from_(source, copy=False)
        if others is not None:
            select = select.join(others.this.copy(), copy=False)
        if where is not None:
            select = select.where(where, copy=False)
        prepared = self.queries.prepare(select)
        old = [typed for _, typed in prepared.outputs]
        new = self.new_row(table, updates, prepared.lower) if updates else []
        outputs = tuple((f"c{i}", typed) for i, typed in enumerate((*old, *new)))
        return ChangeQuery(table.name, self.compiled_query(replace(prepared, outputs=outputs)), bool(updates))
