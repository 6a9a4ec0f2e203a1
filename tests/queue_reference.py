"""The deadline queue in plain Python, to hold the scripts against: same calls, same replies, same state.

It is written for being read: lists are searched, nothing is indexed. Deadlines of a run are distinct.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.store.queue import Admission, Answer, Cancelled, Claim, ClaimedItem, QueueBounds, Sleep

CLASS_SPAN = 2**42
LOAD_UNIT = 2**32
LATE_MS = 100


@dataclass
class Member:
    """A waiting item as its lane knows it."""

    item: str
    deadline: int
    questions: int
    size: int
    ready_at: int
    full: int

    @property
    def text(self) -> str:
        return f"{self.questions}|{self.size}|{self.ready_at}|{self.full}|{self.item}"


@dataclass
class Lane:
    """Waiting items; `lost_*` is what is still counted of items that expired together with the lane's key."""

    route: str
    priority: int
    name: str
    members: list[Member] = field(default_factory=list)
    lost_questions: int = 0
    lost_bytes: int = 0
    ready: int | None = None  # its score among the ready lanes
    due: int | None = None  # when it becomes one

    @property
    def key(self) -> str:
        return f"{self.priority}:{self.name}"

    @property
    def questions(self) -> int:
        return self.lost_questions + sum(member.questions for member in self.members)

    @property
    def bytes(self) -> int:
        return self.lost_bytes + sum(member.size for member in self.members)

    @property
    def earliest(self) -> int:
        return min((member.deadline for member in self.members), default=0)

    def score(self) -> int:
        return self.priority * CLASS_SPAN + self.earliest


@dataclass
class Item:
    """An item whose key exists: nobody has answered it yet."""

    admission: Admission
    member: Member
    attempts: int = 0


@dataclass
class Batch:
    """A claimed batch."""

    fence: int | None
    lease_end: int
    items: set[str]


class ReferenceQueue:
    """What the scripts must do, step by step."""

    def __init__(self, bounds: QueueBounds, routes: Sequence[str]) -> None:
        self.bounds = bounds
        self.routes = routes
        self.now = 0
        self.items: dict[str, Item] = {}
        self.lanes: dict[str, Lane] = {}
        self.batches: dict[str, Batch] = {}
        self.idle: dict[str, dict[str, int]] = {route: {} for route in routes}
        self.listening: set[str] = set()
        self.told: list[tuple[str, int]] = []  # wake-ups of this step: worker, milliseconds
        self.replies: dict[str, list[tuple[str, bytes | str]]] = {}
        self.log: list[bytes] = []
        self.turn = 0

    @property
    def depth(self) -> int:
        return sum(lane.questions for lane in self.lanes.values())

    @property
    def bytes(self) -> int:
        return sum(lane.bytes for lane in self.lanes.values())

    def admit(self, admissions: Sequence[Admission]) -> list[bool]:
        results: list[bool] = []
        wakes: dict[str, int] = {}
        for one in admissions:
            if one.item in self.items:
                results.append(True)
                continue
            fits = self.depth + one.questions <= self.bounds.max_depth
            fits = fits and self.bytes + len(one.payload) <= self.bounds.max_bytes
            results.append(fits)
            if fits:
                at = self._insert(one)
                wakes[one.route] = min(wakes.get(one.route, at), at)
        for route, at in wakes.items():
            self._wake(route, at)
        return results

    def _insert(self, one: Admission) -> int:
        linger = max(0, min(one.linger_ms, (one.deadline_ms - self.now) // 4))
        member = Member(
            one.item, one.deadline_ms, one.questions, len(one.payload), self.now + linger, one.full
        )
        self.items[one.item] = Item(one, member)
        key = f"{one.priority}:{one.lane}"
        lane = self.lanes.setdefault(key, Lane(one.route, one.priority, one.lane))
        lane.members.append(member)
        score = one.priority * CLASS_SPAN + one.deadline_ms
        if lane.questions >= one.full or lane.ready is not None:
            lane.ready = score if lane.ready is None else min(lane.ready, score)
            lane.due = None
            return self.now
        lane.due = member.ready_at if lane.due is None else min(lane.due, member.ready_at)
        return member.ready_at

    def _place(self, lane: Lane) -> None:
        if not lane.members:
            del self.lanes[lane.key]
        elif lane.questions >= min(lane.members, key=lambda member: member.deadline).full:
            lane.ready, lane.due = lane.score(), None
        else:
            lane.ready, lane.due = None, min(member.ready_at for member in lane.members)

    def _expected(self, route: str, at: int) -> bool:
        sleepers = self.idle[route]
        for worker, planned in sorted(sleepers.items(), key=lambda pair: (pair[1], pair[0])):
            if planned > at:
                return False
            if planned >= self.now - LATE_MS and worker in self.listening:
                return True
            del sleepers[worker]
        return False

    def _wake(self, route: str, at: int) -> None:
        if self._expected(route, at):
            return
        sleepers = self.idle[route]
        for worker, _ in sorted(sleepers.items(), key=lambda pair: (pair[1], pair[0])):
            if worker not in self.listening:
                del sleepers[worker]
                continue
            self.told.append((worker, max(0, at - self.now)))
            if at > self.now:
                sleepers[worker] = at
            else:
                del sleepers[worker]
            return

    def claim(self, worker: str, batch: str, routes: Mapping[str, int], lease_ms: int) -> Claim | Sleep:
        for route in routes:
            self.idle[route].pop(worker, None)
        self._take_over()
        for lane in self.lanes.values():
            if lane.due is not None and lane.due <= self.now:
                lane.ready, lane.due = lane.score(), None
        turn = self.turn + 1
        lowest = None
        if self.bounds.lower_share and turn % self.bounds.lower_share == 0:
            lowest = 3 - turn // self.bounds.lower_share % 3
        while (lane := self._pick(routes, lowest)) is not None:
            taken = self._take(lane, routes[lane.route])
            if not taken:
                continue
            for route in routes:
                at = self.first_ready(route)
                if at is not None:
                    self._wake(route, at)
            self.turn = turn
            self.batches[batch] = Batch(turn, self.now + lease_ms, {item.item for item in taken})
            return Claim(batch, lane.name, lane.priority, turn, lane.route, taken)  # type: ignore[arg-type]
        return self._sleep(worker, routes)

    def _take_over(self) -> None:
        for batch, held in sorted(self.batches.items(), key=lambda pair: (pair[1].lease_end, pair[0])):
            if held.lease_end > self.now:
                continue
            del self.batches[batch]
            for name in held.items & self.items.keys():
                item = self.items[name]
                item.attempts += 1
                late = item.member.deadline - self.now < self.bounds.min_remaining_ms
                if late or item.attempts >= self.bounds.max_attempts:
                    self._drop(name, "unavailable")
                    continue
                one = item.admission
                lane = self.lanes.setdefault(
                    f"{one.priority}:{one.lane}", Lane(one.route, one.priority, one.lane)
                )
                lane.members.append(item.member)
                self._place(lane)

    def _drop(self, name: str, code: str) -> None:
        item = self.items.pop(name, None)
        if item is not None:
            self.replies.setdefault(item.admission.gateway, []).append((name, code))

    def _pick(self, routes: Mapping[str, int], lowest: int | None) -> Lane | None:
        order = list(routes)
        ready = [
            (lane.ready, order.index(lane.route), lane.key, lane)
            for lane in self.lanes.values()
            if lane.ready is not None and routes[lane.route] > 0
        ]
        if lowest is not None:
            below = [entry for entry in ready if entry[3].priority <= lowest]
            if below:
                top = max(entry[3].priority for entry in below)
                ready = [entry for entry in below if entry[3].priority == top]
        return min(ready)[3] if ready else None

    def _take(self, lane: Lane, cap: int) -> list[ClaimedItem]:
        taken: list[ClaimedItem] = []
        questions = 0
        for member in sorted(lane.members, key=lambda one: one.deadline)[:cap]:
            item = self.items.get(member.item)
            if member.deadline - self.now < self.bounds.min_remaining_ms:
                self._drop(member.item, "busy")
            elif questions and questions + member.questions > cap:
                break
            elif item is not None:
                questions += member.questions
                one = item.admission
                taken.append(ClaimedItem(one.item, one.gateway, item.attempts, one.deadline_ms, one.payload))
            lane.members.remove(member)
        self._place(lane)
        return taken

    def first_ready(self, route: str) -> int | None:
        lanes = [lane for lane in self.lanes.values() if lane.route == route]
        if any(lane.ready is not None for lane in lanes):
            return self.now
        return min((lane.due for lane in lanes if lane.due is not None), default=None)

    def _sleep(self, worker: str, routes: Mapping[str, int]) -> Sleep:
        plan = self.now + self.bounds.max_sleep_ms
        for route, cap in routes.items():
            at = self.first_ready(route)
            if at is None:
                continue
            if cap == 0:
                self._wake(route, at)
            elif at < plan and not self._expected(route, at):
                plan = at
        plan = min([plan, *(held.lease_end for held in self.batches.values())])
        for route, cap in routes.items():
            if cap:
                self.idle[route][worker] = plan
        return Sleep(max(0, plan - self.now))

    def settle(self, batch: str, fence: int, answers: Sequence[Answer], *, final: bool) -> list[bool] | None:
        held = self.batches.get(batch)
        if held is None or held.fence != fence:
            return None
        flags: list[bool] = []
        for answer in answers:
            answered = answer.item in held.items and answer.item in self.items
            flags.append(answered)
            held.items.discard(answer.item)
            if answered:
                del self.items[answer.item]
                self.replies.setdefault(answer.gateway, []).append((answer.item, answer.reply))
                if answer.log:
                    self.log.append(answer.log)
        if final and held.items:
            held.fence, held.lease_end = None, 0
        elif final:
            del self.batches[batch]
        return flags

    def extend(self, batch: str, fence: int, lease_ms: int) -> bool:
        held = self.batches.get(batch)
        if held is None or held.fence != fence:
            return False
        held.lease_end = self.now + lease_ms
        return True

    def cancel(self, names: Sequence[str]) -> list[Cancelled]:
        verdicts: list[Cancelled] = []
        touched: dict[str, Lane] = {}
        for name in names:
            item = self.items.pop(name, None)
            if item is None:
                verdicts.append(Cancelled.GONE)
                continue
            lane = self.lanes.get(f"{item.admission.priority}:{item.admission.lane}")
            if lane is None or item.member not in lane.members:
                verdicts.append(Cancelled.CLAIMED)
                continue
            lane.members.remove(item.member)
            touched[lane.key] = lane
            verdicts.append(Cancelled.QUEUED)
        for lane in touched.values():
            self._place(lane)
        return verdicts

    def expire_item(self, name: str) -> None:
        """The item's key is gone; its lane or batch still lists it."""
        del self.items[name]

    def expire_lane(self, key: str) -> None:
        """The lane's key is gone, and with it all its items' keys, which live shorter."""
        lane = self.lanes[key]
        lane.lost_questions, lane.lost_bytes = lane.questions, lane.bytes
        for member in lane.members:
            self.items.pop(member.item, None)
        lane.members = []
