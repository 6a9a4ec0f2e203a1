"""Who may share an answer: the rule behind the cache, asking once, and cross-session requests. Pure.

A2G Security ("Shared-cache safety", "Session-scoped context") and the isolation rule: a session's data is
read for that session only, an answer made for a `client` session serves that session only, and a request
holds several sessions only where the provider reads each question on its own.
"""

from enum import Enum
from typing import Literal, NamedTuple

SecurityProfile = Literal["local", "server", "client"]


class Use(Enum):
    """What would be shared."""

    CACHE = "read a cached answer that the owner's question wrote"
    WAIT = "wait for the answer to the owner's question, in flight elsewhere or in the same batch"
    REQUEST = "ride in one provider request with the owner's question"


class Party(NamedTuple):
    """Who asks, or whose question it is. `texts` stands for the scope chain's and the profile's texts."""

    profile: SecurityProfile
    game: str
    session: str
    manifest: str
    texts: str


def may_share(use: Use, asker: Party, owner: Party, *, isolates_questions: bool) -> bool:
    """Whether `asker` may use what is, or was, asked for `owner`.

    `isolates_questions` is the provider's: it evaluates each question on its own against the shared state. It
    matters for REQUEST only: a cached answer is one choice under a key that names all it depends on.
    """
    if (asker.game, asker.manifest, asker.texts) != (owner.game, owner.manifest, owner.texts):
        return False
    if asker.session == owner.session:
        return True
    if use is Use.REQUEST:
        return isolates_questions
    return owner.profile != "client"


class CacheScope(Enum):
    """Where a decision is kept."""

    GAME = "game"
    SESSION = "session"


def written_scope(profile: SecurityProfile) -> CacheScope:
    """Where a session of this profile writes: the narrowest place that everyone who may share can read."""
    return CacheScope.SESSION if profile == "client" else CacheScope.GAME


def read_scopes(profile: SecurityProfile) -> tuple[CacheScope, ...]:
    """Where a session of this profile looks, first to last."""
    return (CacheScope.GAME, CacheScope.SESSION) if profile == "client" else (CacheScope.GAME,)
