"""Asking once against a plain Python reference: in any order of looks, answers, releases and expiry a
question has at most one asker, and everybody reads the same answer."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from shared.scheduling.sharing import CacheScope
from shared.store.answers import AnswerStore, Asked, Cached, Ending, Look, Wait
from shared.store.keys import GameKeys, SessionKeys
from tests.live_store import LiveStore

GAME, SESSION = "the {game}", "session"
DIGESTS = [b"\x00" * 16, b"\x01" * 16, b"\xff" * 16]

scopes = st.sampled_from(CacheScope)
askers = st.sampled_from(["w1", "w2"])
several = st.lists(st.sampled_from(DIGESTS), min_size=1, unique=True)


class AnswerMachine(RuleBasedStateMachine):
    store: LiveStore

    def __init__(self) -> None:
        super().__init__()
        self.client = self.store.client
        self.client.flushall()
        self.answers = AnswerStore(self.store.connection)
        self.cached: dict[tuple[CacheScope, bytes], bytes] = {}
        self.flights: dict[tuple[CacheScope, bytes], str] = {}

    @rule(scope=scopes, asker=askers, digests=several)
    def ask(self, scope: CacheScope, asker: str, digests: list[bytes]) -> None:
        expected: list[Look] = []
        for digest in digests:
            value = self.cached.get((scope, digest))
            if value is not None:
                expected.append(Cached(value))
            else:
                holder = self.flights.setdefault((scope, digest), asker)
                expected.append(Asked() if holder == asker else Wait())
        command = self.answers.ask_once_command(scope, GAME, SESSION, digests, asker, 60_000)
        (reply,) = self.store.trip([command])
        assert self.answers.parse_ask_once(reply) == expected

    @rule(scope=scopes, asker=askers, digests=several, value=st.binary(max_size=3))
    def answer(self, scope: CacheScope, asker: str, digests: list[bytes], value: bytes) -> None:
        """An empty value is none: the question is let go."""
        endings = [Ending(digest, value or None, 60_000) for digest in digests]
        ended = 0
        for digest in digests:
            if value:
                self.cached[scope, digest] = value
            if self.flights.get((scope, digest)) == asker:
                del self.flights[scope, digest]
                ended += 1
        command = self.answers.answer_once_command(scope, GAME, SESSION, asker, endings)
        (reply,) = self.store.trip([command])
        assert self.answers.parse_answer_once(reply) == ended

    @rule(scope=scopes, digest=st.sampled_from(DIGESTS), kind=st.sampled_from(["cached", "flight"]))
    def expire(self, scope: CacheScope, digest: bytes, kind: str) -> None:
        keys = GameKeys(GAME) if scope is CacheScope.GAME else SessionKeys(SESSION)
        if kind == "cached":
            self.cached.pop((scope, digest), None)
            self.client.delete(keys.cache(digest))
        else:
            self.flights.pop((scope, digest), None)
            self.client.delete(keys.flight(digest))

    @invariant()
    def everybody_reads_the_same(self) -> None:
        for scope in CacheScope:
            command = self.answers.cached_command(scope, GAME, SESSION, DIGESTS)
            (reply,) = self.store.trip([command])
            assert self.answers.parse_cached(reply) == [self.cached.get((scope, d)) for d in DIGESTS]

    @invariant()
    def every_key_expires(self) -> None:
        names = self.client.keys("*")
        assert len(names) == len(self.cached) + len(self.flights)
        assert [name for name in names if self.client.pttl(name) < 0] == []


def test_scripts_do_what_the_reference_does(live_store: LiveStore) -> None:
    AnswerMachine.store = live_store
    run_state_machine_as_test(
        AnswerMachine,
        settings=settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck)),
    )
