"""Keys: one slot per owner, whatever a game is called."""

import pytest

from shared.store.keys import GameKeys, QueueKeys, SessionKeys, game_tag


def slot_tag(key: str) -> str:
    """What Redis Cluster hashes: between the first brace and the next closing one."""
    return key[key.index("{") + 1 : key.index("}")]


@pytest.mark.parametrize("game", ["", "lango", "a}b", "{x}", "ünï", "s:1} {q0"])
def test_a_games_name_never_leaves_its_tag(game: str) -> None:
    keys = GameKeys(game)
    names = [keys.manifest("m"), keys.contexts("c"), keys.cache(b"\x01"), keys.flight(b"\x01")]
    assert {slot_tag(name) for name in names} == {f"g:{game_tag(game)}"}
    assert set(game_tag(game)) <= set("0123456789abcdef")


def test_a_sessions_keys_share_a_slot() -> None:
    keys = SessionKeys("abc")
    names = {*keys.all, keys.cache(b"\x01"), keys.flight(b"\x01")}
    assert len(names) == 12
    assert {slot_tag(name) for name in names} == {"s:abc"}
    single = {keys.session, keys.snap, keys.seen, keys.cur, keys.counts}
    single |= {keys.gone, keys.asked, keys.mem, keys.last, keys.used}
    assert single == set(keys.all)


def test_a_shards_keys_share_a_slot() -> None:
    keys = QueueKeys(3)
    names = {keys.depth, keys.bytes, keys.waiting, keys.leases, keys.turn, keys.log}
    names |= {keys.item("}{"), keys.lane(1, "{g:x}"), keys.batch("b"), keys.wake("w"), keys.replies("g")}
    names |= {keys.ready("r"), keys.due("r"), keys.idle("r")}
    assert len(names) == 14
    assert {slot_tag(name) for name in names} == {"q3"}


def test_digests_are_written_out_in_full() -> None:
    assert GameKeys("g").cache(bytes(range(16))).endswith(":c:000102030405060708090a0b0c0d0e0f")
