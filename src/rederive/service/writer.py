"""The writer: the one thread that owns the database. It runs jobs in the order of their arrival.

Transactions that wait together are committed together (group commit): one sync of the journal makes all of them durable.

The order of versions is the order in which subscribers see them. The results of a job and the versions that it made go back to
the event loop in one call, versions first. So a subscriber that starts at a version receives every later version and no earlier
one, and a client that has the answer to its transaction finds the version published.
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

from rederive.commit.pending import BatchOutcome, TransactionRequest
from rederive.database import Database
from rederive.engines.protocol import Query
from rederive.errors import Busy, Closed, Mismatch, RederiveError, RuleError
from rederive.ir.rules import Program
from rederive.result import Result
from rederive.service.followed_views import FollowedViews
from rederive.service.hub import PublishedVersion
from rederive.store.journal.rules import Deliveries
from rederive.warehouse.bridge import WarehouseBridge

T = TypeVar("T")
MAX_BATCH: Final = 256  # jobs taken from the queue at once; their transactions share one sync
_END: Final = None


@dataclass(frozen=True, slots=True)
class _Job:
    """A function of the database. `then` is called in the event loop with its result, before any later version is published."""

    run: Callable[[Database, FollowedViews], Any]
    future: asyncio.Future[Any]
    then: Callable[[Any], None] | None = None
    redefines: bool = False


@dataclass(frozen=True, slots=True)
class _CommitJob:
    """Transactions. `typed` types their rows by the program at the time of the commit."""

    typed: Callable[[Database], Sequence[TransactionRequest]]
    future: asyncio.Future[BatchOutcome]


@dataclass(slots=True)
class WriterCounts:
    """How much the writer has done since the start."""

    commits: int = 0
    groups: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Finished:
    """What the thread hands back to the event loop at once."""

    versions: list[PublishedVersion] = field(default_factory=list)
    found: list[tuple[_Job | _CommitJob, Any, BaseException | None]] = field(default_factory=list)
    fired: bool = False


class Writer:
    """Takes jobs from the event loop. There it calls `publish` with each version, and `fired` when rules fired or failed."""

    def __init__(
        self, database: Database, publish: Callable[[PublishedVersion], None], fired: Callable[[], None], max_waiting: int
    ) -> None:
        self.counts = WriterCounts()
        self._db = database
        self._followed = FollowedViews(database)
        self._publish = publish
        self._fired = fired
        self._max_waiting = max_waiting
        self._queue: SimpleQueue[_Job | _CommitJob | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run_jobs, name="rederive-writer", daemon=True)
        self._ended = False
        self._job_started: float | None = None  # seconds of the monotonic clock
        self._thread.start()

    # In the event loop

    async def run(self, function: Callable[[Database, FollowedViews], T], then: Callable[[T], None] | None = None) -> T:
        """Return the result of a function of the database."""
        found: T = await self._put(_Job(function, self._loop.create_future(), then))
        return found

    async def redefine(self, run: Callable[[Database], Sequence[Result]]) -> Sequence[Result]:
        """Change the program. Return the versions that this made."""
        made: Sequence[Result] = await self._put(_Job(lambda db, _: run(db), self._loop.create_future(), redefines=True))
        return made

    async def commit(self, typed: Callable[[Database], Sequence[TransactionRequest]]) -> BatchOutcome:
        """Commit transactions, each a version of its own. They are durable when this returns."""
        outcome: BatchOutcome = await self._put(_CommitJob(typed, self._loop.create_future()))
        return outcome

    def run_later(self, function: Callable[[Database, FollowedViews], None]) -> None:
        """Queue a function of the database without waiting for it."""
        if not self._ended:
            self._queue.put(_Job(function, self._loop.create_future()))

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs and accepts jobs."""
        return self._thread.is_alive() and not self._ended

    @property
    def state(self) -> tuple[str, Exception | None]:
        """The engine's name, and why the lake is behind, if it is; read without waiting for the thread."""
        return self._db.pipeline.state.engine.name, self._db.pipeline.state.unsettled

    @property
    def program(self) -> Program:
        """The current program; read without waiting for the thread."""
        return self._db.pipeline.state.program

    @property
    def busy_seconds(self) -> float:
        """How long the thread has been running its present job, in seconds."""
        since = self._job_started
        return round(monotonic() - since, 3) if since is not None else 0.0

    @property
    def warehouse(self) -> WarehouseBridge | None:
        """The bridge to the warehouse whose views the database stores, if there is one."""
        return self._db.pipeline.state.bridge

    @property
    def deliveries(self) -> Deliveries:
        """The state of webhook delivery; read without waiting for the thread."""
        return self._db.rules.deliveries

    @property
    def waiting(self) -> int:
        """The number of jobs in the queue."""
        return self._queue.qsize()

    async def close(self) -> None:
        """Finish the jobs in the queue, and close the database."""
        self._ended = True
        # The mark is the last job, so all jobs before it are finished and answered.
        self._queue.put(_END)
        await asyncio.to_thread(self._thread.join)
        self._db.close()

    async def _put(self, job: _Job | _CommitJob) -> Any:
        if self._ended:
            raise Closed
        # Refused at once: a client that waits for an answer in a growing queue would give up and try again.
        if self._queue.qsize() >= self._max_waiting:
            raise Busy(f"{self._queue.qsize()} requests wait for the writer", hint="try again later")
        self._queue.put(job)
        return await job.future

    def _deliver(self, done: _Finished) -> None:
        # Versions first: a job of the same delivery may start a subscriber at the last of them.
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
            # The client has disconnected and its future is cancelled. The commit stays.
            if job.future.done():
                continue
            if error is not None:
                job.future.set_exception(error)
                job.future.exception()  # marks it as read: nobody awaits a job of run_later
            else:
                job.future.set_result(found)

    # In the writer's thread

    def _run_jobs(self) -> None:
        """Run jobs until the end. If a bug ends the thread, every waiting job fails: the journal has what was committed."""
        jobs: list[_Job | _CommitJob | None] = []
        try:
            while _END not in jobs:
                jobs = self._take_jobs()
                self._run_batch([job for job in jobs if job is not _END])
                self._job_started = None
        except BaseException as error:
            self._ended = True
            self._db.close()
            with suppress(Empty):
                while True:
                    jobs.append(self._queue.get_nowait())
            self._send(_Finished([], [(job, None, error) for job in jobs if job is not _END]))
            raise

    def _run_batch(self, jobs: Sequence[_Job | _CommitJob]) -> None:
        # Only neighbours are committed together: a read between two transactions sees the first and not the second.
        for writes, run in groupby(jobs, lambda job: isinstance(job, _CommitJob)):
            group = list(run)
            self._job_started = monotonic()
            if writes:
                self._send(self._commit_group([job for job in group if isinstance(job, _CommitJob)]))
            else:
                for job in group:
                    assert isinstance(job, _Job)
                    self._job_started = monotonic()
                    self._send(self._run_job(job))

    def _take_jobs(self) -> list[_Job | _CommitJob | None]:
        # It waits for one job and takes all that wait behind it. Without a timer, a single transaction is committed at once.
        jobs = [self._queue.get()]
        with suppress(Empty):
            while len(jobs) < MAX_BATCH:
                jobs.append(self._queue.get_nowait())
        return jobs

    def _send(self, done: _Finished) -> None:
        with suppress(RuntimeError):  # the event loop has ended, and no job is awaited any more
            self._loop.call_soon_threadsafe(self._deliver, done)

    def _run_job(self, job: _Job) -> _Finished:
        done = _Finished()
        try:
            found = job.run(self._db, self._followed)
            if job.redefines:
                ended = self._followed.ended_parts()
                done.versions = [_without_parts(self._followed.published_version(result), ended) for result in found]
                # After the versions: subscribers get the last change of a view before its end.
                done.versions.append(PublishedVersion(self._db.version, {}, ended))
                done.fired = any(result.firings for result in found)
            done.found.append((job, found, None))
        except BaseException as error:
            done.found.append((job, None, error))
        return done

    def _commit_group(self, jobs: Sequence[_CommitJob]) -> _Finished:
        """Commit the transactions of several requests together. A request that cannot be typed is refused by itself."""
        done, accepted, requests = _Finished(), [], []
        for job in jobs:
            try:
                requests.append(job.typed(self._db))
                accepted.append(job)
            except Exception as error:
                done.found.append((job, None, error))
        try:
            # All are durable when this returns. Nobody is answered, and no version published, before.
            outcomes = self._db.pipeline.commit_together(requests)
        except BaseException as error:
            done.found += [(job, None, error) for job in accepted]
            return done
        # A repeated idempotency key is answered with the version of its first commit, which was published then.
        committed = [result for outcome in outcomes for result in outcome.results if not result.repeated]
        done.versions = [
            self._followed.published_version(result) for result in sorted(committed, key=lambda result: result.version)
        ]
        done.found += [(job, outcome, None) for job, outcome in zip(accepted, outcomes, strict=True)]
        failed = any(isinstance(outcome.error, RuleError) for outcome in outcomes)
        done.fired = failed or any(result.firings for result in committed)
        self._count(committed, outcomes)
        return done

    def _count(self, committed: Sequence[Result], outcomes: Sequence[BatchOutcome]) -> None:
        # Only this thread writes the counts; readers may see one commit more or less.
        self.counts.commits += len(committed)
        self.counts.groups += bool(committed)
        self.counts.refused += sum(outcome.error is not None for outcome in outcomes)
        self.counts.seconds += sum(result.seconds for result in committed)


def _without_parts(version: PublishedVersion, ended: Mapping[Query, RederiveError]) -> PublishedVersion:
    """Return a version without the changes of parts whose columns it replaced: those mix rows of old and new columns."""
    changes = {part: delta for part, delta in version.changes.items() if not isinstance(ended.get(part), Mismatch)}
    return PublishedVersion(version.number, changes, passed=version.passed)
