"""Micro-batches of whole files: change files as JSON lines, rows with an operation column as CSV or Parquet, also as `.gz`.

A batch is read file by file, the oldest first, and each file from beginning to end. So reading a batch again gives the same
operations, and the idempotency key of the batch makes the repetition harmless.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from rederive.engines.protocol import Operation
from rederive.errors import DataError, MalformedInput
from rederive.ingest.arrow_rows import arrow_value, row_as_json
from rederive.ingest.change_file import ChangeLine, decode_line, parse_change_line, type_change_line, type_change_lines
from rederive.ingest.micro_batch import Item, RejectedInput, RowOrigin, read_or_reject, typed_operations
from rederive.ir.rules import Program, Relation
from rederive.rows import columns_of, wrong_names, wrong_width
from rederive.values import from_text

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True)
class StreamedFile:
    """The name of a file, as errors print it, and its content."""

    name: str
    data: bytes


Read = Callable[[StreamedFile], Iterable[Item]]
_LINES: Final = 1000  # typed together; if one of them is wrong, all are typed one by one


def file_items(table: pyarrow.Table, read: Read) -> Iterator[Item]:
    """The items of all files of a batch. A file that cannot be read at all is one rejected input."""
    for file in _files(table):
        try:
            yield from read(_unpacked(file))
        except DataError as error:
            yield RejectedInput(error, None)


def _files(table: pyarrow.Table) -> list[StreamedFile]:
    ordered = table.sort_by([("modificationTime", "ascending"), ("path", "ascending")])
    columns: list[list[Any]] = [ordered.column(name).to_pylist() for name in ("path", "content")]
    return [StreamedFile(_name(path), content) for path, content in zip(*columns, strict=True)]


def _name(uri: str) -> str:
    # Spark gives file: addresses with percent-encoding.
    return unquote(uri.removeprefix("file:")) if uri.startswith("file:/") else uri


def _unpacked(file: StreamedFile) -> StreamedFile:
    if not file.name.endswith(".gz"):
        return file
    try:
        return StreamedFile(file.name, gzip.decompress(file.data))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise MalformedInput(f"not a whole gzip file: {error}").at(file.name) from None


# JSON lines


def change_items(file: StreamedFile, program: Program) -> Iterator[Item]:
    """The changes of a change file. A wrong line is rejected as a whole.

    >>> [item.error.message for item in change_items(StreamedFile("c.jsonl", b"{}\\n{\\n"), Program({}, ()))]
    ['not JSON: Expecting property name enclosed in double quotes']
    """
    numbered = ((number, line) for number, line in enumerate(io.BytesIO(file.data), 1) if line.strip())
    while lines := list(islice(numbered, _LINES)):
        try:
            parsed = [_parsed(line, file.name, number) for number, line in lines]
            yield from list(type_change_lines(parsed, program))
        except DataError:
            for number, line in lines:
                raw = line.decode(errors="replace").rstrip("\r\n")
                yield from read_or_reject(_reader(line, file.name, number, program), raw)


def _parsed(line: bytes, name: str, number: int) -> ChangeLine:
    return parse_change_line(decode_line(line, name, number), name, number)


def _reader(line: bytes, name: str, number: int, program: Program) -> Callable[[], tuple[Operation, ...]]:
    return lambda: type_change_line(_parsed(line, name, number), program).operations


# CSV


@dataclass(frozen=True, slots=True)
class _CsvRecord:
    fields: tuple[str, ...]
    line: int
    raw: str


def csv_items(file: StreamedFile, relation: Relation, operation: str) -> Iterator[Item]:
    """The rows of a CSV file whose header names the relation's columns and the operation column, in any order."""
    header, *records = _records(file) or [_CsvRecord((), 1, "")]
    order, word = _order(header.fields, relation, operation, f"{file.name}:{header.line}")
    whole = [record for record in records if len(record.fields) == relation.arity + 1]
    for record in records:
        if len(record.fields) != relation.arity + 1:
            error = wrong_width(len(record.fields) - 1, relation).at(f"{file.name}:{record.line}")
            yield RejectedInput(error, record.raw)
    origin = RowOrigin(lambda row: f"{file.name}:{whole[row].line}", lambda row: whole[row].raw)
    fields = [record.fields for record in whole]
    yield from typed_operations(columns_of(fields, [word])[0], columns_of(fields, order), relation, from_text, origin)


def _records(file: StreamedFile) -> list[_CsvRecord]:
    """The records of a file. Quoted fields may contain line ends; blank lines are skipped. An error of CSV rejects the file."""
    lines = list(io.StringIO(_text(file), newline=""))
    reader, start, found = csv.reader(lines, strict=True), 0, []
    try:
        for fields in reader:
            if fields:
                raw = "".join(lines[start : reader.line_num]).rstrip("\r\n")
                found.append(_CsvRecord(tuple(fields), start + 1, raw))
            start = reader.line_num
    except csv.Error as error:
        raise MalformedInput(f"not CSV: {error}").at(f"{file.name}:{start + 1}") from None
    return found


def _text(file: StreamedFile) -> str:
    try:
        return file.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.data.count(b"\n", 0, error.start) + 1
        raise MalformedInput(f"not UTF-8: byte 0x{file.data[error.start]:02x}").at(f"{file.name}:{line}") from None


def _order(names: Sequence[str], relation: Relation, operation: str, place: str) -> tuple[list[int], int]:
    """The positions of the relation's columns, and of the operation column."""
    if operation not in names:
        hint = "write insert, delete or upsert (I, D, U) there, in each row"
        raise MalformedInput(f"the operation column '{operation}' is missing", hint=hint).at(place)
    columns = [name for name in names if name != operation]
    declared = [column.name for column in relation.columns]
    if sorted(columns) != sorted(declared):
        raise _wrong_columns(columns, relation).at(place)
    return [names.index(name) for name in declared], names.index(operation)


def _wrong_columns(names: Sequence[str], relation: Relation) -> DataError:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    return MalformedInput(f"column '{twice[0]}' occurs twice") if twice else wrong_names(names, relation)


# Parquet


def parquet_items(file: StreamedFile, relation: Relation, operation: str) -> Iterator[Item]:
    """The rows of a Parquet file with the relation's columns and the operation column, in any order."""
    table = _parquet(file)
    order, word = _order(table.column_names, relation, operation, file.name)
    columns = [table.column(i).to_pylist() for i in order]
    origin = RowOrigin(lambda row: f"{file.name}: row {row + 1}", lambda row: row_as_json(table, row))
    yield from typed_operations(table.column(word).to_pylist(), columns, relation, arrow_value, origin)


def _parquet(file: StreamedFile) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(pyarrow.BufferReader(file.data))
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise MalformedInput(f"not Parquet that can be read: {error}").at(file.name) from None
