"""Every queue script against a plain Python reference: any interleaving of calls, time, death and expiry
gives the same replies and leaves the same state in Redis."""

from typing import Any

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from shared.store.queue import Admission, Answer, Claim, DeadlineQueue, ItemReply, QueueBounds
from tests.live_store import LiveStore
from tests.queue_reference import LOAD_UNIT, ReferenceQueue

ROUTES = ("plain", "boss")
FULL = {"plain": 6, "boss": 3}
WORKERS = ("w0", "w1", "w2")
GATEWAYS = ("g0", "g1")
LEASE_MS = 400
START_MS = 1_750_000_000_000
BOUNDS = QueueBounds(max_depth=30, max_bytes=600, lower_share=3)

pick = st.integers(0, 10_000)


class Ear:
    """The workers' side of the wake channels: one connection, a subscription per live worker."""

    def __init__(self, client: "redis.Redis[bytes]", queue: DeadlineQueue) -> None:
        self._pubsub = client.pubsub()
        self._queue = queue
        self._pubsub.subscribe("ear")  # so that the connection stays when no worker lives
        self._until("subscribe")

    def open(self, worker: str) -> None:
        self._pubsub.ssubscribe(self._queue.keys.wake(worker))
        self._until("ssubscribe")

    def shut(self, worker: str) -> None:
        self._pubsub.sunsubscribe(self._queue.keys.wake(worker))
        self._until("sunsubscribe")

    def heard(self) -> list[tuple[str, int]]:
        """What was said since the last call: worker, milliseconds."""
        self._pubsub.ping()
        messages = self._until("pong")
        return [
            (message["channel"].decode().rpartition(":")[2], int(message["data"])) for message in messages
        ]

    def close(self) -> None:
        self._pubsub.close()

    def _until(self, kind: str) -> list[dict[str, Any]]:
        """Messages before the first of this kind."""
        messages = []
        while True:
            message = self._pubsub.get_message(timeout=5)
            if message is None:
                raise AssertionError(f"no {kind} from the server")
            if message["type"] == kind:
                return messages
            if message["type"] == "smessage":
                messages.append(message)


class QueueMachine(RuleBasedStateMachine):
    store: LiveStore

    def __init__(self) -> None:
        super().__init__()
        self.client = self.store.client
        self.client.flushall()
        self.queue = DeadlineQueue(self.store.connection, 0, BOUNDS)
        self.model = ReferenceQueue(BOUNDS, ROUTES)
        self.model.now = START_MS
        self.ear = Ear(self.client, self.queue)
        self.admitted: list[Admission] = []
        self.claims: list[Claim] = []
        self.batches = 0
        self.deadlines: set[int] = set()
        self.woken: set[str] = set()  # told to claim, and have not yet
        self.let_down = False  # a sleeper without its channel: the next claim finds out
        self.answered: dict[str, int] = {}

    def teardown(self) -> None:
        self.ear.close()

    def run(self, command: Any) -> Any:
        (reply,) = self.store.trip([command])
        return reply

    @initialize(live=st.sets(st.sampled_from(WORKERS)), data=st.data(), waiting=st.integers(0, 12))
    def begin(self, live: set[str], data: st.DataObject, waiting: int) -> None:
        for worker in live:
            self.worker_lives(worker)
        self._admit([self._admission(data) for _ in range(waiting)])

    @rule(worker=st.sampled_from(WORKERS))
    def worker_lives(self, worker: str) -> None:
        if worker not in self.model.listening:
            self.ear.open(worker)
            self.model.listening.add(worker)

    @rule(worker=st.sampled_from(WORKERS))
    def worker_dies(self, worker: str) -> None:
        if worker in self.model.listening:
            self.ear.shut(worker)
            self.model.listening.discard(worker)
            self.woken.discard(worker)
            self.let_down = True

    @rule(ms=st.sampled_from([1, 1, 3, 20, 90, 450]))
    def time_passes(self, ms: int) -> None:
        self.model.now += ms

    @rule(data=st.data(), size=st.integers(1, 4))
    def admit(self, data: st.DataObject, size: int) -> None:
        admissions = [self._admission(data) for _ in range(size)]
        self._admit(admissions)

    @rule(which=pick)
    def admit_again(self, which: int) -> None:
        """A trip that was repeated."""
        if self.model.items:
            self._admit([self.model.items[sorted(self.model.items)[which % len(self.model.items)]].admission])

    def _admit(self, admissions: list[Admission]) -> None:
        expected = self.model.admit(admissions)
        reply = self.run(self.queue.admit_command(self.model.now, admissions))
        assert self.queue.parse_admit(reply) == expected
        self.admitted += [one for one, taken in zip(admissions, expected, strict=True) if taken]

    @rule(data=st.data(), worker=st.sampled_from(WORKERS), ms=st.sampled_from([0, 5, 40]))
    def flow(self, data: st.DataObject, worker: str, ms: int) -> None:
        """What happens all the time: items come, are claimed and answered."""
        self._admit([self._admission(data) for _ in range(2)])
        self.model.now += ms
        claims = len(self.claims)
        self.claim(worker, 6, 3)
        if len(self.claims) > claims:
            self.settle(0, 1.0, True, 0, False)

    def _admission(self, data: st.DataObject) -> Admission:
        route = data.draw(st.sampled_from(ROUTES), "route")
        deadline_ms = self.model.now + data.draw(st.sampled_from([10, 60, 600, 3_000, 3_000]), "within")
        while deadline_ms in self.deadlines:  # equal ones are served in no stated order
            deadline_ms += 1
        self.deadlines.add(deadline_ms)
        return Admission(
            item=f"i{len(self.deadlines)}",
            gateway=data.draw(st.sampled_from(GATEWAYS), "gateway"),
            route=route,
            priority=data.draw(st.sampled_from([0, 1, 2, 3]), "priority"),
            lane=f"{route}|{data.draw(st.sampled_from('xy'), 'lane')}",
            deadline_ms=deadline_ms,
            questions=data.draw(st.integers(1, 5), "questions"),
            full=FULL[route],
            linger_ms=data.draw(st.sampled_from([0, 5, 40]), "linger"),
            payload=b"p" * data.draw(st.sampled_from([0, 7, 60]), "size"),
        )

    @rule(
        worker=st.sampled_from(WORKERS),
        plain=st.sampled_from([0, 1, 6, 6, 6]),
        boss=st.sampled_from([0, 3, 3, 3]),
    )
    def claim(self, worker: str, plain: int, boss: int) -> None:
        self.batches += 1
        batch, routes = f"b{self.batches}", {"plain": plain, "boss": boss}
        expected = self.model.claim(worker, batch, routes, LEASE_MS)
        self.woken.discard(worker)
        self.let_down = worker not in self.model.listening
        reply = self.run(self.queue.claim_command(self.model.now, worker, batch, routes, LEASE_MS))
        assert self.queue.parse_claim(reply) == expected
        if isinstance(expected, Claim):
            self.claims.append(expected)

    @rule(
        which=pick,
        share=st.sampled_from([0.0, 0.5, 1.0, 1.0]),
        final=st.booleans(),
        stale=st.sampled_from([0, 0, 0, 0, 1]),
        stray=st.booleans(),
    )
    def settle(self, which: int, share: float, final: bool, stale: int, stray: bool) -> None:
        if not self.claims:
            return
        claim = self.claims[-1 - which % min(3, len(self.claims))]
        items = [(item.item, item.gateway) for item in claim.items]
        chosen = items[: round(share * len(items))]
        if stray and self.admitted:
            one = self.admitted[which % len(self.admitted)]
            chosen.append((one.item, one.gateway))
        answers = [
            Answer(item, gateway, f"r-{claim.batch}-{item}".encode(), b"" if which % 3 else b"log")
            for item, gateway in chosen
        ]
        expected = self.model.settle(claim.batch, claim.fence + stale, answers, final=final)
        command = self.queue.settle_command(claim.batch, claim.fence + stale, answers, final=final)
        assert self.queue.parse_settle(self.run(command)) == expected

    @rule(which=pick, stale=st.sampled_from([0, 0, 1]))
    def extend(self, which: int, stale: int) -> None:
        if not self.claims:
            return
        claim = self.claims[which % len(self.claims)]
        expected = self.model.extend(claim.batch, claim.fence + stale, LEASE_MS)
        command = self.queue.extend_command(self.model.now, claim.batch, claim.fence + stale, LEASE_MS)
        assert self.queue.parse_extend(self.run(command)) == expected

    @rule(chosen=st.lists(pick, min_size=1, max_size=4))
    def cancel(self, chosen: list[int]) -> None:
        if not self.admitted:
            return
        names = [self.admitted[which % len(self.admitted)].item for which in chosen]
        expected = self.model.cancel(names)
        assert self.queue.parse_cancel(self.run(self.queue.cancel_command(names))) == expected
        for name, verdict in zip(names, expected, strict=True):
            self.answered[name] = self.answered.get(name, 0) + int(verdict > 0)

    @rule(which=pick)
    def item_expires(self, which: int) -> None:
        if self.model.items:
            name = sorted(self.model.items)[which % len(self.model.items)]
            self.model.expire_item(name)
            assert self.client.delete(self.queue.keys.item(name)) == 1

    @rule(which=pick)
    def lane_expires(self, which: int) -> None:
        lanes = sorted(key for key, lane in self.model.lanes.items() if lane.members)
        if lanes:
            lane = self.model.lanes[lanes[which % len(lanes)]]
            for member in lane.members:
                self.client.delete(self.queue.keys.item(member.item))
            assert self.client.delete(self.queue.keys.lane(lane.priority, lane.name)) == 1
            self.model.expire_lane(lane.key)

    @invariant()
    def same_messages(self) -> None:
        assert sorted(self.ear.heard()) == sorted(self.model.told)
        self.woken |= {worker for worker, wait_ms in self.model.told if wait_ms == 0}
        self.model.told.clear()

    @invariant()
    def same_state(self) -> None:
        assert read_state(self.client, self.queue) == model_state(self.model)

    @invariant()
    def every_key_expires(self) -> None:
        names = self.client.keys("*")
        pipeline = self.client.pipeline(transaction=False)
        for name in names:
            pipeline.pttl(name)
        forever = [name for name, ttl in zip(names, pipeline.execute(), strict=True) if ttl < 0]
        assert forever == []

    @invariant()
    def one_answer_each(self) -> None:
        times = dict(self.answered)
        for entries in self.model.replies.values():
            for item, _ in entries:
                times[item] = times.get(item, 0) + 1
        assert all(count <= 1 for count in times.values())

    @invariant()
    def somebody_comes(self) -> None:
        """The sleeper rule: a lane that becomes ready meets a live worker that is up by then, if any is."""
        for route in ROUTES:
            at = self.model.first_ready(route)
            plans = [
                planned
                for worker, planned in self.model.idle[route].items()
                if worker in self.model.listening
            ]
            if at is not None and plans and not self.woken and not self.let_down:
                assert min(plans) <= max(at, self.model.now)


def read_state(client: "redis.Redis[bytes]", queue: DeadlineQueue) -> dict[str, Any]:
    """Everything that the scripts keep, in the reference's terms."""
    prefix = queue.keys.prefix
    names = sorted(name.decode() for name in client.keys("*"))

    def zsets(kind: str) -> dict[str, list[tuple[str, int]]]:
        found = {}
        for name in names:
            if name.startswith(f"{prefix}:{kind}:"):
                pairs = client.zrange(name, 0, -1, withscores=True)
                found[name.removeprefix(f"{prefix}:{kind}:")] = sorted((m.decode(), int(s)) for m, s in pairs)
        return found

    def hashes(kind: str) -> dict[str, dict[str, str]]:
        found = {}
        for name in names:
            if name.startswith(f"{prefix}:{kind}:"):
                fields = client.hgetall(name)
                found[name.removeprefix(f"{prefix}:{kind}:")] = {
                    field.decode(): value.decode() for field, value in fields.items()
                }
        return found

    replies: dict[str, list[tuple[str, bytes | str]]] = {}
    for gateway in GATEWAYS:
        reply = client.xrange(queue.keys.replies(gateway))
        entries: list[ItemReply] = queue.parse_replies(
            [[b"", [[entry, [part for pair in fields.items() for part in pair]] for entry, fields in reply]]]
        )
        if entries:
            replies[gateway] = sorted((one.item, one.reply or one.code or "") for one in entries)
    return {
        "depth": int(client.get(queue.keys.depth) or 0),
        "bytes": int(client.get(queue.keys.bytes) or 0),
        "waiting": {lane.decode(): int(load) for lane, load in client.hgetall(queue.keys.waiting).items()},
        "lanes": zsets("l"),
        "ready": zsets("ready"),
        "due": zsets("due"),
        "idle": zsets("idle"),
        "items": {name: int(fields["a"]) for name, fields in hashes("i").items()},
        "batches": {
            name: (fields.get("fence"), sorted(fields.keys() - {"fence"}))
            for name, fields in hashes("b").items()
        },
        "leases": sorted(
            (name.decode(), int(end))
            for name, end in client.zrange(queue.keys.leases, 0, -1, withscores=True)
        ),
        "turn": int(client.get(queue.keys.turn) or 0),
        "replies": replies,
        "log": [fields[b"e"] for _, fields in client.xrange(queue.keys.log)],
    }


def model_state(model: ReferenceQueue) -> dict[str, Any]:
    lanes = list(model.lanes.values())

    def by_route(kind: str) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for lane in lanes:
            score = getattr(lane, kind)
            if score is not None:
                found.setdefault(lane.route, []).append((lane.key, score))
        return {route: sorted(entries) for route, entries in found.items()}

    return {
        "depth": model.depth,
        "bytes": model.bytes,
        "waiting": {lane.key: lane.questions * LOAD_UNIT + lane.bytes for lane in lanes},
        "lanes": {
            lane.key: sorted((member.text, member.deadline) for member in lane.members)
            for lane in lanes
            if lane.members
        },
        "ready": by_route("ready"),
        "due": by_route("due"),
        "idle": {route: sorted(sleepers.items()) for route, sleepers in model.idle.items() if sleepers},
        "items": {name: item.attempts for name, item in model.items.items()},
        "batches": {
            name: (None if held.fence is None else str(held.fence), sorted(held.items))
            for name, held in model.batches.items()
        },
        "leases": sorted((name, held.lease_end) for name, held in model.batches.items()),
        "turn": model.turn,
        "replies": {gateway: sorted(entries) for gateway, entries in model.replies.items()},
        "log": model.log,
    }


def test_scripts_do_what_the_reference_does(live_store: LiveStore) -> None:
    QueueMachine.store = live_store
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=80,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
