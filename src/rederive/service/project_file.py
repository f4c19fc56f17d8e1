"""The keys of `rederive.toml`: each is taken, checked and refused by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rederive import ENGINES
from rederive.errors import PlaceError, ProjectError, UnknownOption, nearest
from rederive.limits import Limits as Budgets
from rederive.locations import Location, local_folder, parse_location
from rederive.maintain.plan import PRECISIONS, STRATEGIES
from rederive.rules.webhook import Webhooks
from rederive.service.settings import BUDGETS, Address, Project, ServiceLimits, Token, WarehouseSettings
from rederive.time_zones import zone_name

_MEBIBYTE: Final = 2**20
_SHORTEST: Final = 16


class TomlTable:
    """A table of TOML whose keys are taken one by one; what nobody took is unknown."""

    def __init__(self, values: Mapping[str, Any], place: str = "") -> None:
        self._values = values
        self._place = place
        self._known: list[str] = []

    def take(self, key: str, kinds: type | tuple[type, ...], what: str, default: Any = None) -> Any:
        self._known.append(key)
        value = self._values.get(key, default)
        right = value is default or (isinstance(value, kinds) and not (isinstance(value, bool) and kinds is not bool))
        if not right:
            raise self.error(key, f"{value!r} is not {what}")
        return value

    def text(self, key: str, default: str | None = None) -> Any:
        return self.take(key, str, "a text", default)

    def place(self, key: str, base: Path) -> Location | None:
        text = self.text(key)
        with self._named(key):
            return parse_location(text, base) if text is not None else None

    def folder(self, key: str, base: Path, default: str) -> Path:
        with self._named(key):
            return local_folder(self.text(key, default), f"a {key}", base)

    @contextmanager
    def _named(self, key: str) -> Iterator[None]:
        """What is wrong with a place is wrong with the key that names it."""
        try:
            yield
        except PlaceError as error:
            raise self.error(key, error.message, error.hint) from None

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.take(key, list, "a list of texts", [])
        if not all(isinstance(one, str) for one in found):
            raise self.error(key, f"{found!r} is not a list of texts")
        return tuple(found)

    def choice(self, key: str, known: tuple[str, ...]) -> str | None:
        value: str | None = self.text(key)
        if value is not None and value not in known:
            raise self.error(key, f"unknown {key} '{value}'", nearest(value, known))
        return value

    def number(self, key: str, default: float | None, least: float, kinds: tuple[type, ...] = (int,)) -> Any:
        value = self.take(key, kinds, "a number", default)
        if value is not None and value < least:
            raise self.error(key, f"{value} is less than {least}")
        return value

    def table(self, key: str) -> TomlTable:
        return TomlTable(self.take(key, dict, "a table", {}), f"{self._place}{key}.")

    def tables(self, key: str) -> list[TomlTable]:
        found = self.take(key, list, f"a list of tables: [[{key}]]", [])
        if not all(isinstance(one, dict) for one in found):
            raise self.error(key, f"not a list of tables: [[{key}]]")
        return [TomlTable(one, f"{self._place}{key}[{i}].") for i, one in enumerate(found)]

    def error(self, key: str, message: str, hint: str | None = None) -> ProjectError:
        return ProjectError(message, hint=hint).at(f"{self._place}{key}")

    def done(self) -> None:
        for key in self._values:
            if key not in self._known:
                raise self.error(key, f"unknown key '{key}'", nearest(key, self._known))


def project_from(folder: Path, table: TomlTable, environment: Mapping[str, str]) -> Project:
    programs = table.texts("programs")
    if not programs:
        raise table.error("programs", "there is no program", 'name one: programs = ["views.dl"]')
    if strange := [name for name in programs if Path(name).suffix not in (".dl", ".sql")]:
        raise table.error("programs", f"'{strange[0]}' is neither .dl nor .sql")
    lake = table.place("lake", folder)
    project = Project(
        folder,
        tuple(folder / name for name in programs),
        table.folder("store", folder, "store"),
        str(lake) if lake is not None else None,
        table.choice("engine", ENGINES),
        table.choice("strategy", tuple(STRATEGIES)),
        table.choice("precision", tuple(PRECISIONS)),
        table.number("retention", None, 1),
        _budgets(table.table("budgets")),
        address_from(table.text("address", str(Address()))),
        table.texts("origins"),
        _bounds(table.table("bounds")),
        _tokens(table, environment),
        warehouse=_warehouse(table),
        webhooks=_webhooks(table.table("webhooks"), environment),
        zone=_zone(table),
    )
    table.done()
    return project


def _zone(table: TomlTable) -> str | None:
    zone: str | None = table.text("zone")
    try:
        return zone_name(zone) if zone is not None else None
    except UnknownOption as error:
        raise table.error("zone", error.message, error.hint) from None


def _warehouse(table: TomlTable) -> WarehouseSettings | None:
    """Where the table is there, even empty, remote relations are left where they are."""
    if table.take("warehouse", dict, "a table") is None:
        return None
    given, default = table.table("warehouse"), WarehouseSettings()
    found = WarehouseSettings(
        given.take("net", bool, "true or false", default.net), given.number("retry", default.retry, 0.05, (int, float))
    )
    given.done()
    return found


def _budgets(table: TomlTable) -> Budgets:
    default = BUDGETS
    found = Budgets(
        table.number("rounds", default.rounds, 1),
        table.number("tuples", default.tuples, 1),
        table.number("memory", default.memory // _MEBIBYTE, 1) * _MEBIBYTE,
        seconds=table.number("seconds", default.seconds, 0.05, (int, float)),
        rows=table.number("rows", default.rows, 1),
        growth=table.number("growth", default.growth // _MEBIBYTE, 1) * _MEBIBYTE,
    )
    table.done()
    return found


def _bounds(table: TomlTable) -> ServiceLimits:
    default = ServiceLimits()
    rate = table.number("rate", default.rate, 1, (int, float))
    found = ServiceLimits(
        body=table.number("body", default.body, 1),
        headers=table.number("headers", default.headers, 1024),
        header_seconds=table.number("header_seconds", default.header_seconds, 0.05, (int, float)),
        body_seconds=table.number("body_seconds", default.body_seconds, 0.05, (int, float)),
        connections=table.number("connections", default.connections, 1),
        rate=rate,
        burst=table.number("burst", max(1, int(rate)), 1),
        subscriptions=table.number("subscriptions", default.subscriptions, 0),
        queue=table.number("queue", default.queue, 1),
        queue_bytes=table.number("queue_bytes", default.queue_bytes, 1),
        waiting=table.number("waiting", default.waiting, 1),
        heartbeat=table.number("heartbeat", default.heartbeat, 0.05, (int, float)),
    )
    table.done()
    return found


def address_from(text: str) -> Address:
    """
    >>> address_from("[::1]:80"), str(address_from("127.0.0.1:0"))
    (Address(host='::1', port=80), '127.0.0.1:0')
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ProjectError(f"'{text}' is not HOST:PORT", hint='as in "127.0.0.1:8420"').at("address")
    return Address(host, int(port))


def _tokens(table: TomlTable, environment: Mapping[str, str]) -> tuple[Token, ...]:
    tokens = tuple(_token(one, environment) for one in table.tables("token"))
    for field in ("name", "secret"):
        if len({getattr(token, field) for token in tokens}) < len(tokens):
            raise table.error("token", f"two tokens have the same {field}")
    return tokens


def _token(table: TomlTable, environment: Mapping[str, str]) -> Token:
    name, variable = table.text("name"), table.text("secret")
    if not name or not variable:
        raise table.error("name" if not name else "secret", "a token has a name, and the variable that holds its secret")
    token = Token(
        name,
        _secret(table, variable, environment),
        frozenset(table.texts("read")),
        frozenset(table.texts("write")),
        table.take("define", bool, "true or false", False),
        table.take("admin", bool, "true or false", False),
        _rows(table),
    )
    table.done()
    return token


def _secret(table: TomlTable, variable: str, environment: Mapping[str, str]) -> str:
    secret = environment.get(variable, "")
    if len(secret) < _SHORTEST:
        problem = f"the environment variable {variable} is not set" if not secret else f"{variable} holds too short a secret"
        raise table.error("secret", problem, f"set it to {_SHORTEST} characters or more that nobody can guess")
    return secret


def _webhooks(table: TomlTable, environment: Mapping[str, str]) -> Webhooks | None:
    """Where rules may post to; without hosts, nowhere."""
    hosts, variable, default = table.texts("hosts"), table.text("secret"), Webhooks("", ())
    private = table.take("private", bool, "true or false", default.private)
    timeout = table.number("timeout", default.timeout, 0.1, (int, float))
    attempts = table.number("attempts", default.attempts, 1)
    table.done()
    if not hosts:
        return None
    if not variable:
        raise table.error("secret", "webhooks are signed: name the variable that holds the secret")
    return Webhooks(_secret(table, variable, environment), hosts, private, timeout, attempts=attempts)


def _rows(table: TomlTable) -> dict[str, dict[str, Any]]:
    rows = table.take("rows", dict, "a table from relations to columns and values", {})
    for relation, values in rows.items():
        if not isinstance(values, dict) or not values:
            raise table.error(f"rows.{relation}", "not a table of columns and values", 'as in rows = { closure = { x = "a" } }')
    return dict(rows)
