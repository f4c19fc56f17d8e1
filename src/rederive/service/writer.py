"""The one thread that owns the database: it does jobs in the order in which they come, and transactions that wait in one commit.

What a job found, and the versions that it made, go back to the event loop together and in order: a subscriber that begins at some
version hears of every later one, and of none before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final, TypeVar

from rederive.commit.group import Outcome, Write
from rederive.database import Database
from rederive.engines.protocol import Query
from rederive.errors import Busy, Closed, Mismatch, RederiveError, RuleError
from rederive.result import Result
from rederive.service.followed_views import FollowedViews
from rederive.service.hub import PublishedVersion
from rederive.store.journal.rules import Deliveries
from rederive.warehouse.bridge import WarehouseBridge

T = TypeVar("T")
MOST: Final = 256  # jobs that are done before anybody is told
_END: Final = None


@dataclass(frozen=True, slots=True)
class _Job:
    """Something to do with the database. `then` is called in the loop with what it found, before any later version is told."""

    run: Callable[[Database, FollowedViews], Any]
    future: asyncio.Future[Any]
    then: Callable[[Any], None] | None = None
    redefines: bool = False


@dataclass(frozen=True, slots=True)
class _Writes:
    """Transactions, typed by the program that stands when their turn comes."""

    typed: Callable[[Database], Sequence[Write]]
    future: asyncio.Future[Outcome]


@dataclass(slots=True)
class WriterCounts:
    """What the thread has done so far."""

    commits: int = 0
    groups: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Done:
    versions: list[PublishedVersion] = field(default_factory=list)
    found: list[tuple[_Job | _Writes, Any, BaseException | None]] = field(default_factory=list)
    fired: bool = False


class Writer:
    """Takes jobs from the event loop. There, `publish` is called with each version, and `fired` where rules fired or failed."""

    def __init__(
        self, database: Database, publish: Callable[[PublishedVersion], None], fired: Callable[[], None], waiting: int
    ) -> None:
        self.work = WriterCounts()
        self._db = database
        self._follower = FollowedViews(database)
        self._publish = publish
        self._fired = fired
        self._most_waiting = waiting
        self._queue: SimpleQueue[_Job | _Writes | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._work, name="rederive-writer", daemon=True)
        self._ended = False
        self._since: float | None = None
        self._thread.start()

    # In the loop

    async def ask(self, run: Callable[[Database, FollowedViews], T], then: Callable[[T], None] | None = None) -> T:
        """What a function of the database gives."""
        found: T = await self._put(_Job(run, self._loop.create_future(), then))
        return found

    async def redefine(self, run: Callable[[Database], Sequence[Result]]) -> Sequence[Result]:
        """Change the program; the versions that it made."""
        made: Sequence[Result] = await self._put(_Job(lambda db, _: run(db), self._loop.create_future(), redefines=True))
        return made

    async def commit(self, typed: Callable[[Database], Sequence[Write]]) -> Outcome:
        """Commit transactions, each a version of its own; on disk when this returns."""
        outcome: Outcome = await self._put(_Writes(typed, self._loop.create_future()))
        return outcome

    def post(self, run: Callable[[Database, FollowedViews], None]) -> None:
        """Do something in its turn; nobody waits for it."""
        if not self._ended:
            self._queue.put(_Job(run, self._loop.create_future()))

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._ended

    @property
    def state(self) -> tuple[str, Exception | None]:
        """The engine's name, and why the lake does not follow; read without waiting for the thread."""
        return self._db.engine.name, self._db.unsettled

    @property
    def busy(self) -> float:
        """For how many seconds the thread has been at its present work."""
        since = self._since
        return round(monotonic() - since, 3) if since is not None else 0.0

    @property
    def house(self) -> WarehouseBridge | None:
        """The warehouse, where the database keeps one's views."""
        return self._db.house

    @property
    def deliveries(self) -> Deliveries:
        """How the delivery of webhooks is going; it does not wait for the thread."""
        return self._db.deliveries

    @property
    def waiting(self) -> int:
        """How many jobs nobody has begun."""
        return self._queue.qsize()

    async def close(self) -> None:
        """Finish what waits, and let go of the database."""
        self._ended = True
        self._queue.put(_END)
        await asyncio.to_thread(self._thread.join)
        self._db.close()

    async def _put(self, job: _Job | _Writes) -> Any:
        if self._ended:
            raise Closed
        if self._queue.qsize() >= self._most_waiting:
            raise Busy(f"{self._queue.qsize()} requests are waiting", hint="try again later")
        self._queue.put(job)
        return await job.future

    def _deliver(self, done: _Done) -> None:
        for version in done.versions:
            self._publish(version)
        if done.fired:
            self._fired()
        for job, found, error in done.found:
            if error is None and isinstance(job, _Job) and job.then is not None:
                try:
                    job.then(found)
                except RederiveError as refused:
                    error = refused
            if job.future.done():
                continue
            if error is not None:
                job.future.set_exception(error)
                job.future.exception()  # whoever posted a job does not look
            else:
                job.future.set_result(found)

    # In the thread

    def _work(self) -> None:
        """Until the end. Whatever else ends it, nobody is left waiting: the next start reads the disk."""
        jobs: list[_Job | _Writes | None] = []
        try:
            while _END not in jobs:
                jobs = self._jobs()
                self._do([job for job in jobs if job is not _END])
                self._since = None
        except BaseException as error:
            self._ended = True
            self._db.close()
            with suppress(Empty):
                while True:
                    jobs.append(self._queue.get_nowait())
            self._send(_Done([], [(job, None, error) for job in jobs if job is not _END]))
            raise

    def _do(self, jobs: Sequence[_Job | _Writes]) -> None:
        for writes, run in groupby(jobs, lambda job: isinstance(job, _Writes)):
            group = list(run)
            self._since = monotonic()
            if writes:
                self._send(self._committed([job for job in group if isinstance(job, _Writes)]))
            else:
                for job in group:
                    assert isinstance(job, _Job)
                    self._since = monotonic()
                    self._send(self._done(job))

    def _jobs(self) -> list[_Job | _Writes | None]:
        jobs = [self._queue.get()]
        with suppress(Empty):
            while len(jobs) < MOST:
                jobs.append(self._queue.get_nowait())
        return jobs

    def _send(self, done: _Done) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, done)

    def _done(self, job: _Job) -> _Done:
        done = _Done()
        try:
            found = job.run(self._db, self._follower)
            if job.redefines:
                ended = self._follower.ended()
                done.versions = [_without(self._follower.version(result), ended) for result in found]
                done.versions.append(PublishedVersion(self._db.version, {}, ended))
            done.found.append((job, found, None))
        except BaseException as error:
            done.found.append((job, None, error))
        return done

    def _committed(self, jobs: Sequence[_Writes]) -> _Done:
        """Group commit. A transaction that cannot be typed is refused by itself."""
        done, sound, requests = _Done(), [], []
        for job in jobs:
            try:
                requests.append(job.typed(self._db))
                sound.append(job)
            except Exception as error:
                done.found.append((job, None, error))
        try:
            outcomes = self._db.commit_together(requests)
        except BaseException as error:
            done.found += [(job, None, error) for job in sound]
            return done
        fresh = [result for outcome in outcomes for result in outcome.results if not result.repeated]
        done.versions = [self._follower.version(result) for result in sorted(fresh, key=lambda result: result.version)]
        done.found += [(job, outcome, None) for job, outcome in zip(sound, outcomes, strict=True)]
        failed = any(isinstance(outcome.error, RuleError) for outcome in outcomes)
        done.fired = failed or any(result.firings for result in fresh)
        self._note(fresh, outcomes)
        return done

    def _note(self, fresh: Sequence[Result], outcomes: Sequence[Outcome]) -> None:
        self.work.commits += len(fresh)
        self.work.groups += bool(fresh)
        self.work.refused += sum(outcome.error is not None for outcome in outcomes)
        self.work.seconds += sum(result.seconds for result in fresh)


def _without(version: PublishedVersion, ended: Mapping[Query, RederiveError]) -> PublishedVersion:
    """A version without the changes of parts whose columns are others now: its rows are of both kinds."""
    changes = {part: delta for part, delta in version.changes.items() if not isinstance(ended.get(part), Mismatch)}
    return PublishedVersion(version.number, changes)
