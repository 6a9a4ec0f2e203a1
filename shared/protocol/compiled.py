"""A manifest as a decoder: one msgspec pass decodes and judges a decide request, then come the rules that
span several keys (A2G Decide, "Request"). Pure.

Compiling takes about a millisecond; callers keep the result by `Manifest.key` and `Contexts.hash`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, cast

import msgspec

from shared.errors import InputError
from shared.protocol.checks import fault
from shared.protocol.contexts import Contexts
from shared.protocol.decide import DecideRequest, Entity
from shared.protocol.decoding import decode, may_hold_control
from shared.protocol.fields import (
    FieldType,
    check_object,
    join_paths,
    object_struct,
    respelled,
)
from shared.protocol.limits import MAX_DECIDE_ENTITIES, MAX_EPOCH, MAX_NAME_CHARS
from shared.protocol.manifest import EntityType, Manifest
from shared.protocol.names import has_control, is_awkward

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
_BATCH = msgspec.Meta(min_length=1, max_length=MAX_DECIDE_ENTITIES)
_Position = Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=3)]

# Orders of one type's actions, as a game may list them, that are worth remembering; more are worked out anew.
_REMEMBERED_ORDERS = 4096


class _ObjectPlan:
    """How objects of one set of declared fields are decoded and judged."""

    def __init__(self, title: str, fields: Mapping[str, FieldType]) -> None:
        self.fields = fields
        self.struct = object_struct(title, fields)
        # What decoding leaves to do, by whether the body may hold control characters.
        self.checks = (check_object(fields, controls=False), check_object(fields, controls=True))

    def judge(self, value: msgspec.Struct, controls: bool, path: str) -> None:
        """Run the check for such a body on a decoded object at `path`. Raises `InputError`."""
        check = self.checks[controls]
        if check is None:
            return
        try:
            check(value)
        except InputError as exc:
            raise fault(join_paths(path, exc.path), exc.problem) from None


class _TypePlan:
    """How entities of one type are decoded and judged."""

    def __init__(self, entity_type: EntityType) -> None:
        self.entity_type = entity_type
        self.observation = _ObjectPlan("Observation", entity_type.fields)
        self._bits = {name: 1 << i for i, name in enumerate(entity_type.action_names)}
        self._legal: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = {}

    def legal(self, actions: tuple[str, ...]) -> tuple[int, tuple[str, ...]] | None:
        """The mask of `actions` and their names in the manifest's order; None when one occurs twice."""
        known = self._legal.get(actions)
        if known is not None:
            return known
        mask = reduce(or_, (self._bits[action] for action in actions))
        if mask.bit_count() != len(actions):
            return None
        found = (mask, tuple(name for name, bit in self._bits.items() if mask & bit))
        if len(self._legal) < _REMEMBERED_ORDERS:
            self._legal[actions] = found
        return found


class CompiledContexts:
    """A session's scopes and profiles, ready to judge what a request names. Chains compile when named."""

    def __init__(self, contexts: Contexts, manifest: Manifest) -> None:
        self.contexts = contexts
        self.manifest = manifest
        self.profile_types = {profile.name: profile.type for profile in contexts.profiles.values()}
        self._chains: dict[str, tuple[_ObjectPlan, Callable[[bytes], msgspec.Struct]]] = {}

    def scope_fields(self, scope: str) -> Mapping[str, FieldType]:
        """The fields of `scope_state` when `scope` is active, root first. Raises KeyError if unknown."""
        return self._chain(scope)[0].fields

    def decode_scope_state(self, scope: str | None, text: bytes, controls: bool) -> msgspec.Struct | None:
        """The state that a request sends for `scope`; `text` is its JSON, empty when absent.

        None without a scope. Raises `InputError`.
        """
        sent = text not in (b"", b"null")
        if scope is None:
            if sent:
                raise fault("scope_state", "is allowed only with a scope")
            return None
        if scope not in self.contexts.scopes:
            raise fault("scope", "no such scope")
        plan, decoder = self._chain(scope)
        try:
            state = decode(decoder, text if sent else b"{}")
        except InputError as exc:
            raise fault(join_paths("scope_state", exc.path), exc.problem) from exc
        plan.judge(state, controls, "scope_state")
        return state

    def _chain(self, scope: str) -> tuple[_ObjectPlan, Callable[[bytes], msgspec.Struct]]:
        chain = self._chains.get(scope)
        if chain is None:
            fields = {
                name: field for link in self.contexts.chain(scope) for name, field in link.fields.items()
            }
            plan = _ObjectPlan("ScopeState", fields)
            chain = self._chains[scope] = (plan, _decoder(plan.struct, _any_awkward([fields])))
        return chain


class CompiledManifest:
    """Decodes the decide requests of sessions with one manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        types = list(manifest.entity_types.values())
        self._world = _ObjectPlan("World", manifest.world_fields)
        self._plans = [_TypePlan(entity_type) for entity_type in types]
        acting = [plan for plan in self._plans if not plan.entity_type.observe_only]
        entity: Any = reduce(or_, [_entity_struct(plan, tagged=len(acting) > 1) for plan in acting])
        request = msgspec.defstruct(
            "DecideBody",
            [
                ("client_id", _Name),
                ("epoch", int | float),
                ("world", self._world.struct),
                ("scope", str | None, None),
                ("scope_state", msgspec.Raw, msgspec.Raw()),
                ("entities", Annotated[list[entity], _BATCH]),
            ],
            bases=(DecideRequest,),
            kw_only=True,
            gc=False,
        )
        awkward = _any_awkward([manifest.world_fields, *(entity_type.fields for entity_type in types)])
        self._decoder = cast("Callable[[bytes], DecideRequest]", _decoder(request, awkward))

    def decode_decide(self, body: bytes, contexts: CompiledContexts) -> DecideRequest:
        """Decode and judge the body of `POST /v1/decide`. Raises `InputError` with the first fault's path."""
        request = decode(self._decoder, body)
        controls = may_hold_control(body)
        request.epoch = _whole_epoch(request.epoch)
        self._world.judge(request.world, controls, "world")
        scope_state = bytes(cast("msgspec.Raw", request.scope_state))
        request.scope_state = contexts.decode_scope_state(request.scope, scope_state, controls)
        entities = request.entities
        if len({entity.id for entity in entities}) != len(entities):
            raise fault(_repeated_id(entities), "occurs twice")
        if controls and has_control("".join([request.client_id, *map(_own_names, entities)])):
            _refuse_control_in_names(request)
        for index, entity in enumerate(entities):
            plan = self._plans[entity.entity_type.index]
            legal = plan.legal(entity.legal_actions)
            if legal is None:
                raise fault(f"entities[{index}].legal_actions", "lists an action twice")
            entity.legal_mask, entity.legal_actions = legal
            if entity.profile is not None:
                _check_profile(entity.profile, entity, index, contexts.profile_types)
            if entity.parent == entity.id:
                raise fault(f"entities[{index}].parent", "must be another entity")
            if plan.observation.checks[controls] is not None:
                plan.observation.judge(entity.observation, controls, f"entities[{index}].observation")
        return request


def _entity_struct(plan: _TypePlan, *, tagged: bool) -> type[msgspec.Struct]:
    """The Struct of one acting type. A lone type has no union to tag, and msgspec would accept an entity
    without `type`, so there it is an ordinary required field."""
    entity_type = plan.entity_type
    actions: Any = _one_of(entity_type.action_names)
    trigger: Any = _one_of(entity_type.events) | None if entity_type.events else None
    fields: list[Any] = [
        ("id", _Name),
        ("observation", plan.observation.struct),
        (
            "legal_actions",
            Annotated[tuple[actions, ...], msgspec.Meta(min_length=1, max_length=len(entity_type.actions))],
        ),
        ("position", _Position | None, None),
        ("profile", str | None, None),
        ("parent", _Name | None, None),
        ("trigger", trigger, None),
        ("legal_mask", Any, 0),  # set after decoding, whatever a game sends under this name
    ]
    if not tagged:
        fields.append(("type", _one_of([entity_type.name])))
    return msgspec.defstruct(
        "Entity",
        fields,
        bases=(Entity,),
        namespace={"entity_type": entity_type},
        tag_field="type" if tagged else None,
        tag=entity_type.name if tagged else None,
        kw_only=True,
        gc=False,
    )


def _one_of(names: Iterable[str]) -> Any:
    """The type of a string that is one of `names`."""
    return Literal[tuple(names)]


def _decoder(struct: type[msgspec.Struct], awkward: bool) -> Callable[[bytes], Any]:
    """What decodes a body into `struct`; `awkward` names in it cost a detour over plain JSON."""
    if not awkward:
        return msgspec.json.Decoder(struct).decode

    def decode_awkward(body: bytes) -> msgspec.Struct:
        decoded = msgspec.json.decode(body)
        value = respelled(decoded)
        if issubclass(struct, DecideRequest) and isinstance(value, dict) and "scope_state" in value:
            value["scope_state"] = msgspec.Raw(msgspec.json.encode(decoded["scope_state"]))
        return msgspec.convert(value, struct)

    return decode_awkward


def _any_awkward(objects: Sequence[Mapping[str, FieldType]]) -> bool:
    return any(
        is_awkward(name) or _any_awkward([field.sub]) for fields in objects for name, field in fields.items()
    )


def _whole_epoch(epoch: int | float) -> int:
    whole = int(epoch) if isinstance(epoch, int) or epoch.is_integer() else -1
    if not 0 <= whole <= MAX_EPOCH:
        raise fault("epoch", f"must be a whole number of 0–{MAX_EPOCH}")
    return whole


def _check_profile(profile: str, entity: Entity, index: int, profile_types: Mapping[str, str | None]) -> None:
    path = f"entities[{index}].profile"
    if profile not in profile_types:
        raise fault(path, "no such profile")
    only = profile_types[profile]
    if only is not None and only != entity.entity_type.name:
        raise fault(path, "belongs to another entity type")


def _repeated_id(entities: Sequence[Entity]) -> str:
    seen: set[str] = set()
    for index, entity in enumerate(entities):
        if entity.id in seen:
            return f"entities[{index}].id"
        seen.add(entity.id)
    return "entities"


def _own_names(entity: Entity) -> str:
    return entity.id if entity.parent is None else entity.id + entity.parent


def _refuse_control_in_names(request: DecideRequest) -> None:
    named = [("client_id", request.client_id)]
    for index, entity in enumerate(request.entities):
        named.append((f"entities[{index}].id", entity.id))
        if entity.parent is not None:
            named.append((f"entities[{index}].parent", entity.parent))
    for path, name in named:
        if has_control(name):
            raise fault(path, "must hold no control characters")
