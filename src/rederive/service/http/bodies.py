"""Bodies of requests: read up to a limit, and strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from rederive.errors import MalformedInput, TooLarge, WrongMedia
from rederive.ingest.change_file import ChangeLine, decoded, parse
from rederive.ingest.strict_json import Json, parse_line

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
LANGUAGES: Final = ("datalog", "sql")


async def read(request: Request, most: int) -> bytes:
    """The whole body; a client that goes away before its end has asked for nothing."""
    too_large = TooLarge(f"the body has more than {most} bytes", hint="send less at once")
    given = request.headers.get("content-length", "0")
    if given.isdecimal() and int(given) > most:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def media(request: Request, taken: tuple[str, ...]) -> str:
    """The format of a body. It must be named: pages of other hosts could otherwise send forms."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in taken:
        raise WrongMedia(f"a body of type '{given}' is not taken", hint=f"send {' or '.join(taken)}")
    return given


def transactions(body: bytes, kind: str) -> list[ChangeLine]:
    """One transaction, or one on each line."""
    if kind == JSON:
        return [parse(decoded(body, "body", 1), "body", 1)]
    lines = ((number, decoded(line, "body", number)) for number, line in enumerate(body.split(b"\n"), 1))
    return [parse(line, "body", number) for number, line in lines if line.strip()]


@dataclass(frozen=True, slots=True)
class DefinitionBody:
    language: str
    text: str


def definition(body: bytes) -> DefinitionBody:
    """`{"language": "datalog", "text": "..."}`."""
    value: Json = parse_line(decoded(body, "body", 1), "body", 1)
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise MalformedInput("a definition is an object with a text", hint='{"language": "datalog", "text": "..."}').at("body")
    language = value.get("language", "datalog")
    if language not in LANGUAGES:
        raise MalformedInput(f"unknown language {language!r}", hint=f"known: {', '.join(LANGUAGES)}").at("body.language")
    if unknown := [key for key in value if key not in ("language", "text")]:
        raise MalformedInput(f"unknown key '{unknown[0]}'").at("body")
    return DefinitionBody(str(language), str(value["text"]))
