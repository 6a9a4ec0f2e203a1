"""A claimed batch while a worker works on it: its items, their open asks and what became of each. No I/O."""

from typing import NamedTuple

import msgspec

from shared.protocol.contexts import Contexts
from shared.protocol.manifest import EntityType, Manifest
from shared.protocol.situation import Situation
from shared.scheduling.items import Ask, QueueItem
from shared.scheduling.sharing import CacheScope, Party
from workers.prompt import Criteria, ManifestTexts


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of one ask. Tokens and cost are this ask's share, every attempt counted."""

    action: str | None  # None: a fallback
    code: str | None  # its code
    confidence: float | None = None
    probabilities: tuple[float, ...] | None = None  # over the legal actions, in the manifest's order
    provider: str | None = None
    model: str | None = None
    cached: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanousd: int = 0


class Flight(NamedTuple):
    """One situation as a question: where it is in flight and where its answer is written."""

    scope: CacheScope
    game: str
    session: str  # "" in the game's scope
    digest: bytes


class Session(msgspec.Struct, eq=False):
    """One session in the batch: what its items share."""

    manifest: Manifest
    contexts: Contexts
    texts: ManifestTexts
    situation: Situation
    memory: dict[str, str]  # entity → its reports, joined by newlines
    population: str
    observed_entities: str


class Work(msgspec.Struct, eq=False):
    """One queue item. `state` is its dynamic state as JSON members: parts 4 and 5 of the model input."""

    item: QueueItem
    session: Session
    state: str
    open_asks: int
    answered: list[tuple["Pending", Outcome]] = []
    provider_us: int = 0
    settled: bool = False  # its answers are on their way, or nobody waits for them any more

    def resolve(self, pending: "Pending", outcome: Outcome) -> None:
        """Give one ask its outcome."""
        self.answered.append((pending, outcome))
        self.open_asks -= 1


class Pending(msgspec.Struct, eq=False):
    """One ask without an outcome yet. `own` is its own part of the model input, JSON members."""

    work: Work
    ask: Ask
    entity_type: EntityType
    criteria: Criteria
    own: str
    tokens: int  # of its own part and its question: what `max_input_tokens` caps
    party: Party
    flight: Flight | None  # None: its type has no cache
    spent_tokens: int = 0  # input tokens of the attempts so far
    spent_output_tokens: int = 0
    spent_nanousd: int = 0  # their cost

    @property
    def over_budget(self) -> bool:
        """Whether its own part is larger than its type allows (A2G Manifest, "Token budget")."""
        limit = self.entity_type.max_input_tokens
        return limit is not None and self.tokens > limit


class Batch(msgspec.Struct, eq=False):
    """One claim, and what its lane's route says."""

    id: str
    fence: int
    route: str
    works: list[Work] = []
    linger_us: int = 0
    holds_slot: bool = False  # a provider slot taken at the claim, not used yet
    flights: set[Flight] = set()  # questions in flight that this batch asks
    lost: bool = False  # the fence is another worker's: nothing more is answered or remembered
    closed: bool = False  # settled for good

    @property
    def deadline_ms(self) -> int:
        """The latest deadline among the items: after it nobody waits."""
        return max((work.item.deadline_ms for work in self.works), default=0)
