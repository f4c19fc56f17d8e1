"""The net effect of a transaction on base relations: what is left when opposite and idle changes cancel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rederive.delta import Delta, nonempty
from rederive.engines.protocol import Action, Operation
from rederive.engines.resident.run.column_draft import net_effect_by_column
from rederive.engines.resident.run.relations import Tables
from rederive.engines.resident.run.threshold import Threshold
from rederive.engines.resident.storage.codes import CodedRow, Codes, Encode
from rederive.engines.resident.storage.column_table import ColumnTable
from rederive.engines.resident.storage.table import Lookup, StoredTable, Versions, whole_rows
from rederive.errors import DuplicateKey
from rederive.ir.rules import Relation
from rederive.ir.terms import Row


def net_effect(
    operations: Sequence[Operation],
    relations: Mapping[str, Relation],
    versions: Mapping[str, Versions],
    encoders: Mapping[str, Encode],
    codes: Codes,
) -> dict[str, Delta]:
    """Apply the operations in order on top of the tables, without touching them; the difference is the net effect."""
    drafts: dict[str, Draft] = {}
    deltas: dict[str, Delta] = {}
    if sum([len(operation.rows) for operation in operations]) >= Threshold.requests:
        deltas = net_effect_by_column(operations, relations, versions, codes)
    # In order: of several requests about one row, the last decides.
    for operation in operations:
        name = operation.relation
        if name in deltas:
            continue
        if name not in drafts:
            drafts[name] = Draft(relations[name], versions[name].old, encoders[name], codes)
        drafts[name].apply(operation.action, operation.rows)
    deltas.update({name: draft.delta() for name, draft in drafts.items()})
    return nonempty(deltas)


def check_keys(relations: Mapping[str, Relation], tables: Tables, changed: Iterable[str], codes: Codes) -> None:
    """Refuse base relations in which two rows share a key, after a bulk load."""
    for relation in (relations[name] for name in changed if relations[name].key):
        table = tables.stored_table(relation.name)
        if isinstance(table, ColumnTable):
            if (rivals := table.duplicate(relation.key)) is not None:
                raise _duplicate(relation, codes, *rivals)
            continue
        for key, entry in table.entries(relation.key).items():
            if len(entry) > 1:
                one, two, *_ = sorted(whole_rows(relation.key, key, entry, relation.arity))
                raise _duplicate(relation, codes, one, two)


class Draft:
    """A base relation with a transaction's changes on top; keys are checked when it is done, so that order is free within it."""

    def __init__(self, relation: Relation, table: StoredTable, encode: Encode, codes: Codes) -> None:
        self.relation = relation
        self.table = table
        self.encode = encode
        self.codes = codes
        self.present: dict[CodedRow, tuple[Row, bool]] = {}
        self.by_key: dict[CodedRow, set[CodedRow]] = {}
        self._lookup: Lookup | None = None

    def apply(self, action: Action, rows: Collection[Row]) -> None:
        """Note for each row whether it is present after the operation; a later operation overrides an earlier one."""
        for coded, row in zip(self.encode(rows), rows, strict=True):
            # An upsert is a deletion of all rows with this key, followed by an insertion.
            if action is Action.UPSERT:
                for other in self._same_key(coded):
                    self._set(other, False)
            self.present[coded] = (row, action is not Action.DELETE)
            if self.relation.key:
                self.by_key.setdefault(self._key(coded), set()).add(coded)

    def _set(self, coded: CodedRow, present: bool) -> None:
        (row,) = self.codes.decode_rows(self.relation.types, [coded])
        self.present[coded] = (row, present)

    def _key(self, coded: CodedRow) -> CodedRow:
        return tuple(coded[i] for i in self.relation.key)

    def _same_key(self, coded: CodedRow) -> list[CodedRow]:
        """The rows that share this row's key, stored or drafted; none where the key is the whole row."""
        if not self.relation.key:
            return []
        key = self._key(coded)
        drafted = [row for row in self.by_key.get(key, ()) if self.present[row][1]]
        return drafted + [row for row in self._stored(key) if row not in self.present]

    def _stored(self, key: CodedRow) -> list[CodedRow]:
        bound = self.relation.key
        if self._lookup is None:
            self._lookup = self.table.lookup(bound)
        entry = self._lookup(key[0] if len(key) == 1 else key)
        return list(whole_rows(bound, key[0] if len(key) == 1 else key, entry, self.relation.arity)) if entry else []

    def delta(self) -> Delta:
        """Return what differs from the stored rows, after a check that no two rows share a key."""
        # plus = drafted - stored, minus = stored and drafted as absent: idle requests cancel, and so do opposite ones.
        plus = [coded for coded, (_, there) in self.present.items() if there and coded not in self.table]
        minus = [coded for coded, (_, there) in self.present.items() if not there and coded in self.table]
        if self.relation.key:
            self._check_keys(plus)
        return Delta(tuple(self.present[c][0] for c in plus), tuple(self.present[c][0] for c in minus))

    def _check_keys(self, plus: list[CodedRow]) -> None:
        taken: dict[CodedRow, CodedRow] = {}
        for coded in plus:
            key = self._key(coded)
            # A stored row that the draft does not mention stays; one that it deletes makes room for its key.
            rivals = [row for row in self._stored(key) if self.present.get(row, (None, True))[1]]
            if rivals or key in taken:
                other = rivals[0] if rivals else taken[key]
                raise _duplicate(self.relation, self.codes, coded, other)
            taken[key] = coded


def _duplicate(relation: Relation, codes: Codes, coded: CodedRow, other: CodedRow) -> DuplicateKey:
    one, two = codes.decode_rows(relation.types, [coded, other])
    return DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], one, two)
