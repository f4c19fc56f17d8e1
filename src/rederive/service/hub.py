"""The subscription contract: who is told what, in which order, and what becomes of those who cannot keep up.

A subscription begins with a snapshot, or with what it missed, up to some version. From there on it is told every version that
concerns it, in order. A client that does not take its events falls behind: what comes then is not queued but added up to the net
change since, which is no larger than the data, and told as one event when the client is ready. A client with an interval is
always behind, and caught up at each of its ends.

Everything here runs in one thread, and nothing here knows of HTTP, of time or of the database.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from rederive.delta import Sign
from rederive.engines.protocol import Query
from rederive.errors import Closed, RederiveError, TooMany
from rederive.service.events import Delta, Event, EventShape, Segment, merge, progress, told
from rederive.service.settings import ServiceLimits
from rederive.store.position import Position


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """What a subscriber wants: parts of views, together or one alone; which signs; a change each interval of `every` seconds."""

    parts: tuple[Query, ...]
    signs: frozenset[Sign]
    together: bool = False
    every: float = 0.0
    owner: str = ""
    epoch: str = ""

    @property
    def shape(self) -> EventShape:
        return EventShape(tuple(part.view for part in self.parts), self.together, self.epoch)


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """What a version did to the parts that somebody follows, and the parts that it put an end to."""

    number: int
    changes: Mapping[Query, Delta]
    ended: Mapping[Query, RederiveError] = field(default_factory=dict)


class Subscriber:
    """One subscriber. `wake` is called when there is something to take."""

    _numbers = count(1)

    def __init__(self, wish: SubscriptionRequest, bounds: ServiceLimits, wake: Callable[[], None]) -> None:
        self.number = next(self._numbers)
        self.wish = wish
        self.version = 0  # everything up to here is told, or in the queue
        self.behind: int | None = None  # the first segment of its feed that is not in the queue
        self.closed = False
        self.coalesced = 0
        self._bounds = bounds
        self._wake = wake
        self._queue: deque[Event] = deque()
        self._bytes = 0
        self.quiet = False  # nothing was told since the last beat

    @property
    def late(self) -> bool:
        """Whether what it is not told is being added up."""
        return self.behind is not None

    @property
    def waiting(self) -> int:
        """How many events are in its queue."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) >= self._bounds.queue or self._bytes >= self._bounds.queue_bytes

    def put(self, event: Event, version: int) -> None:
        self._queue.append(event)
        self._bytes += event.size
        self.version = version
        self.quiet = False
        self._wake()

    def taken(self) -> list[Event]:
        events = list(self._queue)
        self._queue.clear()
        self._bytes = 0
        return events

    def close(self) -> None:
        self.closed = True
        self._wake()


class Feed:
    """The clients that want the same parts and signs: what one of them is told as it happens, all of them are."""

    def __init__(self, wish: SubscriptionRequest, nervous: bool) -> None:
        self.shape = wish.shape
        self.parts = wish.parts
        self.signs = wish.signs
        self.live: dict[Subscriber, None] = {}
        self.late: dict[Subscriber, None] = {}
        self._nervous = nervous
        self._segments: deque[Segment] = deque()
        self._first = 0  # the number of the first segment
        self._marks: Counter[int] = Counter()  # how many clients are behind since each segment
        self._open = False  # whether the last segment may grow
        self._encoded: dict[tuple[int, int, int, str], Event | None] = {}

    def add(self, client: Subscriber) -> None:
        self.live[client] = None
        if client.wish.every or client.full:
            self.fall_behind(client)

    def remove(self, client: Subscriber) -> None:
        self.live.pop(client, None)
        if client in self.late:
            self._is_up(client)

    @property
    def empty(self) -> bool:
        return not self.live and not self.late

    def publish(self, number: int, deltas: Mapping[str, Delta]) -> None:
        """A version that concerns these clients."""
        self._encoded.clear()
        for client in [client for client in self.live if client.full]:
            self.fall_behind(client)
        if self.late:
            self._grow(deltas)
        wanted = {view: delta for view, delta in ((v, d.only(self.signs)) for v, d in deltas.items()) if delta}
        if wanted and self.live:
            event = self.shape.change(number, wanted)
            for client in self.live:
                client.put(event, number)

    def fall_behind(self, client: Subscriber) -> None:
        """From now on the client's changes are added up."""
        del self.live[client]
        self.late[client] = None
        client.behind = self._first + len(self._segments)
        self._marks[client.behind] += 1
        self._open = False

    def catch_up(self, client: Subscriber, number: int, why: str) -> None:
        """Tell a client the net change of all that it was not told, up to the last version."""
        assert client.behind is not None
        key = (client.behind, client.version, number, why)
        if key not in self._encoded:
            self._encoded[key] = self._net(client, number, why)
        event = self._encoded[key]
        client.coalesced += event is not None
        if event is not None:
            client.put(event, number)
        client.version = number
        self._is_up(client)
        self.live[client] = None
        if client.wish.every:
            self.fall_behind(client)

    def _is_up(self, client: Subscriber) -> None:
        """A client is behind no more, and what nobody else is behind of is let go."""
        assert client.behind is not None
        del self.late[client]
        self._marks[client.behind] -= 1
        if not self._marks[client.behind]:
            del self._marks[client.behind]
            self._forget()
        client.behind = None

    def _grow(self, deltas: Mapping[str, Delta]) -> None:
        if not self._open:
            self._segments.append(Segment())
            self._open = True
        self._segments[-1].add(deltas, nervous=self._nervous)

    def _net(self, client: Subscriber, number: int, why: str) -> Event | None:
        assert client.behind is not None
        total = Segment()
        for segment in islice(self._segments, client.behind - self._first, None):
            for view, moves in segment.moves.items():
                merge(total.moves.setdefault(view, {}), moves, nervous=self._nervous)
        deltas = {view: Delta.net(moves).only(self.signs) for view, moves in total.moves.items()}
        wanted = {view: delta for view, delta in deltas.items() if delta}
        return self.shape.change(number, wanted, client.version, why) if wanted else None

    def _forget(self) -> None:
        needed = min(self._marks, default=self._first + len(self._segments))
        while self._first < needed and self._segments:
            self._segments.popleft()
            self._first += 1
        if not self._segments:
            self._open = False


class Hub:
    """All subscriptions of a service."""

    def __init__(self, bounds: ServiceLimits, version: int = 0, *, epoch: str = "", nervous: bool = False) -> None:
        self.version = version
        self.epoch = epoch
        self.clients: dict[int, Subscriber] = {}
        self._bounds = bounds
        self._nervous = nervous
        self._closed = False
        self._feeds: dict[tuple[EventShape, tuple[Query, ...], frozenset[Sign]], Feed] = {}
        self._of_part: dict[Query, dict[Feed, None]] = {}
        self._intervals: dict[float, tuple[float, dict[Subscriber, None]]] = {}

    @property
    def position(self) -> Position:
        return Position(self.version, self.epoch)

    def check_room(self) -> None:
        """Refuse one more subscription than there may be."""
        if self._closed:
            raise Closed
        if len(self.clients) >= self._bounds.subscriptions:
            raise TooMany(f"there are {len(self.clients)} subscriptions already", hint="end one, or raise bounds.subscriptions")

    def attach(self, client: Subscriber, events: Sequence[Event], version: int) -> None:
        """Begin: `events` bring the client to a version, which is the hub's own or one that it is about to hear of."""
        self.check_room()
        self.clients[client.number] = client
        self.version = max(self.version, version)
        for event in events:
            client.put(event, version)
        client.version = version
        feed = self._feed(client.wish)
        feed.add(client)
        if every := client.wish.every:
            self._intervals.setdefault(every, (0.0, {}))[1][client] = None

    def detach(self, client: Subscriber) -> None:
        """End; whoever ends twice has ended."""
        if self.clients.pop(client.number, None) is None:
            return
        client.close()
        feed = self._feed(client.wish)
        feed.remove(client)
        if feed.empty:
            del self._feeds[_key(client.wish)]
            for part in feed.parts:
                del self._of_part[part][feed]
                if not self._of_part[part]:
                    del self._of_part[part]
        if every := client.wish.every:
            _, clients = self._intervals[every]
            del clients[client]
            if not clients:
                del self._intervals[every]

    def publish(self, version: PublishedVersion) -> None:
        """A version is on disk. Only the feeds that it concerns are looked at."""
        concerned: dict[Feed, dict[str, Delta]] = {}
        for part, delta in version.changes.items():
            for feed in self._of_part.get(part, ()):
                concerned.setdefault(feed, {})[part.view] = delta
        for feed, deltas in concerned.items():
            feed.publish(version.number, deltas)
        self.version = version.number
        for part, error in version.ended.items():
            for feed in list(self._of_part.get(part, ())):
                self._end(feed, error)

    def take(self, client: Subscriber) -> list[Event]:
        """The events to send now. Whoever takes the last one of a full queue is told what was added up since."""
        events = client.taken()
        if not events and client.behind is not None and not client.wish.every and not client.closed:
            self._feed(client.wish).catch_up(client, self.version, "slow")
            events = client.taken()
        return events

    def beat(self) -> None:
        """Mark progress for all who were told nothing since the last beat."""
        event = progress(self.position)
        for client in self.clients.values():
            if client.quiet and not client.waiting and client.behind is None:
                client.put(event, self.version)
            client.quiet = True

    def tick(self, now: float) -> None:
        """Tell the clients whose interval has ended; intervals of one length end together."""
        for every, (due, clients) in list(self._intervals.items()):
            if now >= due:
                self._intervals[every] = (now + every if due + every <= now else due + every, clients)
                for client in clients if due else ():
                    if not client.full:
                        self._caught_up(client)

    def _caught_up(self, client: Subscriber) -> None:
        self._feed(client.wish).catch_up(client, self.version, "every")
        if client.quiet and not client.waiting:
            client.put(progress(self.position), self.version)

    def close(self) -> None:
        """End all subscriptions; they can resume elsewhere, or later."""
        self._closed = True
        for client in list(self.clients.values()):
            self._finish(client, Closed())

    def _end(self, feed: Feed, error: RederiveError) -> None:
        for client in [*feed.live, *feed.late]:
            if client.behind is not None:
                feed.catch_up(client, self.version, "slow")
            self._finish(client, error)

    def _finish(self, client: Subscriber, error: RederiveError) -> None:
        client.put(told("problem", self.version, error), self.version)
        self.detach(client)

    def _feed(self, wish: SubscriptionRequest) -> Feed:
        key = _key(wish)
        if key not in self._feeds:
            self._feeds[key] = feed = Feed(wish, self._nervous)
            for part in wish.parts:
                self._of_part.setdefault(part, {})[feed] = None
        return self._feeds[key]


def _key(wish: SubscriptionRequest) -> tuple[EventShape, tuple[Query, ...], frozenset[Sign]]:
    return wish.shape, wish.parts, wish.signs
