"""The game's obligations: epochs, TTL, legality, who asks when, what is reported."""

from typing import Any

import pytest

from deploy.demo.decisions import MAX_BATCH, Asked, Book, deltas
from deploy.demo.wire import DecisionReply, Report, decode_decide

SEEN = {"health": 1.0, "distance": 4, "sees": True, "doing": "native"}


class Scene:
    """A book over observations that the test changes."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, Any]] = {}
        self.world = {"daylight": 0.5, "player_health": 1.0, "sleeping": False}
        self.book = Book(
            refresh_s={"zombie": 3.0, "cow": 6.0}, observe=self.seen.get, world=lambda: dict(self.world)
        )

    def enter(self, *ids: str, kind: str = "zombie", now_s: float = 0.0) -> None:
        self.seen.update({id_: dict(SEEN) for id_ in ids})
        self.book.track(dict.fromkeys(self.seen, kind), now_s)

    def ask(self, *ids: str, now_s: float = 0.0, legal: tuple[str, ...] = ("chase", "hold")) -> Asked:
        return self.book.ask(dict.fromkeys(ids, legal), now_s)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def ai(id_: str, action: str = "chase", **more: Any) -> DecisionReply:
    return DecisionReply(id=id_, source="AI", action=action, decision_id=f"d_{id_}", ttl_ms=5000, **more)


def test_a_decision_is_in_force_until_its_ttl_ends(scene: Scene) -> None:
    scene.enter("z")
    assert scene.book.answer(scene.ask("z"), 0, [ai("z")], now_s=1.0) == ["ai"]
    assert scene.book.current("z", 5.999) == "chase"
    assert scene.book.current("z", 6.0) is None
    assert scene.book.reports == type(scene.book.reports)(
        [Report("z", "d_z", "chase", "expired", {
            "health_delta": 0.0, "distance_delta": 0, "world_daylight_delta": 0.0,
            "world_player_health_delta": 0.0, "seconds": 5.0,
        })]
    )  # fmt: skip


def test_a_cached_decision_is_a_decision(scene: Scene) -> None:
    scene.enter("z")
    assert scene.book.answer(scene.ask("z"), 0, [ai("z", cached=True)], 1.0) == ["cached"]
    assert scene.book.current("z", 1.0) == "chase"


def test_a_reply_of_an_old_epoch_is_dropped(scene: Scene) -> None:
    scene.enter("z")
    asked = scene.ask("z")
    scene.book.new_epoch()
    scene.enter("z")
    assert scene.book.answer(asked, 0, [ai("z")], 1.0) == ["stale"]
    assert scene.book.current("z", 1.0) is None
    assert scene.book.due(1.0) == ["z"]


def test_a_reply_that_names_another_epoch_is_dropped_and_the_entity_asks_again(scene: Scene) -> None:
    scene.enter("z")
    assert scene.book.answer(scene.ask("z"), 1, [ai("z")], 1.0) == ["stale"]
    assert scene.book.current("z", 1.0) is None
    assert scene.book.due(3.0) == ["z"]


def test_an_action_that_was_not_offered_is_never_executed(scene: Scene) -> None:
    scene.enter("z")
    assert scene.book.answer(scene.ask("z"), 0, [ai("z", "fly")], 1.0) == ["illegal"]
    assert scene.book.current("z", 1.0) is None


@pytest.mark.parametrize("code", ["unavailable", "busy", "refused", "invalid_choice", "budget"])
def test_a_fallback_gives_control_back_to_native_ai_at_once(scene: Scene, code: Any) -> None:
    scene.enter("z")
    scene.book.answer(scene.ask("z"), 0, [ai("z")], 1.0)
    reply = DecisionReply(id="z", source="FALLBACK", code=code, ttl_ms=5000)
    assert scene.book.answer(scene.ask("z", now_s=4.0), 0, [reply], 4.1) == [code]
    assert scene.book.current("z", 4.1) is None


def test_no_reply_at_all_means_native_ai_for_everyone_asked(scene: Scene) -> None:
    scene.enter("a", "b")
    scene.book.answer(scene.ask("a", "b"), 0, [ai("a"), ai("b")], 1.0)
    assert scene.book.no_answer(scene.ask("a", "b", now_s=4.0), 8.0) == ["no_reply", "no_reply"]
    assert (scene.book.current("a", 8.0), scene.book.current("b", 8.0)) == (None, None)


def test_each_entity_is_decided_on_its_own(scene: Scene) -> None:
    scene.enter("a", "b", "c")
    asked = scene.ask("a", "b", "c")
    del scene.seen["c"]
    scene.book.track({"a": "zombie", "b": "zombie"}, 0.5)
    assert scene.book.answer(asked, 0, [ai("c"), ai("a"), ai("nobody")], 1.0) == ["ai", "no_reply", "gone"]


def test_refresh_events_and_the_least_interval(scene: Scene) -> None:
    scene.enter("z")
    assert scene.book.due(0.0) == ["z"]
    asked = scene.ask("z", now_s=0.0)
    assert scene.book.due(60.0) == []  # still waiting for the reply
    scene.book.answer(asked, 0, [ai("z")], 0.1)
    assert (scene.book.due(2.9), scene.book.due(3.0)) == ([], ["z"])
    scene.book.notify("z", "hit")
    assert (scene.book.due(0.4), scene.book.due(0.5)) == ([], ["z"])
    asked = scene.ask("z", now_s=0.5)
    assert asked.questions[0].trigger == "hit"
    scene.book.answer(asked, 0, [ai("z")], 0.6)
    assert scene.book.due(1.1) == []  # the event has been told


def test_events_go_first_then_whoever_waited_longest_in_batches_of_sixteen(scene: Scene) -> None:
    ids = [f"z{n:02}" for n in range(20)]
    scene.enter(*ids)
    scene.book.answer(scene.ask("z00", now_s=1.0), 0, [], 1.0)
    scene.book.notify("z19", "hit")
    due = scene.book.due(10.0)
    assert len(due) == MAX_BATCH == 16
    assert due == ["z19", *ids[1:16]]


def test_an_entity_without_legal_actions_is_not_asked(scene: Scene) -> None:
    scene.enter("z")
    assert scene.ask("z", legal=()).questions == ()
    assert scene.book.due(2.9) == []
    assert scene.book.due(3.0) == ["z"]


def test_a_blocked_decision_ends_and_the_entity_asks_again_soon(scene: Scene) -> None:
    scene.enter("c", kind="cow")
    scene.book.answer(scene.ask("c", now_s=0.0), 0, [ai("c")], 0.1)
    scene.book.blocked("c", 1.0)
    assert scene.book.current("c", 1.0) is None
    assert [report.status for report in scene.book.reports] == ["blocked"]
    assert (scene.book.due(1.4), scene.book.due(1.5)) == ([], ["c"])


def test_a_replaced_decision_is_reported_with_what_changed(scene: Scene) -> None:
    scene.enter("z")
    scene.book.answer(scene.ask("z"), 0, [ai("z")], 1.0)
    scene.seen["z"] = {"health": 0.4, "distance": 1, "sees": False, "doing": "chase"}
    scene.world["player_health"] = 0.78
    scene.book.answer(scene.ask("z", now_s=4.0), 0, [ai("z", "hold")], 4.25)
    assert list(scene.book.reports) == [
        Report("z", "d_z", "chase", "executed", {
            "health_delta": -0.6, "distance_delta": -3, "world_daylight_delta": 0.0,
            "world_player_health_delta": -0.22, "seconds": 3.2,
        })
    ]  # fmt: skip
    assert scene.book.tracks["z"].ending == "chase executed 3.2s, dist -3, health -0.6, player -0.22"
    assert scene.book.current("z", 4.25) == "hold"


def test_the_last_decision_of_an_entity_that_left_is_reported(scene: Scene) -> None:
    scene.enter("z")
    scene.book.answer(scene.ask("z"), 0, [ai("z")], 1.0)
    scene.seen.clear()
    scene.book.track({}, 2.0)
    assert [(report.status, report.outcome["seconds"]) for report in scene.book.reports] == [
        ("executed", 1.0)
    ]
    assert scene.book.current("z", 2.0) is None


def test_a_new_epoch_forgets_everything_unreported(scene: Scene) -> None:
    scene.enter("z")
    scene.book.answer(scene.ask("z"), 0, [ai("z")], 1.0)
    scene.book.new_epoch()
    assert (scene.book.epoch, scene.book.tracks, list(scene.book.reports)) == (1, {}, [])


def test_deltas_are_of_numbers_only_and_leave_room_for_seconds() -> None:
    before = {"n": 1, "flag": True, "word": "x", "list": [1], "gone": 2, **{f"f{i}": 0 for i in range(20)}}
    after = {"n": 3, "flag": False, "word": "y", "list": [2], **{f"f{i}": 1 for i in range(20)}}
    found = deltas(before, after, {"w": 1}, {"w": 2})
    assert len(found) == 11
    assert found["n_delta"] == 2
    assert not {"flag_delta", "word_delta", "list_delta", "gone_delta"} & set(found)
    assert deltas({}, {}, {"w": 1}, {"w": 2.5}) == {"world_w_delta": 1.5}


@pytest.mark.parametrize(
    "reply",
    [
        b"not json",
        b'{"epoch": 1}',
        b'{"epoch": "1", "decisions": []}',
        b'{"epoch": 1, "decisions": [{"id": "z", "source": "AI", "ttl_ms": 1}]}',
        b'{"epoch": 1, "decisions": [{"id": "z", "source": "FALLBACK", "ttl_ms": 1}]}',
        b'{"epoch": 1, "decisions": [{"id": "z", "source": "FALLBACK", "code": "new", "ttl_ms": 1}]}',
        b'{"epoch": 1, "decisions": [{"id": "z", "source": "ORACLE", "ttl_ms": 1}]}',
    ],
)
def test_a_reply_that_breaks_the_protocol_is_refused(reply: bytes) -> None:
    with pytest.raises(ValueError):
        decode_decide(reply)


def test_a_reply_may_say_more_than_is_known() -> None:
    reply = decode_decide(
        b'{"a2g": "0.1", "epoch": 3, "latency_ms": 5, "decisions": [{"id": "z", "source": "AI",'
        b' "action": "hold", "label": "Stay", "confidence": null, "ttl_ms": 1000, "decision_id": "d", "x": 1}'
        b"]}"
    )
    assert reply.decisions == [
        DecisionReply(id="z", source="AI", ttl_ms=1000, action="hold", decision_id="d", confidence=None)
    ]
