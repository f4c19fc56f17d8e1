"""Webhooks against a real server: signed, at least once, in order, under one key; and where they may not go."""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import subprocess
import sys
import time as clock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rederive
from rederive.errors import ProgramError
from rederive.failpoints import VARIABLE
from rederive.rules.webhook import NotSent, Webhooks
from tests.rules.receiver import Receiver, babble, close, drip, drip_headers, hang, receiver, socket_receiver, until

PROGRAM = ".decl stock(item: symbol, n: number) key(item)  .decl low(item: symbol)  low(x) :- stock(x, n), n < 5."


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def opened(path: Path, there: Receiver | None, first: float = 0.02) -> rederive.Database:
    webhooks = Webhooks("secret", (there.host,), private=True, timeout=5, first=first, longest=0.1) if there else None
    db = rederive.open(path, webhooks=webhooks)
    db.migrate(PROGRAM)
    return db


def put(db: rederive.Database, **stock: int) -> None:
    with db.transaction() as tx:
        tx.upsert("stock", list(stock.items()))


def delivered(db: rederive.Database) -> bool:
    firings = db.rules.firings()
    return bool(firings) and all(firing.outcome == "delivered" for firing in firings)


def test_a_webhook_is_signed_and_has_a_key(tmp_path: Path, there: Receiver) -> None:
    with opened(tmp_path, there) as db:
        db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{there.url}?a=1' ON BOTH")
        put(db, bolt=1, nut=2, gear=9)
        until(lambda: delivered(db))
        epoch = db.pipeline.state.epoch
    (one,) = there.received
    assert one.data == {"rule": "r", "version": 1, "columns": ["item"], "plus": [["bolt"], ["nut"]], "minus": []}
    assert (one.path, one.headers["Idempotency-Key"], one.headers["Content-Type"]) == (
        "/hook?a=1",
        f"r:{epoch}-1",
        "application/json",
    )
    time, _, mac = one.headers["Rederive-Signature"].removeprefix("t=").partition(",v1=")
    assert mac == hmac.new(b"secret", f"{time}.{one.body}".encode(), hashlib.sha256).hexdigest()


def test_it_is_tried_again_and_later_ones_wait_for_it(tmp_path: Path, there: Receiver) -> None:
    there.answers += [500, 302, 404]
    with opened(tmp_path, there) as db:
        db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{there.url}'")
        put(db, bolt=1)
        put(db, nut=1)
        until(lambda: delivered(db) and len(db.rules.firings()) == 2)
    assert there.keys() == ["r:1"] * 4 + ["r:2"]
    assert {one.path for one in there.received} == {"/hook"}
    assert len({one.body for one in there.received[:4]}) == 1


def test_a_receiver_that_is_down_is_told_later(tmp_path: Path) -> None:
    with receiver() as there:
        with opened(tmp_path, there, first=60) as db:
            db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{there.url}'")
            there.answers.append(503)
            put(db, bolt=1)
            until(lambda: bool(db.rules.firings()[0].detail))
            assert [(f.outcome, f.detail) for f in db.rules.firings()] == [("waiting", "attempt 1: status 503")]
        with opened(tmp_path, None) as db:
            put(db, nut=1)
            assert [f.outcome for f in db.rules.firings()] == ["waiting", "waiting"]
    assert there.keys() == ["r:1"]


def test_what_waits_is_sent_when_the_store_is_opened_again(tmp_path: Path, there: Receiver) -> None:
    with opened(tmp_path, there) as db:
        db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{there.url}'")
    with opened(tmp_path, None) as db:
        put(db, bolt=1)
        put(db, nut=1)
    with opened(tmp_path, there) as db:
        until(lambda: delivered(db))
    assert there.keys() == ["r:1", "r:2"]


def test_a_transaction_that_is_rolled_back_sends_nothing(tmp_path: Path, there: Receiver) -> None:
    def fail(rows: object) -> None:
        raise OSError

    with opened(tmp_path, there) as db:
        db.rules.register(fail)
        db.sql(f"CREATE RULE a WHEN TABLE low DO WEBHOOK '{there.url}'; CREATE RULE b WHEN TABLE low DO CALL fail")
        with pytest.raises(rederive.RederiveError):
            put(db, bolt=1)
        db.rules.drop("b")
        put(db, nut=1)
        until(lambda: len(there.received) == 1)
    assert there.received[0].data["plus"] == [["nut"]]


def test_a_dropped_rule_sends_no_more(tmp_path: Path, there: Receiver) -> None:
    with opened(tmp_path, there) as db:
        db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{there.url}'")
    with opened(tmp_path, None) as db:
        put(db, bolt=1)
        db.sql("DROP RULE r")
        assert [(f.outcome, f.detail) for f in db.rules.firings()] == [("failed", "the rule was dropped")]
    with opened(tmp_path, there) as db:
        assert db.pipeline.state.durable("test").journal.undelivered == 0
    assert there.received == []


LOAD = """
import sys, time
import rederive
from rederive import Webhooks
with rederive.open(sys.argv[1], webhooks=Webhooks("secret", (sys.argv[2],), private=True)) as db:
    with db.transaction(key=sys.argv[3]) as tx:
        tx.upsert("stock", [(sys.argv[3], 1)])
    time.sleep(20)
"""


@pytest.mark.parametrize(
    ("point", "times"),
    [("webhook:sent", 2), ("commit:applied", 1), ("journal.append:after", 1), ("journal.append:written", 0)],
)
def test_killed_around_a_delivery(tmp_path: Path, there: Receiver, point: str, times: int) -> None:
    """Committed is delivered, at least once and under one key; what was not committed is not."""
    with opened(tmp_path, there) as db:
        db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{there.url}'")
    command = [sys.executable, "-c", LOAD, str(tmp_path), there.host, "bolt"]
    child = subprocess.run(command, env={**os.environ, VARIABLE: point}, timeout=60, check=False)
    assert child.returncode == -9
    with opened(tmp_path, there) as db:
        until(lambda: all(firing.outcome == "delivered" for firing in db.rules.firings()))
        assert db.version == len(db.rules.firings()) == (1 if times else 0)
    assert there.keys() == ["r:1"] * times


# Where they may not go


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://elsewhere.example.com/", "the host 'elsewhere.example.com' is not allowed"),
        ("https://hooks.example.com:8443/", "the host 'hooks.example.com:8443' is not allowed"),
        ("http://hooks.example.com/", "http is for private addresses"),
        ("https://user:word@hooks.example.com/", "a name or password"),
        ("ftp://hooks.example.com/", "begins with https://"),
        ("https://hooks.example.com:port/", "no address"),
        ("https://hooks.example.com:0/", "is not a host and a port"),
        ("https://hooks.example.com:65536/", "no address"),
        ("https://hooks.example.com/käse", "the character 'ä' must be percent-encoded"),
        ("https://hooks.exämple.com/", "the character 'ä' must be percent-encoded"),
        ("https://hooks.example.com/a b", "the character ' ' must be percent-encoded"),
        ("https://hooks.example.com/100%", "the character '%' must be percent-encoded"),
        ("https://hooks.example.com/a\tb", "must be percent-encoded"),
        ("https://hooks.example.com/\x7f", "must be percent-encoded"),
        ("https://hooks.example.com/<a>", "must be percent-encoded"),
        ("https://hooks.example.com/#part", "a fragment"),
        ("https://hooks..example.com/", "is not a host and a port"),
        ("https://[::1/", "no address"),
        ("https://[::x]/", "no address"),
        (f"https://{'a' * 64}.example.com/", "is not a host and a port"),
        ("https://@hooks.example.com/", "a name or password"),
        ("https:///path", "begins with https://"),
        ("", "begins with https://"),
    ],
)
def test_addresses_that_are_refused(tmp_path: Path, url: str, reason: str) -> None:
    with rederive.open(tmp_path, webhooks=Webhooks("secret", ("hooks.example.com",))) as db:
        db.migrate(PROGRAM)
        with pytest.raises(ProgramError) as caught:
            db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{url}'")
        assert (str(caught.value.span), reason in str(caught.value)) == ("<text>:1:41", True)
        assert not db.rules


def test_a_rule_that_is_replaced_is_checked_too(tmp_path: Path, there: Receiver) -> None:
    with opened(tmp_path, there) as db:
        db.sql(f"CREATE RULE r WHEN TABLE low DO WEBHOOK '{there.url}'")
        with pytest.raises(ProgramError, match="must be percent-encoded"):
            db.sql(f"CREATE OR REPLACE RULE r WHEN TABLE low DO WEBHOOK '{there.url}/käse'")
        with pytest.raises(ProgramError, match="unknown function"):
            db.sql("CREATE OR REPLACE RULE r WHEN TABLE low DO CALL nobody")
        put(db, bolt=1)
        until(lambda: delivered(db))
    with opened(tmp_path, None) as db:  # what stands is not checked again, also where this process could not allow it
        db.define(".decl other(x: number)")
        db.rules.deactivate("r")


def test_without_permission_nothing_is_allowed(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.migrate(PROGRAM)
        with pytest.raises(ProgramError, match="is not allowed"):
            db.sql("CREATE RULE r WHEN TABLE low DO WEBHOOK 'https://hooks.example.com/'")


def resolving(*answers: list[str]) -> Any:
    """A resolver that answers these, one after the other."""
    left = list(answers)

    def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in left.pop(0)]

    return getaddrinfo


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.215.14", "10.0.0.1"], ["169.254.169.254"], ["::ffff:127.0.0.1"]])
def test_a_name_with_an_address_that_is_not_public(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving(addresses))
    with pytest.raises(NotSent, match="which is not public"):
        Webhooks("secret", ("hooks.example.com",)).post("https://hooks.example.com/", "r:1", "{}", 0)


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch, there: Receiver) -> None:
    """The name is resolved once: what it would resolve to next does not matter."""
    made: list[object] = []

    def connected(address: tuple[str, int], timeout: float) -> socket.socket:
        made.append(address)
        found = socket.socket()
        found.settimeout(timeout)
        found.connect(("127.0.0.1", there.port))
        return found

    monkeypatch.setattr(socket, "create_connection", connected)
    monkeypatch.setattr(socket, "getaddrinfo", resolving(["93.184.215.14"]))
    with pytest.raises(NotSent, match="SSLError"):  # the server does not speak TLS, which https insists on
        Webhooks("secret", ("hooks.example.com",)).post("https://hooks.example.com/", "r:1", "{}", 0)
    assert made == [("93.184.215.14", 443)]
    assert there.received == []


# Receivers that do not do as they should


def opened_for(path: Path, *there: Receiver, timeout: float = 0.4, attempts: int = 3) -> rederive.Database:
    hosts = tuple(one.host for one in there)
    db = rederive.open(path, webhooks=Webhooks("secret", hosts, True, timeout, 0.01, 0.02, attempts))
    db.migrate(PROGRAM)
    return db


@pytest.mark.parametrize("behave", [drip, drip_headers, hang, close, babble], ids=lambda behave: behave.__name__)
def test_a_bad_receiver_has_a_deadline_and_delays_its_own_rule_alone(
    tmp_path: Path, there: Receiver, behave: Callable[[socket.socket], None]
) -> None:
    with socket_receiver(behave) as bad, opened_for(tmp_path, bad, there) as db:
        db.sql(f"CREATE RULE a WHEN TABLE low DO WEBHOOK '{bad.url}'; CREATE RULE b WHEN TABLE low DO WEBHOOK '{there.url}'")
        began = clock.monotonic()
        put(db, bolt=1)
        put(db, nut=1)
        until(lambda: len(there.received) == 2)
        assert clock.monotonic() - began < 0.4 * 2
        assert there.keys() == ["b:1", "b:2"]
        until(lambda: db.rules.deliveries.parked == 2)
        assert clock.monotonic() - began < 0.4 * 6 + 3
        first = next(firing for firing in db.rules.firings() if firing.rule == "a")
        assert (first.outcome, first.detail.startswith("given up after 3 attempts: ")) == ("failed", True)
        assert db.rules.deliveries.waiting == 0


def test_closing_does_not_wait_for_a_receiver(tmp_path: Path) -> None:
    with socket_receiver(drip) as bad:
        db = opened_for(tmp_path, bad, timeout=60)
        db.sql(f"CREATE RULE a WHEN TABLE low DO WEBHOOK '{bad.url}'")
        put(db, bolt=1)
        until(lambda: len(bad.received) == 1)
        began = clock.monotonic()
        db.close()
        assert clock.monotonic() - began < 4
    with receiver() as there, rederive.open(tmp_path) as db:  # it is still in the outbox
        assert (db.rules.deliveries.waiting, bool(db.rules.deliveries.error)) == (1, True)
        assert there.received == []


def test_a_message_that_cannot_be_sent_is_parked_and_the_next_one_goes(tmp_path: Path, there: Receiver) -> None:
    """An address that an older version of rederive accepted; and whatever else sending it may raise."""
    with opened(tmp_path, there) as db:
        db.sql(f"CREATE RULE a WHEN TABLE low DO WEBHOOK '{there.url}'; CREATE RULE b WHEN TABLE low DO WEBHOOK '{there.url}'")
    with opened(tmp_path, None) as db:
        put(db, bolt=1)
        put(db, nut=1)
        connection = db.pipeline.state.durable("test").journal._connection
        connection.execute("UPDATE outbox SET address = ? WHERE rule = 'a' AND version = 1", (f"{there.url}/käse",))
    with opened_for(tmp_path, there, attempts=9) as db:
        until(lambda: db.rules.deliveries.waiting == 0)
        assert sorted(there.keys()) == ["a:2", "b:1", "b:2"]
        outcomes = {(firing.rule, firing.version): (firing.outcome, firing.detail) for firing in db.rules.firings()}
        assert outcomes["a", 1] == (
            "failed",
            "given up after 5 attempts: the character 'ä' must be percent-encoded in an address",
        )
        assert (db.rules.deliveries.parked, db.rules.deliveries.error) == (1, "")
        connection = db.pipeline.state.durable("test").journal._connection
        connection.execute("UPDATE parked SET address = ?", (there.url,))
        assert db.rules.retry_webhooks("A") == 1
        until(lambda: there.keys()[3:] == ["a:1"] and delivered(db))
        assert db.rules.retry_webhooks() == 0


def test_whatever_an_attempt_raises_does_not_end_delivery(
    tmp_path: Path, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Webhooks.post

    def fail_for_a(self: Webhooks, url: str, key: str, body: str, now: int) -> None:
        if key.startswith("a:"):
            raise UnicodeEncodeError("ascii", "ä", 0, 1, "not in ASCII")
        post(self, url, key, body, now)

    monkeypatch.setattr(Webhooks, "post", fail_for_a)
    with opened_for(tmp_path, there) as db:
        db.sql(f"CREATE RULE a WHEN TABLE low DO WEBHOOK '{there.url}'; CREATE RULE b WHEN TABLE low DO WEBHOOK '{there.url}'")
        put(db, bolt=1)
        put(db, nut=1)
        until(lambda: db.rules.deliveries.parked == 2 and len(there.received) == 2)
        assert "UnicodeEncodeError" in db.rules.firings()[0].detail
        db.rules.drop("a")
        assert db.pipeline.state.durable("test").journal.deliveries().parked == 0


def test_trouble_with_the_outbox_is_told_and_tried_again(
    tmp_path: Path, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rederive.rules import outbox as courier

    with monkeypatch.context() as patched:
        patched.setattr(courier, "_FIRST", "SELECT * FROM nowhere")
        db = opened_for(tmp_path, there)
        db.sql(f"CREATE RULE a WHEN TABLE low DO WEBHOOK '{there.url}'")
        put(db, bolt=1)
        until(lambda: "no such table" in db.rules.deliveries.error)
    until(lambda: delivered(db))
    assert db.rules.deliveries.error == ""
    db.close()
