"""The formats of rows, JSON, CSV and Arrow, and the choice among them by a request's Accept header."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow

from rederive.arrow_types import arrow_type, to_arrow_columns
from rederive.errors import NotAcceptable
from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.store.codec import rows_text
from rederive.values import to_json

JSON: Final = "application/json"
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class VersionedRows:
    """The rows of a relation or view at one version."""

    version: int
    relation: Relation
    rows: Sequence[Row]


def as_json(answer: VersionedRows) -> bytes:
    """Encode rows as one JSON object."""
    columns = [{"name": column.name, "type": str(column.type)} for column in answer.relation.columns]
    head = f'"version":{answer.version},"relation":{json.dumps(answer.relation.name)},"columns":{json.dumps(columns)}'
    return f'{{{head},"rows":{rows_text(answer.rows)}}}'.encode()


def as_csv(answer: VersionedRows) -> bytes:
    """Encode rows as CSV (RFC 4180) with a header. NULL is an empty field; an empty text is two quotes.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> as_csv(VersionedRows(1, Relation("r", (Column("x", SYMBOL), Column("y", SYMBOL))), [("a,b", None), ("", "c")]))
    b'x,y\\r\\n"a,b",\\r\\n"",c\\r\\n'
    """
    # RFC 4180 ends lines with CRLF; without `newline=""` Python would translate them.
    out = io.StringIO(newline="")
    out.write(_line([column.name for column in answer.relation.columns]))
    out.writelines(_line([to_json(value) for value in row]) for row in answer.rows)
    return out.getvalue().encode()


def _line(values: Sequence[object]) -> str:
    return ",".join(map(_field, values)) + "\r\n"


def _field(value: object) -> str:
    match value:
        case None:
            return ""
        # Before numbers: in Python a bool is an int, and CSV has `true`, as JSON does.
        case bool():
            return json.dumps(value)
        case list() | dict():
            return _field(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        case str() if not value or any(c in value for c in ',"\r\n'):
            return '"' + value.replace('"', '""') + '"'
        case _:
            return str(value)


def as_arrow(answer: VersionedRows) -> bytes:
    """Encode rows as an Arrow stream. Unsigned numbers are decimal(20,0), as in the lake."""
    relation = answer.relation
    arrays = to_arrow_columns(answer.rows, relation.types)
    schema = pyarrow.schema([pyarrow.field(c.name, arrow_type(c.type)) for c in relation.columns])
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        # A relation without columns has no array; the stream then has a schema and no batch.
        if arrays:
            writer.write_table(pyarrow.table(arrays, schema=schema))
    return sink.getvalue()


FORMATS: Final[dict[str, Callable[[VersionedRows], bytes]]] = {JSON: as_json, CSV: as_csv, ARROW: as_arrow}


def choose_format(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offered format with the highest quality in the header; of equals, the first.

    >>> choose_format("text/*;q=0.5, application/json", ["application/json", "text/csv"])
    'application/json'
    >>> choose_format("text/csv", ["application/json", "text/csv"]), choose_format(None, ["application/json"])
    ('text/csv', 'application/json')
    """
    # RFC 9110: whoever sends no Accept header takes everything.
    ranges = [_media_range(part) for part in (accept or "*/*").split(",") if part.strip()]
    scores = {media: max((score for name, score in ranges if _covers(name, media)), default=0.0) for media in offered}
    # `max` takes the first of equals, and formats are offered in the order of our preference.
    best = max(offered, key=lambda media: scores[media])
    if scores[best] <= 0:
        raise NotAcceptable(f"no format of this resource matches '{accept}'", hint=f"accept one of {', '.join(offered)}")
    return best


def _media_range(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip() for piece in part.split(";"))
    quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        return name.lower(), float(quality)
    except ValueError:
        # A quality that is not a number excludes the format (RFC 9110, 12.4.2: 0 means "not acceptable").
        return name.lower(), 0.0


def _covers(accepted: str, media: str) -> bool:
    return accepted in (media, "*/*", f"{media.partition('/')[0]}/*")
