"""The whole table of who may share an answer: every profile, identity, text and isolation."""

import itertools

import pytest

from shared.scheduling.sharing import CacheScope, Party, Use, may_share, read_scopes, written_scope

PROFILES = ("local", "server", "client")
SAME = (True, False)

# (use, owner's profile, the provider isolates questions) → may another session of the same game, manifest and
# texts use it? What the asker's own profile is never matters: reading is not restricted (A2G Security,
# "Shared-cache safety").
OTHER_SESSION = {
    (Use.CACHE, "local", True): True,
    (Use.CACHE, "local", False): True,
    (Use.CACHE, "server", True): True,
    (Use.CACHE, "server", False): True,
    (Use.CACHE, "client", True): False,
    (Use.CACHE, "client", False): False,
    (Use.WAIT, "local", True): True,
    (Use.WAIT, "local", False): True,
    (Use.WAIT, "server", True): True,
    (Use.WAIT, "server", False): True,
    (Use.WAIT, "client", True): False,
    (Use.WAIT, "client", False): False,
    (Use.REQUEST, "local", True): True,
    (Use.REQUEST, "local", False): False,
    (Use.REQUEST, "server", True): True,
    (Use.REQUEST, "server", False): False,
    (Use.REQUEST, "client", True): True,
    (Use.REQUEST, "client", False): False,
}


def test_every_combination() -> None:
    cases = itertools.product(Use, PROFILES, PROFILES, SAME, SAME, SAME, SAME, SAME)
    seen = 0
    for use, asking, owning, game, session, manifest, texts, isolates in cases:
        owner = Party(owning, "g", "s", "m", "t")
        asker = Party(
            asking,
            "g" if game else "g2",
            "s" if session else "s2",
            "m" if manifest else "m2",
            "t" if texts else "t2",
        )
        expected = game and manifest and texts and (session or OTHER_SESSION[use, owning, isolates])
        assert may_share(use, asker, owner, isolates_questions=isolates) is expected, (use, asker, owner)
        seen += 1
    assert seen == 3 * 3 * 3 * 2**5


@pytest.mark.parametrize(("asking", "owning"), list(itertools.product(PROFILES, PROFILES)))
def test_the_cache_is_kept_where_exactly_those_who_may_share_look(asking: str, owning: str) -> None:
    owner = Party(owning, "g", "s", "m", "t")
    other = Party(asking, "g", "s2", "m", "t")
    found = written_scope(owning) is CacheScope.GAME and CacheScope.GAME in read_scopes(asking)
    assert found is may_share(Use.CACHE, other, owner, isolates_questions=True)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_session_finds_what_it_wrote(profile: str) -> None:
    assert written_scope(profile) in read_scopes(profile)
