"""What opening a store does before its database runs.

    1. Take the lock, and check the journal's file.    `journal.file.connect`: SQLite drops a transaction that was not committed.
    2. Read the stored options, and compare them.      `reconcile_options`: recorded changes depend on some of them.
    3. Compile the stored definitions.                 `Store.catalog`: those of the last committed version.
    4. Read the base rows of the last version.         `recover_base_rows`: with a lake, after it has caught up with the journal.

The last committed version is the greatest number in the journal, so nothing has to be searched for or undone. The views are then
evaluated from the base rows, unless a checkpoint of this very version and program has them (`commit.restart`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rederive.errors import CorruptStore, Mismatch, StoreError
from rederive.ir.rules import Program
from rederive.ir.terms import UTC, Row
from rederive.maintain.plan import AUTO, check_strategy
from rederive.store.journal.file import name_errors
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal

if TYPE_CHECKING:
    from rederive.store.lake_sync import LakeSync

_FIXED: Final = ("precision", "only", "zone")  # options that decide what recorded changes mean


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a database is opened with. The empty text means that an option is not given."""

    strategy: str
    precision: str
    only: str
    zone: str = ""


def reconcile_options(journal: Journal, given: StoreOptions, zone: str) -> StoreOptions:
    """The options that hold from now on, which the journal then holds. The strategy may change; `_FIXED` options may not.

    `zone`: the time zone of a new store. A store without a stored zone is older than zones, when all databases were in UTC.
    """
    stored = journal.options
    defaults = {"zone": UTC} | stored if stored else {"strategy": AUTO, "precision": "exact", "only": "", "zone": zone}
    for name in _FIXED if stored else ():
        requested = getattr(given, name)
        # An option that is not given never conflicts: it means "as the store has it".
        if requested and requested != defaults[name]:
            raise Mismatch(
                f"the store has {name} '{defaults[name]}', not '{requested}'",
                hint="its recorded changes depend on it: use another store",
            ).at(str(journal.folder))
    options = {name: value or defaults[name] for name, value in asdict(given).items()}
    check_strategy(options["strategy"], options["precision"])
    if options != stored:
        journal.write_options(options)
    return StoreOptions(**options)


def stored_zone(folder: Path) -> str | None:
    """The time zone of the store in a folder; None if there is no store. Opening the store reports what is wrong with it."""
    try:
        with JournalReader.read(folder) as journal:
            return journal.options.get("zone", UTC)
    except (StoreError, OSError):
        return None


def recover_base_rows(journal: Journal, lake: LakeSync | None, program: Program) -> Mapping[str, Collection[Row]]:
    """The base rows at the last committed version, by base relation."""
    if lake is not None:
        return lake.recover(program)
    with name_errors(journal.folder):
        if (root := journal.lake) is not None:
            raise Mismatch(f"the base relations of this store are in a lake: {root}", hint="open it with that lake")
        rows = journal.base_rows()
        # Never dropped silently: rows without a relation mean that the definitions and the rows are of two versions.
        for name in rows:
            if name not in program.bases:
                raise CorruptStore(f"there are rows of '{name}', which is not a base relation of the program")
        return rows
