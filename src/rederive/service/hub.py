"""The subscription contract: which events each subscriber receives, in which order, and what happens to a slow subscriber.

A subscription begins with a snapshot, or with the changes that the subscriber missed, up to some version. From there on the
subscriber receives every later version that changes its views, once and in the order of versions.

A subscriber that does not take its events falls behind. Its changes are then not queued but added up to their net effect, which
is never larger than the views, and it receives them as one event when its queue is empty. A subscriber with an interval is
always behind, and catches up at the end of each interval.

Everything in this module runs in one thread, the event loop. It knows neither HTTP, nor the clock, nor the database.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final

from rederive.delta import Delta, Sign
from rederive.engines.protocol import Query
from rederive.errors import Closed, RederiveError, TooMany
from rederive.service.events import Event, EventShape, Segment, error_event, progress
from rederive.service.settings import ServiceLimits
from rederive.service.subscription_request import SubscriptionRequest
from rederive.store.position import Position

MAX_RECENT: Final = 1_000  # versions whose costs are known


@dataclass(frozen=True, slots=True)
class PassedVersion:
    """What a version cost, and how many rows entered and left each relation. `timings`: seconds, by relation."""

    number: int
    at: str
    engine: str
    strategy: str
    seconds: float
    touched: int
    changed: Mapping[str, tuple[int, int]]
    timings: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """The changes of a version in the parts of views that are followed, and the parts that it ended."""

    number: int
    changes: Mapping[Query, Delta]
    ended: Mapping[Query, RederiveError] = field(default_factory=dict)
    passed: PassedVersion | None = None


class Subscriber:
    """One subscriber and its queue. `wake` is called when there are events to take."""

    _numbers = count(1)

    def __init__(self, request: SubscriptionRequest, bounds: ServiceLimits, wake: Callable[[], None]) -> None:
        self.number = next(self._numbers)
        self.request = request
        self.version = 0  # every change up to this version is sent or in the queue
        self.behind: int | None = None  # the number of the first segment of its feed that is not in the queue
        self.is_closed = False
        self.coalesced = 0  # net changes that it received instead of single versions
        self._bounds = bounds
        self._wake = wake
        self._queue: deque[Event] = deque()
        self._bytes = 0
        self.is_quiet = False  # received nothing since the last heartbeat

    @property
    def is_behind(self) -> bool:
        """Whether its changes are added up instead of queued."""
        return self.behind is not None

    @property
    def waiting(self) -> int:
        """The number of events in its queue."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether its queue has reached the limit of events or bytes."""
        return len(self._queue) >= self._bounds.queue or self._bytes >= self._bounds.queue_bytes

    def put(self, event: Event, version: int) -> None:
        """Add an event to the queue; with it the subscriber has every change up to `version`."""
        self._queue.append(event)
        # An event that many subscribers share counts in each of their queues, so the limit is on what one client makes wait.
        self._bytes += event.size
        self.version = version
        self.is_quiet = False
        self._wake()

    def drain(self) -> list[Event]:
        """Remove and return all events of the queue."""
        events = list(self._queue)
        self._queue.clear()
        self._bytes = 0
        return events

    def close(self) -> None:
        """End the subscription; events in the queue can still be taken."""
        self.is_closed = True
        self._wake()


class Feed:
    """The subscribers with the same parts, signs and layout. Each event is made once for all of them.

    Subscribers that are behind share segments: a segment is the net change between two versions at which some subscriber fell
    behind. A subscriber's net change is the merge of its first segment and all later ones. A segment is dropped when no
    subscriber needs it.
    """

    def __init__(self, request: SubscriptionRequest, nervous: bool) -> None:
        self.shape = request.shape
        self.parts = request.parts
        self.signs = request.signs
        self.live: dict[Subscriber, None] = {}
        self.late: dict[Subscriber, None] = {}
        self._is_nervous = nervous
        self._segments: deque[Segment] = deque()
        self._first = 0  # the number of the oldest segment
        self._needed: Counter[int] = Counter()  # by segment: how many subscribers fell behind when it began
        self._is_open = False  # whether the last segment may grow
        self._encoded: dict[tuple[int, int, int, str], Event | None] = {}

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber that has every change up to the last version."""
        self.live[subscriber] = None
        if subscriber.request.every or subscriber.is_full:
            self.fall_behind(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        """Remove a subscriber and the segments that only it needs."""
        self.live.pop(subscriber, None)
        if subscriber in self.late:
            self._end_lag(subscriber)

    @property
    def is_empty(self) -> bool:
        """Whether the feed has no subscriber."""
        return not self.live and not self.late

    def publish(self, number: int, deltas: Mapping[str, Delta]) -> None:
        """Queue the change of a version, or add it up for those who are behind."""
        # Net changes end at a version, so those up to the version before are of no more use.
        self._encoded.clear()
        # A full queue is noticed before the version is queued: the version then belongs to the first segment.
        for subscriber in [subscriber for subscriber in self.live if subscriber.is_full]:
            self.fall_behind(subscriber)
        if self.late:
            self._grow(deltas)
        requested = {view: delta for view, delta in ((v, d.restrict(self.signs)) for v, d in deltas.items()) if delta}
        if requested and self.live:
            event = self.shape.change(number, requested)
            for subscriber in self.live:
                subscriber.put(event, number)

    def fall_behind(self, subscriber: Subscriber) -> None:
        """Add up the changes of the subscriber from now on, instead of queueing them."""
        del self.live[subscriber]
        self.late[subscriber] = None
        subscriber.behind = self._first + len(self._segments)
        self._needed[subscriber.behind] += 1
        # The next change starts a segment of its own: it is the first that this subscriber has not received.
        self._is_open = False

    def catch_up(self, subscriber: Subscriber, number: int, why: str) -> None:
        """Queue the net change of all versions that the subscriber has not received, up to the last version."""
        assert subscriber.behind is not None
        # Subscribers that fell behind together get the same event: it is made once.
        key = (subscriber.behind, subscriber.version, number, why)
        if key not in self._encoded:
            self._encoded[key] = self._net(subscriber, number, why)
        event = self._encoded[key]
        subscriber.coalesced += event is not None
        if event is not None:
            subscriber.put(event, number)
        subscriber.version = number
        self._end_lag(subscriber)
        self.live[subscriber] = None
        # A subscriber with an interval is always behind.
        if subscriber.request.every:
            self.fall_behind(subscriber)

    def _end_lag(self, subscriber: Subscriber) -> None:
        """Note that a subscriber is no longer behind, and drop the segments that no other subscriber needs."""
        assert subscriber.behind is not None
        del self.late[subscriber]
        self._needed[subscriber.behind] -= 1
        if not self._needed[subscriber.behind]:
            del self._needed[subscriber.behind]
            self._drop_segments()
        subscriber.behind = None

    def _grow(self, deltas: Mapping[str, Delta]) -> None:
        if not self._is_open:
            self._segments.append(Segment(self._is_nervous))
            self._is_open = True
        self._segments[-1].add(deltas)

    def _net(self, subscriber: Subscriber, number: int, why: str) -> Event | None:
        assert subscriber.behind is not None
        total = Segment(self._is_nervous)
        for segment in islice(self._segments, subscriber.behind - self._first, None):
            total.merge(segment)
        deltas = {view: delta.restrict(self.signs) for view, delta in total.deltas().items()}
        requested = {view: delta for view, delta in deltas.items() if delta}
        return self.shape.change(number, requested, subscriber.version, why) if requested else None

    def _drop_segments(self) -> None:
        # Segments are numbered; a subscriber needs its own and all later ones, so those before the least number are dropped.
        needed = min(self._needed, default=self._first + len(self._segments))
        while self._first < needed and self._segments:
            self._segments.popleft()
            self._first += 1
        if not self._segments:
            self._is_open = False


class Hub:
    """All subscriptions of a service."""

    def __init__(self, bounds: ServiceLimits, version: int = 0, *, epoch: str = "", nervous: bool = False) -> None:
        self.version = version
        self.epoch = epoch
        self.subscribers: dict[int, Subscriber] = {}
        self.recent: deque[PassedVersion] = deque(maxlen=MAX_RECENT)
        self.listeners: dict[Callable[[], None], None] = {}  # called after each version, and at the end
        self._bounds = bounds
        self._is_nervous = nervous
        self._closed = False
        self._feeds: dict[tuple[EventShape, tuple[Query, ...], frozenset[Sign]], Feed] = {}
        self._of_part: dict[Query, dict[Feed, None]] = {}
        self._intervals: dict[float, tuple[float, dict[Subscriber, None]]] = {}

    @property
    def position(self) -> Position:
        """The last published version, as clients resume from it."""
        return Position(self.version, self.epoch)

    def check_room(self) -> None:
        """Refuse a subscription beyond the limit."""
        if self._closed:
            raise Closed
        if len(self.subscribers) >= self._bounds.subscriptions:
            raise TooMany(
                f"the service already has {len(self.subscribers)} subscriptions", hint="end one, or raise bounds.subscriptions"
            )

    def attach(self, subscriber: Subscriber, events: Sequence[Event], version: int) -> None:
        """Add a subscriber. `events` bring it to `version`: the hub's version, or one that is published next."""
        self.check_room()
        # The events before the feed: a queue that they fill is noticed there, and the versions after them are coalesced.
        self.subscribers[subscriber.number] = subscriber
        self.version = max(self.version, version)
        for event in events:
            subscriber.put(event, version)
        subscriber.version = version
        feed = self._feed(subscriber.request)
        feed.add(subscriber)
        if every := subscriber.request.every:
            self._intervals.setdefault(every, (0.0, {}))[1][subscriber] = None

    def detach(self, subscriber: Subscriber) -> None:
        """Remove a subscriber; removing it twice has no further effect."""
        if self.subscribers.pop(subscriber.number, None) is None:
            return
        subscriber.close()
        feed = self._feed(subscriber.request)
        feed.remove(subscriber)
        if feed.is_empty:
            del self._feeds[_key(subscriber.request)]
            for part in feed.parts:
                del self._of_part[part][feed]
                if not self._of_part[part]:
                    del self._of_part[part]
        if every := subscriber.request.every:
            _, subscribers = self._intervals[every]
            del subscribers[subscriber]
            if not subscribers:
                del self._intervals[every]

    def publish(self, version: PublishedVersion) -> None:
        """Send a durable version to the feeds whose parts it changed; other feeds are not looked at."""
        by_feed: dict[Feed, dict[str, Delta]] = {}
        for part, delta in version.changes.items():
            for feed in self._of_part.get(part, ()):
                by_feed.setdefault(feed, {})[part.view] = delta
        for feed, deltas in by_feed.items():
            feed.publish(version.number, deltas)
        self.version = version.number
        if version.passed is not None:
            self.recent.append(version.passed)
            for listener in list(self.listeners):
                listener()
        # The last change of a part comes before its end.
        for part, error in version.ended.items():
            for feed in list(self._of_part.get(part, ())):
                self._end(feed, error)

    def take(self, subscriber: Subscriber) -> list[Event]:
        """Return the events to send now: the queue or, when it is empty, the net change of a subscriber that is behind."""
        events = subscriber.drain()
        if not events and subscriber.behind is not None and not subscriber.request.every and not subscriber.is_closed:
            self._feed(subscriber.request).catch_up(subscriber, self.version, "slow")
            events = subscriber.drain()
        return events

    def send_heartbeat(self) -> None:
        """Queue a progress event for every subscriber that received nothing since the last heartbeat."""
        event = progress(self.position)
        for subscriber in self.subscribers.values():
            # A subscriber with waiting or coalesced changes does not have every
            # change up to the present version, so no progress is claimed for it.
            if subscriber.is_quiet and not subscriber.waiting and subscriber.behind is None:
                subscriber.put(event, self.version)
            subscriber.is_quiet = True

    def end_intervals(self, now: float) -> None:
        """Queue the net change for the subscribers whose interval ends. Intervals of one length end together."""
        for every, (due, subscribers) in list(self._intervals.items()):
            if now >= due:
                # A late timer skips the intervals that it missed; they share one net change.
                self._intervals[every] = (now + every if due + every <= now else due + every, subscribers)
                for subscriber in subscribers if due else ():
                    if not subscriber.is_full:
                        self._end_interval(subscriber)

    def _end_interval(self, subscriber: Subscriber) -> None:
        self._feed(subscriber.request).catch_up(subscriber, self.version, "every")
        if subscriber.is_quiet and not subscriber.waiting:
            subscriber.put(progress(self.position), self.version)

    def close(self) -> None:
        """End all subscriptions; their clients can resume later."""
        self._closed = True
        for subscriber in list(self.subscribers.values()):
            self._finish(subscriber, Closed())
        for listener in list(self.listeners):
            listener()

    @property
    def is_closed(self) -> bool:
        """Whether all subscriptions have ended."""
        return self._closed

    def _end(self, feed: Feed, error: RederiveError) -> None:
        for subscriber in [*feed.live, *feed.late]:
            # The net change goes first: the subscriber has everything up to the version that ends its view.
            if subscriber.behind is not None:
                feed.catch_up(subscriber, self.version, "slow")
            self._finish(subscriber, error)

    def _finish(self, subscriber: Subscriber, error: RederiveError) -> None:
        subscriber.put(error_event("problem", self.version, error), self.version)
        self.detach(subscriber)

    def _feed(self, request: SubscriptionRequest) -> Feed:
        key = _key(request)
        if key not in self._feeds:
            self._feeds[key] = feed = Feed(request, self._is_nervous)
            for part in request.parts:
                self._of_part.setdefault(part, {})[feed] = None
        return self._feeds[key]


def _key(request: SubscriptionRequest) -> tuple[EventShape, tuple[Query, ...], frozenset[Sign]]:
    return request.shape, request.parts, request.signs
