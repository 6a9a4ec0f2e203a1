"""Routes, classes and lanes."""

from shared.scheduling.routing import GameRouting, lane_name

ROUTING = GameRouting(
    routes={"boss": "slow", "profile:queen": "royal"},
    priorities={"boss": "critical", "profile:hermit": "background"},
)


def test_an_unlisted_type_gets_the_default_route_and_class() -> None:
    assert ROUTING.place("bee", None) == ("default", 2)


def test_a_type_has_its_own_route_and_class() -> None:
    assert ROUTING.place("boss", None) == ("slow", 0)


def test_a_profile_wins_over_its_type() -> None:
    assert ROUTING.place("boss", "queen") == ("royal", 0)
    assert ROUTING.place("boss", "hermit") == ("slow", 3)


def test_a_type_named_like_a_profile_key_is_no_profile() -> None:
    assert ROUTING.place("bee", "boss") == ("default", 2)


def test_lanes_differ_in_every_part() -> None:
    lanes = {
        lane_name("r", "g", "sha256:" + "a" * 64, "t", None),
        lane_name("r2", "g", "sha256:" + "a" * 64, "t", None),
        lane_name("r", "g2", "sha256:" + "a" * 64, "t", None),
        lane_name("r", "g", "sha256:" + "b" * 64, "t", None),
        lane_name("r", "g", "sha256:" + "a" * 64, "t2", None),
        lane_name("r", "g", "sha256:" + "a" * 64, "t", "s"),
    }
    assert len(lanes) == 6
