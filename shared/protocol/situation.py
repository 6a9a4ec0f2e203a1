"""The situation context of one session: population, nearby, observed entities, members, parent. Pure.

A telemetry snapshot is packed once, with the JSON text of everything others may see of each entity, so that
model input is joined from ready pieces. A `Situation` answers from one unpacked snapshot and computes only
what is asked for. It knows nothing but the session it was built for (A2G Security, "Session-scoped context").
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import repeat
from math import dist, inf
from typing import NamedTuple

import msgspec

from shared.protocol.fragments import number_text, scalars_text, string_text
from shared.protocol.manifest import Manifest
from shared.protocol.messages import TelemetryRow

NEARBY_MAX = 5  # A2G Decide, "What the provider sees"
MEMBERS_MAX = 8  # A2G Decide, "Groups"

_FIRST_WINDOW = 48  # entities looked at before asking whether a nearer one is still possible: measured

Point = tuple[float, float, float]


class SnapshotRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One entity of a snapshot; the texts are parts of one JSON object, in this order."""

    id: str
    type: str
    position: Point | None  # a missing z is 0
    parent: str | None
    action: str | None  # the chosen one, as the game says
    head: str  # {"id":…,"type":…
    state: str  # ,"state":…   or nothing
    fields: str  # {…}, without a comma or name


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """One telemetry snapshot."""

    scene: str
    rows: list[SnapshotRow]


class AskedRow(NamedTuple):
    """An entity of a decide request made since the snapshot."""

    id: str
    type: str
    position: Sequence[float] | None
    parent: str | None
    fields: str  # the observation, JSON object text


class LastDecision(NamedTuple):
    """The service's latest decision for an entity."""

    type: str
    action: str
    at_ms: int


class ParentDecision(NamedTuple):
    """A parent's latest decision, as its children see it."""

    id: str
    type: str
    action: str
    label: str
    seconds_ago: float


EMPTY_SNAPSHOT = Snapshot("", [])  # before the first telemetry

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Snapshot)


def pack_snapshot(scene: str, rows: Sequence[TelemetryRow], manifest: Manifest) -> bytes:
    """Pack a snapshot for storage. Rows of types that `manifest` lacks are refused by the decoder before."""
    type_texts = {name: f',"type":{string_text(name)}' for name in manifest.entity_types}
    return _ENCODER.encode(Snapshot(scene, [_packed_row(row, type_texts[row.type]) for row in rows]))


def unpack_snapshot(data: bytes) -> Snapshot:
    """Read a packed snapshot; raises msgspec.MsgspecError for bytes that are not one."""
    return _DECODER.decode(data)


def snapshot_ids(rows: Sequence[TelemetryRow]) -> list[tuple[str, str]]:
    """Ids and types in order: what seen-sets and the dropping of memory go by."""
    return [(row.id, row.type) for row in rows]


def parent_text(parent: ParentDecision | None) -> str:
    """The parent's latest decision as JSON text; empty when there is none."""
    if parent is None:
        return ""
    return (
        f'{{"id":{string_text(parent.id)},"type":{string_text(parent.type)},'
        f'"action":{string_text(parent.action)},"label":{string_text(parent.label)},'
        f'"seconds_ago":{number_text(max(0.0, round(parent.seconds_ago, 1)))}}}'
    )


class Situation:
    """What one session's entities can know of each other, computed as it is asked for.

    `last` holds the service's latest decisions by entity id, `asked` the entities of decide requests made
    since the snapshot (the current one's included; of several rows with one id the last counts), `seen` how
    many distinct ids of each type the current scene has had. Every text is empty when there is nothing
    to say.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        manifest: Manifest,
        last: Mapping[str, LastDecision],
        asked: Sequence[AskedRow] = (),
        seen: Mapping[str, int] | None = None,
    ) -> None:
        self._rows = snapshot.rows
        self._types = manifest.entity_types
        self._last = last
        self._asked = {row.id: row for row in asked}
        self._seen = seen or {}
        self._index_by_id: dict[str, int] | None = None
        self._line: _Line | None = None
        self._tails: dict[int, str] = {}
        self._observed: str | None = None
        self._parents: set[str | None] | None = None

    def population_text(self) -> str:
        """Per type seen in the current scene: alive now, seen since it started, gone."""
        alive = Counter([row.type for row in self._rows])
        parts = []
        for name in self._types:
            living = alive[name]
            # Seen-sets are capped: never say that fewer were seen than are alive.
            seen = max(self._seen.get(name, 0), living)
            if seen:
                parts.append(f'{string_text(name)}:{{"alive":{living},"seen":{seen},"gone":{seen - living}}}')
        return "{" + ",".join(parts) + "}" if parts else ""

    def nearby_text(self, entity_id: str, entity_type: str, position: Sequence[float] | None) -> str:
        """Up to five nearest entities within the type's radius; `position` None means the snapshot's."""
        radius = self._types[entity_type].perception_radius
        if radius is None or not self._rows:
            return ""
        itself = self._index(entity_id)
        point = _point(position) or (self._rows[itself].position if itself is not None else None)
        if point is None:
            return ""
        nearest = self._positions().nearest(point, radius, itself)
        return "[" + ",".join([self._nearby_entry(*found) for found in nearest]) + "]" if nearest else ""

    def observed_entities_text(self) -> str:
        """Every observe-only entity, with counts per type of what is within its own radius."""
        if self._observed is None:
            observed = {name for name, entity_type in self._types.items() if entity_type.observe_only}
            entries = [
                self._observed_entry(index, row)
                for index, row in enumerate(self._rows)
                if row.type in observed
            ]
            self._observed = "[" + ",".join(entries) + "]" if entries else ""
        return self._observed

    def members_text(self, parent_id: str, parent_position: Sequence[float] | None = None) -> str:
        """Up to eight entities whose parent is `parent_id`; nearest first where positions are known."""
        if self._parents is None:
            self._parents = {row.parent for row in self._rows}
            self._parents.update(row.parent for row in self._asked.values())
        if parent_id not in self._parents:
            return ""  # most entities lead nobody: they cost no walk over all rows
        members = self._members(parent_id)
        if not members:
            return ""
        origin = _point(parent_position) or self._known_position(parent_id)
        if origin is not None:
            members.sort(key=lambda member: _distance(origin, member.position))
        entries = [self._member_entry(member) for member in members[:MEMBERS_MAX]]
        return "[" + ",".join(entries) + "]"

    def _index(self, entity_id: str) -> int | None:
        if self._index_by_id is None:
            self._index_by_id = {row.id: index for index, row in enumerate(self._rows)}
        return self._index_by_id.get(entity_id)

    def _positions(self) -> "_Line":
        if self._line is None:
            self._line = _Line(self._rows)
        return self._line

    def _known_position(self, entity_id: str) -> Point | None:
        asked = self._asked.get(entity_id)
        if asked is not None and asked.position is not None:
            return _point(asked.position)
        index = self._index(entity_id)
        return self._rows[index].position if index is not None else None

    def _action_text(self, entity_id: str, entity_type: str, told: str | None) -> str:
        """`,"action":…`: our own latest decision goes before what the game's telemetry says."""
        last = self._last.get(entity_id)
        action = last.action if last is not None and last.type == entity_type else told
        return f',"action":{string_text(action)}' if action is not None else ""

    def _nearby_entry(self, distance: float, index: int) -> str:
        row = self._rows[index]
        tail = self._tails.get(index)
        if tail is None:
            action = self._action_text(row.id, row.type, row.action)
            tail = self._tails[index] = f'{row.state}{action},"fields":{row.fields}}}'
        return f'{row.head},"distance":{number_text(distance)}{tail}'

    def _observed_entry(self, index: int, row: SnapshotRow) -> str:
        radius = self._types[row.type].perception_radius
        shown = f'{row.head}{row.state},"fields":{row.fields}'
        if radius is None or row.position is None:
            return shown + "}"
        within = self._positions().within(row.position, radius, index)
        counts = Counter([self._rows[found].type for found in within])
        parts = [f"{string_text(name)}:{counts[name]}" for name in self._types if counts[name]]
        return f'{shown},"nearby_counts":{{{",".join(parts)}}}}}'

    def _members(self, parent_id: str) -> "list[_Member]":
        """All known members in the snapshot's order, then as asked."""
        members = []
        for row in self._rows:
            asked = self._asked.get(row.id)
            # What a request leaves out is still as telemetry had it (A2G Decide, ".position").
            parent = row.parent if asked is None else asked.parent or row.parent
            if parent == parent_id:
                members.append(_seen_member(row, asked))
        members += [
            _Member(asked.id, asked.type, _point(asked.position), None, asked.fields)
            for asked in self._asked.values()
            if asked.parent == parent_id and self._index(asked.id) is None
        ]
        return members

    def _member_entry(self, member: "_Member") -> str:
        row = member.row
        head = _head(member.id, f',"type":{string_text(member.type)}') if row is None else row.head
        state, told = ("", None) if row is None else (row.state, row.action)
        action = self._action_text(member.id, member.type, told)
        return f'{head}{state}{action},"fields":{member.fields}}}'


class _Member(NamedTuple):
    id: str
    type: str
    position: Point | None
    row: SnapshotRow | None
    fields: str


def _seen_member(row: SnapshotRow, asked: AskedRow | None) -> _Member:
    """A member of the snapshot, with what a later request says of it."""
    if asked is None:
        return _Member(row.id, row.type, row.position, row, row.fields)
    same = row if row.type == asked.type else None  # an id may come back as something else
    return _Member(row.id, asked.type, _point(asked.position) or row.position, same, asked.fields)


class _Line:
    """The positioned rows in the order of x: whoever is near in space is near on this line."""

    def __init__(self, rows: Sequence[SnapshotRow]) -> None:
        placed = [(index, row.position) for index, row in enumerate(rows) if row.position is not None]
        placed.sort(key=_x)
        self._indices = [index for index, _ in placed]
        self._points = [point for _, point in placed]
        self._xs = [point[0] for point in self._points]

    def nearest(self, origin: Point, radius: float, itself: int | None) -> list[tuple[float, int]]:
        """Distance and index of the five nearest within `radius` (inclusive), ties by index."""
        x, xs = origin[0], self._xs
        start, end = self._span(x, radius)
        middle = bisect_left(xs, x)
        reach = _FIRST_WINDOW // 2
        while True:
            low, high = max(start, middle - reach), min(end, middle + reach)
            nearest = self._nearest_between(low, high, origin, radius, itself)
            if low == start and high == end:
                return nearest
            if len(nearest) == NEARBY_MAX:
                # Whoever is further along the line than the fifth is away cannot be nearer.
                furthest = nearest[-1][0]
                if (low == start or x - xs[low - 1] > furthest) and (high == end or xs[high] - x > furthest):
                    return nearest
            reach *= 3

    def within(self, origin: Point, radius: float, itself: int) -> list[int]:
        """Indices of all within `radius` (inclusive), in no order."""
        start, end = self._span(origin[0], radius)
        distances = map(dist, self._points[start:end], repeat(origin))
        indices = self._indices[start:end]
        return [
            index
            for distance, index in zip(distances, indices, strict=True)
            if distance <= radius and index != itself
        ]

    def _nearest_between(
        self, low: int, high: int, origin: Point, radius: float, itself: int | None
    ) -> list[tuple[float, int]]:
        """The answer if the line had only its places from `low` to `high`."""
        distances = list(map(dist, self._points[low:high], repeat(origin)))
        if high - low > NEARBY_MAX + 1:  # one more, since one may be itself
            # Sorting bare numbers first costs a third of sorting pairs.
            radius = min(radius, sorted(distances)[NEARBY_MAX])
        nearest = [
            (distance, index)
            for distance, index in zip(distances, self._indices[low:high], strict=True)
            if distance <= radius and index != itself
        ]
        nearest.sort()
        return nearest[:NEARBY_MAX]

    def _span(self, x: float, radius: float) -> tuple[int, int]:
        """The stretch of the line outside of which nobody can be within `radius`."""
        reach = radius + (abs(x) + radius) * 1e-15  # more than the rounding of x ± radius
        return bisect_left(self._xs, x - reach), bisect_right(self._xs, x + reach)


def _x(placed: tuple[int, Point]) -> float:
    return placed[1][0]


def _packed_row(row: TelemetryRow, type_text: str) -> SnapshotRow:
    action = row.decision.get("action") if row.decision else None
    return SnapshotRow(
        id=row.id,
        type=row.type,
        position=_point(row.position),
        parent=row.parent,
        action=action if isinstance(action, str) else None,
        head=_head(row.id, type_text),
        state=f',"state":{string_text(row.state)}' if row.state else "",
        fields=scalars_text(row.fields),
    )


def _head(entity_id: str, type_text: str) -> str:
    return f'{{"id":{string_text(entity_id)}{type_text}'


def _point(position: Sequence[float] | None) -> Point | None:
    if position is None:
        return None
    return (position[0], position[1], position[2] if len(position) > 2 else 0.0)


def _distance(origin: Point, position: Point | None) -> float:
    """Distance in the game's units; infinite for those without a position, which come last."""
    return inf if position is None else dist(origin, position)
