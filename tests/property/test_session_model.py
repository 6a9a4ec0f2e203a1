"""Every script of a session against a plain Python reference: any order of openings, snapshots, reports,
decisions, context changes and expiry gives the same replies and leaves the same state in Redis."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from shared.store.keys import SessionKeys
from shared.store.sessions import SESSION_TTL_MS, SessionRecord, SessionStore
from shared.store.situations import ReportedDecision, SituationBounds, SituationStore, Snapshot
from tests.live_store import LiveStore
from tests.session_reference import ReferenceSession, make_room

SESSION = "session"
START_MS = 1_750_000_000_000
BOUNDS = SituationBounds(max_reports=3, max_entities=3, max_seen=6, max_gone=3, gone_window_ms=5_000)

entities = st.sampled_from(["e1", "e2", "e3", "e4", "e5"])
kinds = st.sampled_from(["goblin", "wolf"])
values = st.dictionaries(entities, st.binary(max_size=4), min_size=1, max_size=3)


class SessionMachine(RuleBasedStateMachine):
    store: LiveStore

    def __init__(self) -> None:
        super().__init__()
        self.client = self.store.client
        self.client.flushall()
        self.keys = SessionKeys(SESSION)
        self.sessions = SessionStore(self.store.connection)
        self.situations = SituationStore(self.store.connection, bounds=BOUNDS)
        self.model = ReferenceSession(BOUNDS)
        self.now = START_MS
        self.versions = [0]
        self.serial = 0

    def run(self, command: Any) -> Any:
        (reply,) = self.store.trip([command])
        return reply

    @initialize(there=st.sampled_from([True, True, True, False]))
    def begin(self, there: bool) -> None:
        if there:
            self.open("a", "")

    @rule(present=st.dictionaries(entities, kinds, min_size=1), entity=entities)
    def play(self, present: dict[str, str], entity: str) -> None:
        """What happens all the time: a snapshot, a decision, its report."""
        self.now += 700
        self.telemetry(0, "cave", present, 0)
        self.remember({entity: b"x"})
        self.report(self.serial % 5, entity, 9_000)

    @rule(ms=st.sampled_from([1, 700, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(
        manifest=st.sampled_from("ab"),
        engine=st.sampled_from(["", "godot"]),
        game=st.sampled_from(["the game", "the game", "another"]),
    )
    def open(self, manifest: str, engine: str, game: str = "the game") -> None:
        record = SessionRecord(
            game, "client", "local", manifest, "sha256:" + manifest, "contexts", engine, self.now
        )
        version = self.model.open(record)
        assert self.sessions.parse_open(self.run(self.sessions.open_command(SESSION, record))) == version
        assert version not in self.versions
        self.versions.append(version)

    @rule(which=st.integers(0, 2), contexts=st.sampled_from(["c1", "c2"]))
    def update_context(self, which: int, contexts: str) -> None:
        version = self.versions[-1 - which % len(self.versions)]
        expected = self.model.update_context(version, contexts)
        command = self.sessions.update_context_command(SESSION, version, contexts)
        assert self.sessions.parse_update_context(self.run(command)) == expected
        if expected is not None and expected.replaced:
            self.versions.append(expected.version)

    @rule(
        ago=st.sampled_from([0, 0, 0, 1, 800]),
        scene=st.sampled_from(["cave", "cave", "cave", "field"]),
        present=st.dictionaries(entities, kinds),
        spawned=st.integers(0, 3),
    )
    def telemetry(self, ago: int, scene: str, present: dict[str, str], spawned: int) -> None:
        for _ in range(spawned):
            self.serial += 1
            present[f"spawn{self.serial}"] = "goblin"
        snapshot = Snapshot(self.now - ago, scene, list(present.items()), f"rows{self.serial}".encode())
        expected = self.model.telemetry(snapshot)
        reply = self.run(self.situations.telemetry_command(SESSION, snapshot))
        assert self.situations.parse_telemetry(reply) == expected

    @rule(decision=st.integers(0, 4), entity=entities, within=st.sampled_from([1, 700, 9_000]))
    def report(self, decision: int, entity: str, within: int) -> None:
        self.serial += 1
        text = f'{{"n":{self.serial}}}'
        reported = ReportedDecision(f"d{decision}", self.now + within, entity, text)
        expected = self.model.report(self.now, reported)
        reply = self.run(self.situations.report_command(SESSION, self.now, reported))
        assert self.situations.parse_report(reply) == expected
        make_room(self.model.memory, self._fields(self.keys.mem), [entity], BOUNDS.max_entities)

    @rule(decisions=values)
    def remember(self, decisions: dict[str, bytes]) -> None:
        self.model.remember(decisions)
        self.run(self.situations.remember_command(SESSION, decisions))
        make_room(self.model.last, self._fields(self.keys.last), decisions, BOUNDS.max_entities)

    @rule(rows=values)
    def ask(self, rows: dict[str, bytes]) -> None:
        self.model.ask(rows)
        self.run(self.situations.asked_command(SESSION, rows))
        make_room(self.model.asked, self._fields(self.keys.asked), rows, BOUNDS.max_entities)

    @rule()
    def expire(self) -> None:
        self.client.delete(*self.keys.all)
        self.model = ReferenceSession(BOUNDS)
        self.now += SESSION_TTL_MS

    def _fields(self, key: str) -> list[str]:
        return [field.decode() for field in self.client.hkeys(key)]

    @invariant()
    def same_record(self) -> None:
        found = self.sessions.parse_read(self.run(self.sessions.read_command(SESSION)))
        version = self.sessions.parse_version(self.run(self.sessions.version_command(SESSION)))
        if self.model.record is None:
            assert found is version is None
        else:
            assert found is not None
            assert (found.version, version) == (self.model.version, self.model.version)
            assert {name: getattr(found, name) for name in found.__slots__ if name != "version"} == {
                name: getattr(self.model.record, name) for name in found.__slots__ if name != "version"
            }

    @invariant()
    def same_situation(self) -> None:
        names = ["e1", "e2", "e3", "e4", "e5"]
        replies = self.store.trip(self.situations.read_commands(SESSION, names))
        read = self.situations.parse_read(replies, 0, names)
        model = self.model
        assert read.snapshot == (model.snapshot.rows if model.snapshot is not None else None)
        assert read.seen == model.counts
        assert read.asked == model.asked
        assert read.last == model.last
        assert read.memory == {name: "\n".join(reports) for name, reports in model.memory.items()}

    @invariant()
    def same_book_keeping(self) -> None:
        client, keys, model = self.client, self.keys, self.model
        assert {tuple(m.decode().split("\n")) for m in client.smembers(keys.seen)} == model.seen
        assert {k.decode(): v.decode() for k, v in client.hgetall(keys.cur).items()} == model.current
        assert {m.decode(): int(s) for m, s in client.zrange(keys.gone, 0, -1, withscores=True)} == model.gone
        assert {m.decode(): int(s) for m, s in client.zrange(keys.used, 0, -1, withscores=True)} == model.used

    @invariant()
    def every_key_expires(self) -> None:
        assert [name for name in self.client.keys("*") if self.client.pttl(name) < 0] == []

    @invariant()
    def nobody_alive_is_uncounted(self) -> None:
        model = self.model
        if model.snapshot is not None:
            alive = list(model.current.values())
            assert all(model.counts[kind] >= alive.count(kind) for kind in set(alive))


def test_scripts_do_what_the_reference_does(live_store: LiveStore) -> None:
    SessionMachine.store = live_store
    run_state_machine_as_test(
        SessionMachine,
        settings=settings(
            max_examples=80,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
