"""Files of initial rows: Soufflé's tab-separated facts, CSV, JSON lines and Parquet, each also compressed as `.gz`.

A file is read whole and split into columns, and each column is typed at once. Only if that fails are lines counted, so that the
error names the file, the line, the column and the wrong text.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rederive.errors import DuplicateKey, MalformedInput, MissingFile, UnknownName, Unsupported
from rederive.ingest.strict_json import parse_line
from rederive.ir.rules import Input, Relation
from rederive.ir.terms import Row
from rederive.rows import columns_of, typed_json_rows, typed_rows, wrong_names, wrong_width
from rederive.values import from_python, from_text

if TYPE_CHECKING:
    from _csv import Reader as CsvReader


@dataclass(frozen=True, slots=True)
class DelimitedText:
    """One row per line, with a delimiter between fields. `quoted`: fields follow RFC 4180. `header`: a line of column names."""

    delimiter: str
    quoted: bool
    header: bool


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One row per line: an array, or an object by column name."""


@dataclass(frozen=True, slots=True)
class Parquet:
    """Apache Parquet."""


Layout: TypeAlias = DelimitedText | JsonLines | Parquet

FACTS = DelimitedText("\t", quoted=False, header=False)
CSV = DelimitedText(",", quoted=True, header=True)
FORMATS: dict[str, Layout] = {
    "facts": FACTS,
    "tsv": FACTS,
    "csv": CSV,
    "json": JsonLines(),
    "jsonl": JsonLines(),
    "ndjson": JsonLines(),
    "parquet": Parquet(),
}


def read_rows(path: Path, relation: Relation, layout: Layout | None = None) -> list[Row]:
    """The rows of a file, typed as `relation` declares. Without a layout, the file's ending decides.

    Columns are matched by name where the file names all declared ones, and by position where it names none of them.

    >>> from tempfile import TemporaryDirectory
    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> stock = Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER)))
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "stock.csv"
    ...     _ = file.write_text("n,item\\n3,bolt\\n")
    ...     read_rows(file, stock)
    [('bolt', 3)]
    """
    layout = layout or layout_of(path)
    data = _bytes(path)
    match layout:
        case DelimitedText():
            return _text_rows(_decoded(data, path), relation, layout, path)
        case JsonLines():
            return _json_rows(_decoded(data, path), relation, path)
        case Parquet():
            return _parquet_rows(data, relation, path)


def check_keys(relation: Relation, rows: Iterable[Row], place: str) -> None:
    """Raise DuplicateKey if two rows share a key. `place`: the file or folder that they came from."""
    if not relation.key:
        return
    # Equal rows may repeat, because a relation is a set. Rows that share a key and differ may not.
    seen: dict[Row, Row] = {}
    for row in rows:
        other = seen.setdefault(tuple(row[i] for i in relation.key), row)
        if other != row:
            raise DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], row, other).at(place)


def layout_of(path: Path) -> Layout:
    """The layout of a file's ending; `.gz` is ignored.

    >>> layout_of(Path("edge.csv.gz")) == CSV
    True
    """
    inner = path.with_suffix("") if path.suffix == ".gz" else path
    if layout := FORMATS.get(inner.suffix.removeprefix(".")):
        return layout
    known = ", ".join(f".{name}" for name in FORMATS)
    raise MalformedInput(
        "the ending of the file's name does not say its format", hint=f"known endings: {known}; each also with .gz"
    ).at(str(path))


def read_input(directive: Input, relation: Relation, *folders: Path) -> list[Row]:
    """The rows of an `.input` directive; without options, those of `<relation>.facts`, as in Soufflé.

    The file is looked for in each of the folders, in order. `filename` names another file, whose ending gives the format, and
    `format` overrides the ending. `delimiter` means the same as in Soufflé: text without header unless `headers=true`, and
    without quotes unless `rfc4180=true`, which makes a comma the delimiter.
    """
    options = dict(directive.options)
    for name in options:
        if name not in _OPTIONS:
            raise UnknownName("option", name, _OPTIONS, directive.span)
    if (medium := options.get("IO", "file")) != "file":
        raise Unsupported(f"IO={medium} is not supported", directive.span, hint="rows are read from files: IO=file")
    file = Path(options.get("filename", f"{relation.name}.facts"))
    layout = _input_layout(directive, options, file)
    return read_rows(_find_file(directive, file, folders), relation, layout)


_OPTIONS = ("IO", "filename", "format", "delimiter", "headers", "rfc4180")
_OF_TEXT = ("delimiter", "headers", "rfc4180")


def _find_file(directive: Input, file: Path, folders: Sequence[Path]) -> Path:
    """The first file of that name in the folders; raises MissingFile, which lists the folders."""
    # pathlib: a folder joined with an absolute path is that path.
    if len(folders) == 1 or file.is_absolute():
        # A single folder is not searched: reading the file reports that it is missing.
        return folders[0] / file
    if (found := next((folder / file for folder in folders if (folder / file).exists()), None)) is not None:
        return found
    name, places = directive.relation.removesuffix(".input"), dict.fromkeys(str(folder.resolve()) for folder in folders)
    raise MissingFile(
        f"there is no {file} for .input {name} in {' or '.join(places)}",
        hint=f"put it there, or give its folder by --facts or another file by --base {name}=FILE",
    ).at(str(directive.span or name))


def _input_layout(directive: Input, options: dict[str, str], file: Path) -> Layout:
    if "format" in options and options["format"] not in FORMATS:
        raise UnknownName("format", options["format"], FORMATS, directive.span)
    # A delimiter without a format means text, whatever the ending: Soufflé's files may have any name.
    base = FORMATS[options["format"]] if "format" in options else FACTS if "delimiter" in options else layout_of(file)
    if not isinstance(base, DelimitedText):
        for name in _OF_TEXT:
            if name in options:
                hint = "leave it out, or give a format of delimited text"
                raise Unsupported(f"the option '{name}' does not apply to this format", directive.span, hint=hint)
        return base
    quoted = _switch(options.get("rfc4180"), base.quoted)
    # As in Soufflé, rfc4180 changes the default delimiter to a comma.
    delimiter = options.get("delimiter", "," if options.get("rfc4180") == "true" else base.delimiter)
    if not delimiter or (quoted and len(delimiter) > 1):
        raise Unsupported(f"the delimiter '{delimiter}' is not supported", directive.span, hint="give one character")
    return DelimitedText(delimiter, quoted, _switch(options.get("headers"), base.header))


def _switch(option: str | None, default: bool) -> bool:
    return default if option is None else option == "true"


# Bytes and text


@contextmanager
def name_file_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file itself into errors that name it."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFile("no such file").at(str(path)) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise MalformedInput(f"not a whole gzip file: {error}").at(str(path)) from None
    except OSError as error:
        raise MissingFile(f"cannot be read: {error.strerror}").at(str(path)) from None


def _bytes(path: Path) -> bytes:
    with name_file_errors(path):
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Counted in bytes: the text up to the wrong byte need not be decoded.
        line = data.count(b"\n", 0, error.start) + 1
        raise MalformedInput(f"not UTF-8: byte 0x{data[error.start]:02x}").at(f"{path}:{line}") from None


def _lines(text: str) -> list[str]:
    """The lines of a text. They end with \\n or \\r\\n, not with the other line ends of Unicode."""
    lines = text.split("\n")
    # A line feed ends a line, so the text after the last one is a line only if it is not empty.
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


# Delimited text


def _text_rows(text: str, relation: Relation, layout: DelimitedText, path: Path) -> list[Row]:
    if not relation.columns:
        # A relation without columns has at most one row: the file's existence with any content states it.
        return [()] if text else []

    def place(row: int) -> str:
        return f"{path}:{_line_of(row + layout.header, text, layout)}"

    records = _records(text, layout, path)
    order: Sequence[int] = range(relation.arity)
    if layout.header and records:
        order = _order(records.pop(0), relation, place(-1))
    # All widths at once; the place of a wrong one is searched only if there is one.
    if not set(map(len, records)) <= {relation.arity}:
        row, width = next((row, len(fields)) for row, fields in enumerate(records) if len(fields) != relation.arity)
        raise wrong_width(width, relation).at(place(row))
    return typed_rows(columns_of(records, order), relation, from_text, place)


def _records(text: str, layout: DelimitedText, path: Path) -> list[tuple[str, ...]]:
    """The fields of all records. They are tuples: the garbage collector stops tracking tuples of strings, but never lists.

    A quoted field may contain line ends. A blank line of CSV is skipped.
    """
    if not layout.quoted:
        return [tuple(line.split(layout.delimiter)) for line in _lines(text)]
    try:
        return list(map(tuple, filter(None, _csv(text, layout))))
    except csv.Error as error:
        raise MalformedInput(f"not CSV: {error}").at(f"{path}:{_last_start(text, layout)}") from None


def _csv(text: str, layout: DelimitedText) -> CsvReader:
    # newline="" hands line ends inside of quotes to the csv module as they are.
    return csv.reader(io.StringIO(text, newline=""), delimiter=layout.delimiter, strict=True)


def _line_of(record: int, text: str, layout: DelimitedText) -> int:
    """The line at which a record starts."""
    if not layout.quoted:
        return record + 1
    return next(islice(_starts(text, layout), record, None))


def _starts(text: str, layout: DelimitedText) -> Iterator[int]:
    reader, line = _csv(text, layout), 1
    for fields in reader:
        if fields:
            yield line
        line = reader.line_num + 1


def _last_start(text: str, layout: DelimitedText) -> int:
    """The line at which the wrong record starts: an open quote is found only at the end of the file."""
    reader, line = _csv(text, layout), 1
    with suppress(csv.Error):
        for _ in reader:
            line = reader.line_num + 1
    return line


def _order(names: Sequence[str], relation: Relation, place: str) -> Sequence[int]:
    """For each declared column, its position among the names in the file."""
    declared = [column.name for column in relation.columns]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise MalformedInput(f"column '{twice}' occurs twice").at(place)
    if set(names) == set(declared):
        return [names.index(name) for name in declared]
    # By position only if no name is known: some known and some unknown names are more likely a mistake.
    if len(names) == len(declared) and set(names).isdisjoint(declared):
        return range(relation.arity)
    raise wrong_names(names, relation).at(place)


# JSON lines


def _json_rows(text: str, relation: Relation, path: Path) -> list[Row]:
    numbered = [(number, line) for number, line in enumerate(_lines(text), 1) if line.strip()]
    rows = [parse_line(line, str(path), number) for number, line in numbered]
    return typed_json_rows(rows, relation, lambda row: f"{path}:{numbered[row][0]}")


# Parquet


def _parquet_rows(data: bytes, relation: Relation, path: Path) -> list[Row]:
    import pyarrow  # not at the top: importing it takes longer than reading most files
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(data))
        if not relation.columns:
            return [()] if table.num_rows else []
        order = _order(table.column_names, relation, str(path))
        # Arrow's types become Python's here; typing them then refuses what does not fit exactly.
        columns = [table.column(i).to_pylist() for i in order]
    except (pyarrow.ArrowException, ValueError) as error:
        raise MalformedInput(f"not Parquet that can be read: {error}").at(str(path)) from None
    return typed_rows(columns, relation, from_python, lambda row: f"{path}: row {row + 1}")
