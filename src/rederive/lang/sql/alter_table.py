"""ALTER TABLE and COMMENT ON: edits of the statement that creates a table or view. The catalog holds the edited statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from rederive.errors import Redefined, UnknownName
from rederive.lang.sql.ddl import parse_definitions
from rederive.lang.sql.definition import SqlDefinition
from rederive.lang.sql.parser import ParsedStatement
from rederive.lang.sql.scope import identifier, identifiers


@dataclass(frozen=True, slots=True)
class AlteredTable:
    """A table after ALTER TABLE: its new definition and, for each new column, the old one whose values it takes over."""

    definition: SqlDefinition
    origins: tuple[str | None, ...]


def altered_name(parsed: ParsedStatement) -> str:
    """The table or view that ALTER TABLE or COMMENT ON names."""
    tree = parsed.tree
    if isinstance(tree, exp.Comment):
        kind = str(tree.args.get("kind")).upper()
        if kind not in ("TABLE", "VIEW", "COLUMN"):
            raise parsed.unsupported(f"COMMENT ON {kind}", None, "comment on a table, a view or a column of a table")
        return identifier(tree.this.args.get("table")) if kind == "COLUMN" else identifier(tree.this)
    if str(tree.args.get("kind")).upper() != "TABLE":
        hint = "use CREATE OR REPLACE VIEW"
        raise parsed.unsupported(f"ALTER {tree.args.get('kind')}", None, hint)
    return identifier(tree.this)


def alter_table(current: SqlDefinition, parsed: ParsedStatement) -> AlteredTable:
    """The table after the actions of an ALTER TABLE.

    >>> from rederive.lang.sql.parser import parse
    >>> (table,) = parse_definitions("CREATE TABLE t (k INT PRIMARY KEY, a INT)")
    >>> (alter,) = parse("ALTER TABLE t RENAME COLUMN a TO b")
    >>> found = alter_table(table, alter)
    >>> found.definition.span.whole, found.origins
    ('CREATE TABLE t (k INT PRIMARY KEY, b INT)', ('k', 'a'))
    """
    edit = _Edit(current.parsed.tree.copy(), parsed)
    for action in parsed.tree.args["actions"]:
        edit.apply(action)
    return AlteredTable(_definition(edit.tree, parsed), tuple(edit.origins[name] for name in edit.columns))


def commented(current: SqlDefinition, parsed: ParsedStatement) -> SqlDefinition:
    """The definition with the comment of a COMMENT ON."""
    tree, text = current.parsed.tree.copy(), parsed.tree.expression
    if str(parsed.tree.args.get("kind")).upper() == "COLUMN":
        item = _Edit(tree, parsed).column(parsed.tree.this)
        _set_constraint(item, exp.CommentColumnConstraint, exp.CommentColumnConstraint(this=text.copy()))
    else:
        properties = tree.args.get("properties")
        kept = [one for one in properties.expressions if not isinstance(one, exp.SchemaCommentProperty)] if properties else []
        tree.set("properties", exp.Properties(expressions=[*kept, exp.SchemaCommentProperty(this=text.copy())]))
    return _definition(tree, parsed)


def _definition(tree: exp.Expr, parsed: ParsedStatement) -> SqlDefinition:
    (definition,) = parse_definitions(tree.sql("spark"), parsed.span.source.name)
    return definition


class _Edit:
    """A CREATE TABLE that is being edited. `origins`: the old column of each new one."""

    def __init__(self, tree: exp.Expr, parsed: ParsedStatement) -> None:
        self.tree = tree
        self.parsed = parsed
        self.schema: exp.Schema = tree.this
        self.origins: dict[str, str | None] = {name: name for name in self.columns}

    @property
    def columns(self) -> list[str]:
        return [identifier(item) for item in self.schema.expressions if isinstance(item, exp.ColumnDef)]

    def column(self, node: exp.Expr) -> exp.ColumnDef:
        """The item of a column."""
        name = identifier(node)
        for item in self.schema.expressions:
            if isinstance(item, exp.ColumnDef) and identifier(item) == name:
                return item
        raise UnknownName("column", name, self.columns, self.parsed.span_of(node))

    def apply(self, action: exp.Expr) -> None:
        match action:
            case exp.ColumnDef():
                self.add(action)
            case exp.Schema(expressions=added):
                for item in added:
                    self.add(item)
            case exp.Drop() if str(action.args["kind"]).upper() in ("COLUMN", "COLUMNS"):
                for name in _dropped(action):
                    self.drop(name, action)
            case exp.Drop() if str(action.args["kind"]).upper() == "CONSTRAINT":
                self.drop_constraint(action)
            case exp.RenameColumn():
                self.rename(action)
            case exp.AddConstraint():
                self.schema.set("expressions", [*self.schema.expressions, *(item.copy() for item in action.expressions)])
            case exp.AlterColumn():
                self.alter(action)
            case _:
                hint = "add, drop, rename or alter columns, or add and drop constraints"
                raise self.parsed.unsupported("this form of ALTER TABLE", action, hint)

    def add(self, item: exp.Expr) -> None:
        if not isinstance(item, exp.ColumnDef):
            raise self.parsed.unsupported("this item of ADD COLUMNS", item, "write name TYPE")
        name = identifier(item)
        if name in self.columns:
            raise Redefined(f"two columns have the name '{name}'", self.parsed.span_of(item))
        added, items = item.copy(), list(self.schema.expressions)
        place = added.args.pop("position", None)
        added.set("exists", None)
        at = len(self.columns)
        if place is not None:
            # FIRST, or AFTER a column.
            at = items.index(self.column(place.this)) + 1 if place.this is not None else 0
        self.schema.set("expressions", [*items[:at], added, *items[at:]])
        self.origins[name] = None

    def drop(self, node: exp.Expr, action: exp.Expr) -> None:
        if action.args.get("exists") and identifier(node) not in self.columns:
            return
        item = self.column(node)
        kinds = [constraint.args["kind"] for constraint in item.args.get("constraints") or ()]
        keys = [part for one in self.schema.find_all(exp.PrimaryKey) for part in identifiers(one.expressions)]
        if identifier(node) in keys or any(isinstance(kind, exp.PrimaryKeyColumnConstraint) for kind in kinds):
            raise self.parsed.unsupported(
                "dropping a column of the key", node, "create another table, and insert the rows into it"
            )
        self.schema.set("expressions", [one for one in self.schema.expressions if one is not item])

    def drop_constraint(self, action: exp.Expr) -> None:
        (name,) = _dropped(action)
        for node in self.schema.find_all(exp.Constraint, exp.ColumnConstraint):
            if identifier(node.this) == identifier(name):
                # Of a column, the constraint is an item of its list; of a table, an item of the schema.
                node.pop()
                return
        if not action.args.get("exists"):
            known = [identifier(one.this) for one in self.schema.find_all(exp.Constraint, exp.ColumnConstraint) if one.this]
            raise UnknownName("constraint", identifier(name), known, self.parsed.span)

    def rename(self, action: exp.Expr) -> None:
        old, new = identifier(action.this), identifier(action.args["to"])
        self.column(action.this)
        if new in self.columns:
            raise Redefined(f"two columns have the name '{new}'", self.parsed.span)
        for node in list(self._mentions(old)):
            node.set("this", action.args["to"].name)
        self.origins[new] = self.origins.pop(old)

    def _mentions(self, name: str) -> Iterator[exp.Expr]:
        """The identifiers that mean a column of this table, in its items and in the conditions of its rows."""
        for node in self.schema.find_all(exp.Identifier):
            outer = node.find_ancestor(exp.Reference, exp.Constraint) if not isinstance(node.parent, exp.Column) else None
            is_other = isinstance(outer, exp.Reference) and identifier(outer.find(exp.Table)) != identifier(self.schema.this)
            is_name = isinstance(node.parent, exp.Table | exp.Constraint | exp.ColumnConstraint) and node.arg_key == "this"
            if identifier(node) == name and not is_other and not is_name:
                yield node

    def alter(self, action: exp.Expr) -> None:
        item, args = self.column(action.this), action.args
        if args.get("dtype") is not None:
            item.set("kind", args["dtype"].copy())
        elif args.get("default") is not None:
            _set_constraint(item, exp.DefaultColumnConstraint, exp.DefaultColumnConstraint(this=args["default"].copy()))
        elif args.get("allow_null") is not None:
            stated = None if args["allow_null"] else exp.NotNullColumnConstraint()
            _set_constraint(item, exp.NotNullColumnConstraint, stated)
        elif args.get("comment") is not None:
            _set_constraint(item, exp.CommentColumnConstraint, exp.CommentColumnConstraint(this=args["comment"].copy()))
        elif args.get("drop"):
            _set_constraint(item, exp.DefaultColumnConstraint, None)
        else:
            raise self.parsed.unsupported("this form of ALTER COLUMN", action, "use TYPE, SET DEFAULT, DROP DEFAULT or NOT NULL")


def _dropped(action: exp.Expr) -> Sequence[exp.Expr]:
    return [name for one in action.args["tables"] for name in (one.expressions if isinstance(one, exp.Schema) else [one])]


def _set_constraint(item: exp.ColumnDef, kind: type[exp.Expr], stated: exp.Expr | None) -> None:
    """Give a column another constraint of a kind, or none."""
    others = [one for one in item.args.get("constraints") or () if not isinstance(one.args["kind"], kind)]
    item.set("constraints", [*others, *([exp.ColumnConstraint(kind=stated)] if stated is not None else [])])
