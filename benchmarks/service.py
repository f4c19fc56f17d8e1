"""The service under load: transactions in a second, from commit to delivery, and what an idle subscriber costs.

The server is a process of its own; writers and subscribers share another one. Each transaction replaces one row and changes the
view that all subscribers follow.

*Peers*: the same service with one sync for each transaction, and the same clients asking for the rows again and again.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import uvloop

from benchmarks.report import Check, Figure, Goal, Section, Unit
from benchmarks.service_load import (
    ITEMS,
    WRITERS,
    Asking,
    Server,
    Subscriber,
    Told,
    Work,
    at,
    late,
    poll,
    serving,
    subscribed,
    upsert,
    write,
)

RATE, DELIVERED, HELD = 500, 0.05, 500e6  # what was aimed at


@dataclass(frozen=True, slots=True)
class Run:
    work: Work
    told: list[Told]

    @property
    def rate(self) -> float:
        return len(self.work.acknowledged) / self.work.seconds

    @property
    def whole(self) -> bool:
        """Whether every client was told every version of the run, each by itself."""
        wanted = sorted(self.work.acknowledged)
        return all(
            [v for _, first, last, _ in one for v in range(first, last + 1)] == wanted
            and all(last - first + 1 == events for _, first, last, events in one)
            for one in self.told
        )


async def pushed(server: Server, subscribers: int, seconds: float, rate: float | None) -> Run:
    async with subscribed(server, subscribers) as found:
        work = await write(server, seconds, rate)
        end = perf_counter() + 30
        while perf_counter() < end and any(not one.told or one.told[-1][2] < max(work.acknowledged) for one in found):
            await asyncio.sleep(0.05)
        return Run(work, [one.told for one in found])


async def polled(server: Server, clients: int, seconds: float, rate: float | None) -> Run:
    told: list[Told] = [[] for _ in range(clients)]
    ends = asyncio.Event()
    polling = [asyncio.create_task(poll(server, one, ends)) for one in told]
    work = await write(server, seconds, rate)
    await asyncio.sleep(1)
    ends.set()
    await asyncio.gather(*polling)
    return Run(work, told)


@dataclass(frozen=True, slots=True)
class Idle:
    """Bytes of the server before and with so many subscribers, and the seconds until all of them had a change."""

    before: int
    after: int
    told: float
    reached: int


async def idle(server: Server, subscribers: int) -> Idle:
    await write(server, 0.2, None)
    before = server.memory
    async with subscribed(server, subscribers) as found:
        after, start = server.memory, perf_counter()
        asking = await Asking.to(server)
        await asking.ask(upsert(5 * ITEMS + 1))
        while any(not one.told for one in found) and perf_counter() < start + 30:
            await asyncio.sleep(0.01)
        asking.close()
        return Idle(before, after, max((one.told[0][0] for one in found if one.told), default=start) - start, _reached(found))


def _reached(found: Sequence[Subscriber]) -> int:
    return sum(bool(one.told) for one in found)


def run(subscribers: int, seconds: float, idle_subscribers: int) -> Iterator[Section]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield _throughput(subscribers, seconds)
    yield _delivery(subscribers, seconds)
    yield held(idle_subscribers)


def _measured(made: Callable[[Server], Coroutine[None, None, Run]], most: int | None = None) -> Run:
    with serving(most) as server:
        return uvloop.run(made(server))


def _throughput(subscribers: int, seconds: float) -> Section:
    together = _measured(lambda server: pushed(server, subscribers, seconds, None))
    alone = _measured(lambda server: pushed(server, subscribers, seconds, None), 1)
    rates, waits = [(run.rate, run.work.waits) for run in (together, alone)], "until it is acknowledged"
    (ours, our_waits), (theirs, their_waits) = rates
    figures = (
        Figure("one transaction", 1 / ours, 1 / theirs, Goal(f"{RATE} a second", ours >= RATE)),
        Figure(f"{waits}, p50", at(0.5, our_waits), at(0.5, their_waits)),
        Figure(f"{waits}, p99", at(0.99, our_waits), at(0.99, their_waits)),
    )
    note = f"{ours:,.0f} transactions in a second by {WRITERS} writers, as fast as they are answered; the peer {theirs:,.0f}."
    title = f"The service: single-row transactions with {subscribers} subscribers"
    return Section(title, figures, _checks(together, alone), (note,), "one sync for each")


def _delivery(subscribers: int, seconds: float) -> Section:
    pushes = _measured(lambda server: pushed(server, subscribers, seconds, RATE))
    polls = _measured(lambda server: polled(server, subscribers, seconds, RATE))
    ours, theirs = (late(run.work.acknowledged, run.told) for run in (pushes, polls))
    whole, their_whole = (late(run.work.due, run.told) for run in (pushes, polls))
    figures = (
        Figure("commit to delivery, p99", at(0.99, ours), at(0.99, theirs), Goal("< 50 ms", at(0.99, ours) < DELIVERED)),
        Figure("due to delivered, p50", at(0.5, whole), at(0.5, their_whole)),
        Figure("due to delivered, p99", at(0.99, whole), at(0.99, their_whole)),
    )
    notes = (
        f"{RATE} transactions a second are due; {pushes.rate:,.0f} were acknowledged, and {polls.rate:,.0f} beside polling.",
        "Whoever polls asks for all rows of the view again as soon as they are there, and learns of a newer version so.",
    )
    return Section(f"The service: delivery to {subscribers} subscribers", figures, _checks(pushes), notes, "polling")


def _checks(*runs: Run) -> tuple[Check, ...]:
    return tuple(Check(f"{len(run.told)} subscribers: every version, in order, by itself", run.whole) for run in runs)


def held(subscribers: int) -> Section:
    with serving() as server:
        found = uvloop.run(idle(server, subscribers))
    figures = (
        Figure(f"{subscribers:,} idle subscribers: the whole process", found.after, None, _holds(found.after), Unit.BYTES),
        Figure("each of them", (found.after - found.before) / subscribers, None, None, Unit.BYTES),
        Figure("until all of them have a change", found.told),
    )
    note = f"Before they came, the process had {found.before / 1e6:.0f} MB."
    check = Check(f"a change reached {found.reached:,} of {subscribers:,}", found.reached == subscribers)
    return Section("The service: idle subscribers", figures, (check,), (note,), "none")


def _holds(size: float) -> Goal:
    return Goal("< 500 MB", size < HELD)
