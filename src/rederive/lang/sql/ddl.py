"""CREATE TABLE and CREATE VIEW: what they add to a program.

A table with a primary key is a base relation. A table without one is a bag: its base relation numbers the copies of each row,
and the name of the table is the set of its rows.

    t.copies(columns, copy)                  t(columns) :- t.copies(columns, _).

A view that is a bag is three relations: its rows with their identities, the multiplicity of each row, and the set of rows.

    v.all(columns, identity) :- ...          v.bag(columns, count) :- count = count : { v.all(columns, identity) }.
    v(columns) :- v.bag(columns, _).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from rederive.analysis.graph import check_stratified
from rederive.errors import Redefined, Span, SyntaxProblem, WrongArity
from rederive.ir.rules import Atom, BagRelations, Column, Constraint, Function, Mode, Program, Relation, Remote, Rule
from rederive.ir.terms import NUMBER, Variable
from rederive.lang.datalog.directive_options import check_remote_options
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.sql.definition import SqlDefinition
from rederive.lang.sql.lowered_relation import LoweredRelation
from rederive.lang.sql.parser import ParsedStatement, parse
from rederive.lang.sql.query import QueryLowering
from rederive.lang.sql.scope import identifier, identifiers
from rederive.lang.sql.statement_context import StatementContext, bag_relations, distinct_columns
from rederive.lang.sql.table_schema import TableSchema, enforced_conditions, read_schema
from rederive.lang.sql.types import column_type

REMOTE: Final = "remote"  # USING remote: the rows of the table are elsewhere


def definition_of(parsed: ParsedStatement) -> SqlDefinition:
    """The definition of a CREATE TABLE or CREATE VIEW; other objects are refused."""
    tree = parsed.tree
    assert isinstance(tree, exp.Create)
    kind = str(tree.args.get("kind")).upper()
    if kind not in ("TABLE", "VIEW"):
        raise parsed.unsupported(f"CREATE {kind}")
    name = _name(tree, parsed)
    replaces, if_not_exists = bool(tree.args.get("replace")), bool(tree.args.get("exists"))
    form = f"{parsed.constraint or ''} {_form(tree)}".lstrip()
    reads = frozenset(table.name.lower() for table in tree.find_all(exp.Table)) - {name.lower()}
    return SqlDefinition(parsed, name, kind == "VIEW", replaces, if_not_exists, form, reads)


def parse_definition_at(text: str, name: str, line: int, column: int) -> SqlDefinition:
    """A definition whose text comes from this place of a file; its errors name that place.

    >>> str(parse_definition_at("CREATE VIEW v AS SELECT 1 AS x", "views.sql", 7, 3).span)
    'views.sql:7:3'
    """
    # Blank lines and spaces in front give the tokens the places that they have in the file.
    (parsed,) = parse(f"{chr(10) * (line - 1)}{' ' * (column - 1)}{text}", name)
    return definition_of(parsed)


def parse_definitions(text: str, name: str = "<text>") -> tuple[SqlDefinition, ...]:
    """The definitions of a text; other statements are refused."""
    found = []
    for parsed in parse(text, name):
        if not isinstance(parsed.tree, exp.Create):
            raise SyntaxProblem("not SQL: expected CREATE", parsed.span, hint="run other statements with db.sql")
        found.append(definition_of(parsed))
    return tuple(found)


def _form(tree: exp.Create) -> str:
    bare = tree.copy()
    bare.set("replace", None)
    bare.set("exists", None)
    try:
        return bare.sql("spark", comments=False, normalize=True)
    except SqlglotError:  # sqlglot cannot print everything that it parses, such as a QUALIFY over some literals
        return repr(bare)


def _name(tree: exp.Expr, parsed: ParsedStatement) -> str:
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if not isinstance(table, exp.Table) or table.args.get("db"):
        raise parsed.unsupported("a name with a schema", table)
    name = identifier(table)
    if not name.replace("_", "a").isalnum() or not name.isascii() or name[0].isdigit():
        raise parsed.unsupported(f"the name '{name}'", table, "use letters, digits and _")
    return name


def dropped_relation(parsed: ParsedStatement) -> tuple[str, bool, bool]:
    """The table or view that a DROP names, whether it is a view, and whether IF EXISTS allows it to be missing."""
    tree = parsed.tree
    kind = str(tree.args.get("kind")).upper()
    if kind not in ("VIEW", "TABLE"):
        raise parsed.unsupported(f"DROP {kind}", None, "drop tables and views only")
    table, *more = tree.args["tables"]
    if more:
        raise parsed.unsupported(f"DROP {kind} of several names", more[0], "drop them one by one")
    return identifier(table), kind == "VIEW", bool(tree.args.get("exists"))


def comments_of(definition: SqlDefinition) -> tuple[str, dict[str, str]]:
    """The comment of a table or view, and those of its columns; empty texts where there is none.

    >>> (view,) = parse_definitions("CREATE VIEW v (k COMMENT 'the kind', n) COMMENT 'by kind' AS SELECT kind, count(*) FROM t")
    >>> comments_of(view)
    ('by kind', {'k': 'the kind'})
    """
    tree = definition.parsed.tree
    properties = tree.args["properties"].expressions if tree.args.get("properties") else ()
    whole = next((one.this.name for one in properties if isinstance(one, exp.SchemaCommentProperty)), "")
    items = tree.this.expressions if isinstance(tree.this, exp.Schema) else ()
    found = ((item, item.find(exp.CommentColumnConstraint)) for item in items if isinstance(item, exp.ColumnDef))
    return whole, {identifier(item): comment.this.name for item, comment in found if comment is not None}


def refreshed_name(parsed: ParsedStatement) -> str:
    """The relation that REFRESH TABLE or REFRESH MATERIALIZED VIEW names."""
    if not isinstance(parsed.tree.this, exp.Table):
        raise parsed.unsupported("REFRESH of a path", None, "name a table or a view")
    return identifier(parsed.tree.this)


def add_definition(known: Program, added: SqlDefinition) -> Program:
    """The program with one more table or view."""
    # SQL ignores the case of names and Datalog does not: a name of SQL clashes with every relation that differs by case alone.
    if added.name in known.folded_names:
        hint = "use CREATE OR REPLACE VIEW to replace a view" if added.is_view else "DROP TABLE first, or use IF NOT EXISTS"
        raise Redefined(f"'{added.name}' is defined already", added.parsed.span, hint=hint)
    builder = ProgramBuilder.of(known)
    if added.is_view:
        _create_view(builder, added)
    else:
        _create_table(builder, added)
    if added.parsed.constraint is not None:
        builder.constraints.append(Constraint(added.name, Mode(added.parsed.constraint), added.span))
    program = builder.program()
    check_stratified(program, known)
    return program


# Tables


def _create_table(builder: ProgramBuilder, added: SqlDefinition) -> None:
    parsed, tree = added.parsed, added.parsed.tree
    context = StatementContext(builder, added.name, parsed)
    location = _location(parsed)
    if not isinstance(tree.this, exp.Schema) or (location is not None and not _names_columns(tree)):
        hint = "name its columns, or run the statement with db.sql, which reads them from the table" if location else None
        raise parsed.unsupported("a table without columns", None, hint)
    if _is_temporary(tree):
        raise parsed.unsupported("a temporary table", None, "omit TEMPORARY")
    schema = read_schema(tree.this, added.name, context)
    columns, names = tuple(schema.columns), [column.name for column in schema.columns]
    key = tuple(names.index(name) for name in dict.fromkeys(schema.key))
    if (remote := _remote(parsed)) is not None:
        if not key:
            hint = "add PRIMARY KEY (columns): a warehouse maintains sets of rows"
            raise parsed.unsupported("a remote table without a primary key", None, hint)
        builder.remotes.append(Remote(added.name, remote, parsed.span))
    # Without a key, equal rows may occur several times: the base relation numbers
    # them. A key of all columns says no more than that the table is a set.
    bag = BagRelations(rows=f"{added.name}.copies") if not key else None
    identity = key if len(key) < len(columns) else ()
    relation = Relation(added.name, columns, identity, parsed.span, monitored=False, bag=bag, location=location)
    builder.relations[added.name] = relation
    if bag is not None:
        copies = bag.rows
        builder.relations[copies] = Relation(copies, (*columns, Column("copy", NUMBER)), span=parsed.span)
        #   t(columns) :- t.copies(columns, _).
        terms = tuple(Variable(f"c{i}") for i in range(len(columns)))
        rule = Rule(Atom(added.name, terms), (Atom(copies, (*terms, Variable("0"))),), parsed.span)
        builder.definitions.append(rule)
    _constrain(schema, context)


def _constrain(schema: TableSchema, context: StatementContext) -> None:
    """Add a constraint for each condition that every row of a table must fulfil."""
    builder, parsed = context.builder, context.parsed
    for name, condition, query in enforced_conditions(schema, tuple(builder.relations)):
        relation = QueryLowering(context).query(query, None, name)
        define_view(builder, name, relation, (), parsed, monitored=False)
        constraint = Constraint(name, Mode.REJECT, parsed.span, table=schema.table, text=condition.text)
        builder.constraints.append(constraint)


def _location(parsed: ParsedStatement) -> str | None:
    """The Delta table that a CREATE TABLE ... USING DELTA LOCATION attaches; None for a table of our own."""
    properties = _properties(parsed)
    formats = [one for one in properties if isinstance(one, exp.FileFormatProperty) and one.name.lower() != REMOTE]
    location = next((one.this.name for one in properties if isinstance(one, exp.LocationProperty)), None)
    if location is None and formats:
        raise parsed.unsupported("USING without LOCATION", formats[0], "add LOCATION 'path of the Delta table', or omit USING")
    if location is not None and [one.name.lower() for one in formats] != ["delta"]:
        raise parsed.unsupported("LOCATION of something other than a Delta table", None, "write USING DELTA LOCATION 'path'")
    return location


def _properties(parsed: ParsedStatement) -> Sequence[exp.Expr]:
    found = parsed.tree.args.get("properties")
    properties: Sequence[exp.Expr] = found.expressions if found else ()
    is_remote = any(isinstance(one, exp.FileFormatProperty) and one.name.lower() == REMOTE for one in properties)
    options = next((one for one in properties if isinstance(one, exp.OptionsProperty)), None)
    if options is not None and not is_remote:
        raise parsed.unsupported("OPTIONS", options, "omit OPTIONS, or write USING remote for a table whose rows are elsewhere")
    return properties


def _remote(parsed: ParsedStatement) -> tuple[tuple[str, str], ...] | None:
    """The options of a CREATE TABLE ... USING remote OPTIONS (...), as `.remote` has them; None for any other table."""
    properties = _properties(parsed)
    if not any(isinstance(one, exp.FileFormatProperty) and one.name.lower() == REMOTE for one in properties):
        return None
    given = [item for one in properties if isinstance(one, exp.OptionsProperty) for item in one.expressions]
    options: dict[str, tuple[str, Span]] = {}
    for item in given:
        name = item.this.name.lower()
        if name in options:
            raise Redefined(f"the option '{name}' is given twice", parsed.span_of(item))
        options[name] = (item.args["value"].name, parsed.span_of(item))
    return check_remote_options(options, parsed.span)


def _names_columns(tree: exp.Expr) -> bool:
    return isinstance(tree.this, exp.Schema) and any(isinstance(item, exp.ColumnDef) for item in tree.this.expressions)


@dataclass(frozen=True, slots=True)
class TableInPlace:
    """A CREATE TABLE ... USING DELTA LOCATION that leaves the columns to the table: its name, its location, its key."""

    name: str
    location: str
    key: tuple[str, ...]


def table_in_place(parsed: ParsedStatement) -> TableInPlace | None:
    """What a CREATE TABLE without columns attaches; None for any other statement."""
    tree = parsed.tree
    if not isinstance(tree, exp.Create) or str(tree.args.get("kind")).upper() != "TABLE" or _names_columns(tree):
        return None
    location = _location(parsed)
    if location is None:
        return None
    keys = tree.this.expressions if isinstance(tree.this, exp.Schema) else ()
    if other := next((item for item in keys if not isinstance(item, exp.PrimaryKey)), None):
        raise parsed.unsupported(f"{other.sql('spark')} in CREATE TABLE", other)
    return TableInPlace(_name(tree, parsed), location, tuple(identifier(part) for item in keys for part in item.expressions))


@dataclass(frozen=True, slots=True)
class TableOfQuery:
    """A CREATE TABLE ... AS: the table, the query, its key as it is declared, whether the table may exist or is replaced."""

    name: str
    query: exp.Expr
    items: tuple[str, ...]
    if_not_exists: bool
    replaces: bool = False


def table_of_query(parsed: ParsedStatement) -> TableOfQuery | None:
    """What a CREATE TABLE ... AS creates; None for any other statement."""
    tree = parsed.tree
    if not isinstance(tree, exp.Create) or str(tree.args.get("kind")).upper() != "TABLE" or tree.expression is None:
        return None
    items = tree.this.expressions if isinstance(tree.this, exp.Schema) else ()
    if other := next((item for item in items if not isinstance(item, exp.PrimaryKey)), None):
        raise parsed.unsupported("columns in CREATE TABLE ... AS", other, "name and cast the columns in the query")
    if _location(parsed) is not None or _is_temporary(tree):
        raise parsed.unsupported("this form of CREATE TABLE ... AS", None, "write CREATE TABLE t [(PRIMARY KEY (a))] AS query")
    declared = tuple(item.sql("spark") for item in items)
    return TableOfQuery(
        _name(tree, parsed), tree.expression, declared, bool(tree.args.get("exists")), bool(tree.args.get("replace"))
    )


def overwrite_of(table: TableOfQuery, parsed: ParsedStatement) -> ParsedStatement:
    """The INSERT OVERWRITE of a table by the query of its CREATE OR REPLACE TABLE ... AS."""
    insert = exp.Insert(this=exp.to_table(table.name), expression=table.query.copy(), overwrite=True)
    return replace(parsed, tree=insert)


def create_table(name: str, columns: Sequence[Column], items: Sequence[str] = ()) -> str:
    """The CREATE TABLE of a table with these columns.

    >>> create_table("t", [Column("id", NUMBER, False, 32)], ["PRIMARY KEY (id)"])
    'CREATE TABLE `t` (`id` INT NOT NULL, PRIMARY KEY (id))'
    """
    declared = [f"`{column.name}` {column_type(column)}{'' if column.nullable else ' NOT NULL'}" for column in columns]
    return f"CREATE TABLE `{name}` ({', '.join((*declared, *items))})"


def create_in_place(table: TableInPlace, columns: Sequence[Column]) -> str:
    """The CREATE TABLE of an attached table, with its columns: what the catalog holds.

    >>> create_in_place(TableInPlace("sale", "/data/sale", ("id",)), [Column("id", NUMBER, False, 32)])
    "CREATE TABLE `sale` (`id` INT NOT NULL, PRIMARY KEY (`id`)) USING DELTA LOCATION '/data/sale'"
    """
    key = [f"PRIMARY KEY ({', '.join(f'`{name}`' for name in table.key)})"] if table.key else []
    location = exp.Literal.string(table.location).sql("spark")
    return f"{create_table(table.name, columns, key)} USING DELTA LOCATION {location}"


# Views


def _create_view(builder: ProgramBuilder, added: SqlDefinition) -> None:
    tree = added.parsed.tree
    context = StatementContext(builder, added.name, added.parsed)
    query = tree.expression
    if query is None:
        raise added.parsed.unsupported("a view without a query")
    if _location(added.parsed) is not None:
        raise added.parsed.unsupported("a view with a LOCATION", None, "omit USING and LOCATION")
    if _remote(added.parsed) is not None:
        raise added.parsed.unsupported("a remote view", None, "create a remote table, and the view over it")
    rel = QueryLowering(context).query(query, None, added.name)
    columns = _view_columns(tree.this, context) if isinstance(tree.this, exp.Schema) else []
    called = columns or [field.name for field in rel.fields]
    if double := next((name for i, name in enumerate(called) if name in called[:i]), None):
        raise Redefined(
            f"the view '{added.name}' has two columns with the name '{double}'",
            added.parsed.span,
            hint="give one of them an alias",
        )
    define_view(builder, added.name, rel, columns, added.parsed, monitored=not _is_temporary(tree))


def _is_temporary(tree: exp.Expr) -> bool:
    properties = tree.args["properties"].expressions if tree.args.get("properties") else ()
    return any(isinstance(one, exp.TemporaryProperty) for one in properties)


def _view_columns(schema: exp.Schema, context: StatementContext) -> list[str]:
    """The names that a view gives its columns. Comments are allowed; types and constraints are not."""
    for item in schema.expressions:
        if isinstance(item, exp.ColumnDef) and (item.args.get("kind") is not None or _has_constraint(item)):
            raise context.unsupported("a type or a constraint of a view's column", item, "cast the column in the query")
    return identifiers(schema.expressions)


def _has_constraint(item: exp.ColumnDef) -> bool:
    kinds = [constraint.args["kind"] for constraint in item.args.get("constraints") or ()]
    return any(not isinstance(kind, exp.CommentColumnConstraint) for kind in kinds)


def define_view(
    builder: ProgramBuilder, name: str, rel: LoweredRelation, given: Sequence[str], parsed: ParsedStatement, *, monitored: bool
) -> None:
    """Define a view over the relation of its query, with the given column names; a bag is counted."""
    if given and len(given) != len(rel.fields):
        raise WrongArity(f"'{name}' names {len(given)} columns, but its query has {len(rel.fields)}", parsed.span)
    fields = [field.column(given[i] if given else None) for i, field in enumerate(rel.fields)]
    fields = list(distinct_columns(fields))
    if rel.hidden:
        _define_bag(builder, name, fields, parsed)
    else:
        builder.relations[name] = replace(builder.relations[name], columns=tuple(fields))
    # The view comes after its auxiliary relations, in the order of their definitions.
    declared = builder.relations.pop(name)
    builder.relations[name] = replace(declared, monitored=monitored)


def _define_bag(builder: ProgramBuilder, name: str, columns: Sequence[Column], parsed: ParsedStatement) -> None:
    context = StatementContext(builder, name, parsed)
    bag, width = bag_relations(name), len(columns)
    assert bag.counts is not None
    #   v.bag(columns, count) :- count = count : { v.all(columns, identity) }.
    #   v(columns) :- v.bag(columns, _).
    context.declare(bag.counts, (*columns, Column("count", NUMBER)), range(width))
    context.aggregate(bag.counts, Function.COUNT, bag.rows, range(width), None)
    context.declare(name, columns)
    builder.relations[name] = replace(builder.relations[name], bag=bag)
    terms = tuple(Variable(f"c{i}") for i in range(width))
    context.define(name, terms, [Atom(bag.counts, (*terms, Variable("count")))])
