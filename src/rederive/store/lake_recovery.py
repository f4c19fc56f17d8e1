"""What opening a store does with its lake: remove what a killed process left, attach a new lake, read the base relations.

Everything here may be killed at any point and done again by the next opening:
  - Leftovers are folders with names of ours that neither the journal nor a table refers to.
  - Attaching writes all base tables first and the journal last. Until the journal names the lake, the journal has the base rows,
    and the next attempt replaces the tables.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.errors import Mismatch
from rederive.ir.rules import Program
from rederive.lake.settle import LakeRelations, rows_folder, settle, settled_version
from rederive.lake.staging import as_frame, remove_leftovers, table_of
from rederive.lake.tables import Area, Lake
from rederive.store.journal.writer import Journal


def clean(lake: Lake, journal: Journal) -> None:
    """Remove rows that were on their way to a table, and staged versions that were never committed or are settled."""
    remove_leftovers(lake, lambda version: journal.settled < version <= journal.version)


def attach(lake: Lake, journal: Journal, program: Program) -> None:
    """Move the base relations of a store that has no lake yet into this one."""
    check_restored(lake, journal, program)
    if journal.lake is not None:
        return
    rows = journal.base_rows()
    with rows_folder(lake) as folder:
        for name in own_bases(program):
            relation, stored = table_of(program, name), rows.get(name, [])
            if relation.name != name:  # the base relation numbers the copies of a bag, whose table has no numbers
                stored = [row[:-1] for row in stored]
            # Whole tables, because a killed attempt may have written any of them.
            lake.replace(Area.BASE, relation, as_frame(lake, relation, stored, folder))
    _write_history(lake, journal, program)
    journal.attach_lake(lake.root)


def _write_history(lake: Lake, journal: Journal, program: Program) -> None:
    """Fill the change tables with the versions before the lake, as far as the journal has them: changes add up to the view.

    A view that had other columns once starts with the first version that has its present ones.
    """
    views = [program.relations[name] for name in program.monitored]
    columns = {view.name: view.columns for view in views}
    records = []
    for record in journal.since(journal.reach()):
        fitting = (one for one in record.views if columns.get(one.relation.name) == one.relation.columns)
        # The base tables are at the last version already, so only the changes of views are replayed.
        records.append(replace(record, base=(), views=tuple(fitting)))
    settle(lake, LakeRelations((), views), records)


def own_bases(program: Program) -> list[str]:
    """The base relations that the lake holds: all but the tables in place, which others write."""
    return [name for name in program.bases if name not in program.in_place]


def check_restored(lake: Lake, journal: Journal, program: Program) -> None:
    """Refuse a lake that is ahead of a store just restored from a backup: its later versions belong to another history."""
    if journal.lake is None or not journal.is_just_restored:
        return
    tables = [table_of(program, name).name for name in own_bases(program)]
    ahead = max((lake.last_version(Area.BASE, name) or 0 for name in tables), default=0)
    if ahead > journal.version or not journal.settled <= settled_version(lake) <= journal.version:
        found = max(ahead, settled_version(lake))
        raise Mismatch(
            f"the lake is at version {found}, and the restored store at version {journal.version}",
            hint=f"restore the lake too, as it was at version {journal.settled}, and name it: rederive restore --lake",
        ).at(lake.root)


def read_base_relations(lake: Lake, program: Program) -> dict[str, DataFrameRows]:
    """The base relations, as data frames over their tables. The copies of a bag are numbered for the engine."""
    found = {}
    for name in own_bases(program):
        relation = table_of(program, name)
        if lake.has_table(Area.BASE, relation.name):
            if relation.name == name:
                found[name] = DataFrameRows.in_place(lake.read_pinned(Area.BASE, relation), relation.types, None)
            else:
                found[name] = DataFrameRows(lake.read(Area.BASE, relation), relation.types).number_copies()
    return found
