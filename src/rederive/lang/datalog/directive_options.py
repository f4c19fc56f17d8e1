"""The options of `.input`, `.output` and `.remote`: which there are, and which values they accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rederive.errors import Redefined, Span, SyntaxProblem, TypeClash, UnknownName, Unsupported
from rederive.lang.datalog.syntax import InputDirective, Option, OutputDirective, RemoteDirective

INPUT_OPTIONS: Final = frozenset({"IO", "filename", "delimiter", "headers", "format", "rfc4180"})
FORMATS: Final = frozenset({"facts", "csv", "jsonl", "parquet"})
# The options of `.remote` for each kind of source: those that it needs, then those that it may have.
SOURCES: Final = {
    "none": (frozenset[str](), frozenset[str]()),
    "jdbc": (frozenset({"url", "table"}), frozenset({"driver", "version"})),
    "parquet": (frozenset({"path"}), frozenset[str]()),
    "python": (frozenset({"function"}), frozenset[str]()),
}


def input_options(directive: InputDirective) -> dict[str, str]:
    """The options of `.input`, without IO=file, which says nothing."""
    options: dict[str, str] = {}
    for option in _distinct_options(directive):
        if option.name.text not in INPUT_OPTIONS:
            raise UnknownName("option", option.name.text, INPUT_OPTIONS, option.name.span)
        if option.name.text in ("headers", "rfc4180") and option.value not in ("true", "false"):
            raise UnknownName(option.name.text, option.value, ("true", "false"), option.span)
        if option.name.text == "format" and option.value not in FORMATS:
            raise UnknownName("format", option.value, FORMATS, option.span)
        if option.name.text != "IO":
            options[option.name.text] = option.value
        elif option.value != "file":
            raise Unsupported(f"not supported: IO={option.value}", option.span, hint="omit IO, or write IO=file")
    return options


def check_output_options(directive: OutputDirective) -> None:
    """Refuse options of .output other than IO=stdout: `.output` says which relations are monitored, not where changes go."""
    for option in _distinct_options(directive):
        if (option.name.text, option.value) != ("IO", "stdout"):
            what = f"'{option.name.text}={option.value}' of .output"
            hint = "omit it; read the changes from the standard output of `rederive run`, or subscribe to the view"
            raise Unsupported(f"not supported: {what}", option.span, hint=hint)


def remote_options(directive: RemoteDirective) -> tuple[tuple[str, str], ...]:
    """The source and the options to read it; `rows` is an estimate of its size."""
    options = {option.name.text: (option.value, option.span) for option in directive.options}
    return check_remote_options(options, directive.span)


def check_remote_options(options: Mapping[str, tuple[str, Span]], span: Span) -> tuple[tuple[str, str], ...]:
    """Return the options of a remote relation, by name with value and place; refuse those that its source does not have."""
    kind, place = options.get("source", ("none", span))
    if kind not in SOURCES:
        raise UnknownName("source", kind, SOURCES, place)
    needed, allowed = SOURCES[kind]
    for name, (_, at) in options.items():
        if name not in needed | allowed | {"source", "rows"}:
            raise UnknownName("option", name, (*sorted(needed | allowed), "rows"), at)
    if "rows" in options and not options["rows"][0].isdecimal():
        raise TypeClash(f"'{options['rows'][0]}' is not a number of rows", options["rows"][1])
    if missing := sorted(needed - options.keys()):
        raise SyntaxProblem(f"a {kind} source needs '{missing[0]}'", span, hint=f"give it {', '.join(sorted(needed))}")
    return tuple((name, value) for name, (value, _) in options.items())


def _distinct_options(directive: InputDirective | OutputDirective) -> tuple[Option, ...]:
    for i, option in enumerate(directive.options):
        if any(other.name.text == option.name.text for other in directive.options[:i]):
            raise Redefined(f"the option '{option.name.text}' is given twice", option.span)
    return directive.options
