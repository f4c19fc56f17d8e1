"""Reading `rederive.toml`: each key is read by its name and checked; an unknown key is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rederive import ENGINES
from rederive.errors import PlaceError, ProjectError, UnknownOption, nearest
from rederive.limits import Limits
from rederive.locations import Location, local_folder, parse_location
from rederive.maintain.plan import PRECISIONS, STRATEGIES
from rederive.rules.webhook import Webhooks
from rederive.service.settings import DEFAULT_BUDGETS, Address, Project, ServiceLimits, Token, WarehouseSettings
from rederive.time_zones import zone_name

_MEBIBYTE: Final = 2**20
_MIN_SECRET: Final = 16  # characters
_MIN_SECONDS: Final = 0.05


class TomlTable:
    """A TOML table whose keys are read one by one. `check_unknown_keys` refuses the keys that nothing has read."""

    def __init__(self, values: Mapping[str, Any], place: str = "") -> None:
        self._values = values
        self._place = place
        self._known: list[str] = []

    def value(self, key: str, kinds: type | tuple[type, ...], what: str, default: Any = None) -> Any:
        """Return the value of a key, which must be of one of these types."""
        self._known.append(key)
        value = self._values.get(key, default)
        # bool is a subclass of int, and `true` is not a number.
        is_valid = value is default or (isinstance(value, kinds) and not (isinstance(value, bool) and kinds is not bool))
        if not is_valid:
            raise self.error(key, f"{value!r} is not {what}")
        return value

    def text(self, key: str, default: str | None = None) -> Any:
        """Return a text."""
        return self.value(key, str, "a string", default)

    def place(self, key: str, base: Path) -> Location | None:
        """Return a folder, relative to `base`, or the address of an object store."""
        text = self.text(key)
        with self._errors_name(key):
            return parse_location(text, base) if text is not None else None

    def folder(self, key: str, base: Path, default: str) -> Path:
        """Return a local folder, relative to `base`."""
        with self._errors_name(key):
            return local_folder(self.text(key, default), f"a {key}", base)

    @contextmanager
    def _errors_name(self, key: str) -> Iterator[None]:
        """Make the error of a place name the key that holds it."""
        try:
            yield
        except PlaceError as error:
            raise self.error(key, error.message, error.hint) from None

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        found = self.value(key, list, "a list of strings", [])
        if not all(isinstance(one, str) for one in found):
            raise self.error(key, f"{found!r} is not a list of strings")
        return tuple(found)

    def choice(self, key: str, known: tuple[str, ...]) -> str | None:
        """Return one of several known texts."""
        value: str | None = self.text(key)
        if value is not None and value not in known:
            raise self.error(key, f"unknown {key} '{value}'", nearest(value, known))
        return value

    def number(self, key: str, default: float | None, least: float, kinds: tuple[type, ...] = (int,)) -> Any:
        """Return a number that is at least `least`."""
        value = self.value(key, kinds, "a number", default)
        if value is not None and value < least:
            raise self.error(key, f"{value} is less than {least}")
        return value

    def table(self, key: str) -> TomlTable:
        """Return an inner table; a missing one is empty."""
        return TomlTable(self.value(key, dict, "a table", {}), f"{self._place}{key}.")

    def tables(self, key: str) -> list[TomlTable]:
        """Return an array of tables."""
        found = self.value(key, list, f"a list of tables: [[{key}]]", [])
        if not all(isinstance(one, dict) for one in found):
            raise self.error(key, f"not a list of tables: [[{key}]]")
        return [TomlTable(one, f"{self._place}{key}[{i}].") for i, one in enumerate(found)]

    def error(self, key: str, message: str, hint: str | None = None) -> ProjectError:
        """Return an error that names the key."""
        return ProjectError(message, hint=hint).at(f"{self._place}{key}")

    def check_unknown_keys(self) -> None:
        """Refuse keys that nothing has read: a misspelt key would have no effect."""
        for key in self._values:
            if key not in self._known:
                raise self.error(key, f"unknown key '{key}'", nearest(key, self._known))


def project_from(folder: Path, table: TomlTable, environment: Mapping[str, str]) -> Project:
    """Return the project that a table of settings describes."""
    programs = table.texts("programs")
    if not programs:
        raise table.error("programs", "no program is named", 'add programs = ["views.dl"]')
    if unknown := [name for name in programs if Path(name).suffix not in (".dl", ".sql")]:
        raise table.error("programs", f"'{unknown[0]}' is neither a .dl nor a .sql file")
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
        tick=table.number("tick", None, _MIN_SECONDS, (int, float)),
    )
    table.check_unknown_keys()
    return project


def _zone(table: TomlTable) -> str | None:
    zone: str | None = table.text("zone")
    try:
        return zone_name(zone) if zone is not None else None
    except UnknownOption as error:
        raise table.error("zone", error.message, error.hint) from None


def _warehouse(table: TomlTable) -> WarehouseSettings | None:
    """Return the settings of a warehouse. The table makes the project a warehouse, even if it is empty."""
    if table.value("warehouse", dict, "a table") is None:
        return None
    given, default = table.table("warehouse"), WarehouseSettings()
    found = WarehouseSettings(
        given.value("net", bool, "true or false", default.net), given.number("retry", default.retry, _MIN_SECONDS, (int, float))
    )
    given.check_unknown_keys()
    return found


def _budgets(table: TomlTable) -> Limits:
    # The file has MiB, the limits have bytes.
    default = DEFAULT_BUDGETS
    found = Limits(
        table.number("rounds", default.rounds, 1),
        table.number("tuples", default.tuples, 1),
        table.number("memory", default.memory // _MEBIBYTE, 1) * _MEBIBYTE,
        seconds=table.number("seconds", default.seconds, _MIN_SECONDS, (int, float)),
        rows=table.number("rows", default.rows, 1),
        growth=table.number("growth", default.growth // _MEBIBYTE, 1) * _MEBIBYTE,
    )
    table.check_unknown_keys()
    return found


def _bounds(table: TomlTable) -> ServiceLimits:
    default = ServiceLimits()
    rate = table.number("rate", default.rate, 1, (int, float))
    found = ServiceLimits(
        body=table.number("body", default.body, 1),
        headers=table.number("headers", default.headers, 1024),
        header_seconds=table.number("header_seconds", default.header_seconds, _MIN_SECONDS, (int, float)),
        body_seconds=table.number("body_seconds", default.body_seconds, _MIN_SECONDS, (int, float)),
        connections=table.number("connections", default.connections, 1),
        rate=rate,
        burst=table.number("burst", max(1, int(rate)), 1),
        subscriptions=table.number("subscriptions", default.subscriptions, 0),
        queue=table.number("queue", default.queue, 1),
        queue_bytes=table.number("queue_bytes", default.queue_bytes, 1),
        waiting=table.number("waiting", default.waiting, 1),
        heartbeat=table.number("heartbeat", default.heartbeat, _MIN_SECONDS, (int, float)),
    )
    table.check_unknown_keys()
    return found


def address_from(text: str) -> Address:
    """Parse HOST:PORT.

    >>> address_from("[::1]:80"), str(address_from("127.0.0.1:0"))
    (Address(host='::1', port=80), '127.0.0.1:0')
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ProjectError(f"'{text}' is not HOST:PORT", hint='write "127.0.0.1:8420", for example').at("address")
    return Address(host, int(port))


def _tokens(table: TomlTable, environment: Mapping[str, str]) -> tuple[Token, ...]:
    tokens = tuple(_token(one, environment) for one in table.tables("token"))
    # Two tokens with one secret could not be told apart.
    for field in ("name", "secret"):
        if len({getattr(token, field) for token in tokens}) < len(tokens):
            raise table.error("token", f"two tokens have the same {field}")
    return tokens


def _token(table: TomlTable, environment: Mapping[str, str]) -> Token:
    name, variable = table.text("name"), table.text("secret")
    if not name or not variable:
        raise table.error(
            "name" if not name else "secret", "a token needs a name and the environment variable that holds its secret"
        )
    token = Token(
        name,
        _secret(table, variable, environment),
        frozenset(table.texts("read")),
        frozenset(table.texts("write")),
        table.value("define", bool, "true or false", False),
        table.value("admin", bool, "true or false", False),
        _rows(table),
    )
    table.check_unknown_keys()
    return token


def _secret(table: TomlTable, variable: str, environment: Mapping[str, str]) -> str:
    secret = environment.get(variable, "")
    # A variable that is not set would otherwise be the empty secret.
    if len(secret) < _MIN_SECRET:
        problem = f"the environment variable {variable} is not set" if not secret else f"the secret in {variable} is too short"
        raise table.error("secret", problem, f"set it to {_MIN_SECRET} or more random characters")
    return secret


def _webhooks(table: TomlTable, environment: Mapping[str, str]) -> Webhooks | None:
    """Return where webhooks may go. Without hosts they may go nowhere."""
    hosts, variable, default = table.texts("hosts"), table.text("secret"), Webhooks("", ())
    private = table.value("private", bool, "true or false", default.private)
    timeout = table.number("timeout", default.timeout, 0.1, (int, float))
    attempts = table.number("attempts", default.attempts, 1)
    table.check_unknown_keys()
    if not hosts:
        return None
    if not variable:
        raise table.error(
            "secret", "webhooks are signed, and no secret is set", "name the environment variable that holds the secret"
        )
    return Webhooks(_secret(table, variable, environment), hosts, private, timeout, attempts=attempts)


def _rows(table: TomlTable) -> dict[str, dict[str, Any]]:
    rows = table.value("rows", dict, "a table from relations to columns and values", {})
    for relation, values in rows.items():
        if not isinstance(values, dict) or not values:
            raise table.error(
                f"rows.{relation}", "the value is not a table of columns and values", 'write rows = { closure = { x = "a" } }'
            )
    return dict(rows)
