"""A compiled manifest accepts exactly what the rules say: held against a second, slow writing of them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import InputError
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.decide import DecideRequest
from shared.protocol.fields import REGISTRY
from shared.protocol.limits import MAX_ERROR_CHARS
from shared.protocol.manifest import ParsedManifest, load_manifest, parse_manifest
from shared.protocol.names import has_control, shown
from tests import reference_validator
from tests.strategies import (
    FIELD_DECLARATIONS,
    FIELD_VALUES,
    NAME_ALPHABET,
    decide_requests,
    json_values,
    manifests,
)

# What is easily mistaken for something else.
NASTY = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        1.0,
        2.5,
        -1,
        "",
        "1",
        "a",
        "x\ny",
        "x" * 81,
        "x" * 129,
        [],
        {},
        [1, 2],
        [1, 2, 3],
    ]
)


def decode(parsed: ParsedManifest, request: Any, ascii_only: bool = True) -> DecideRequest:
    body = json.dumps(request, ensure_ascii=ascii_only).encode()
    contexts = CompiledContexts(parsed.contexts, parsed.manifest)
    return CompiledManifest(parsed.manifest).decode_decide(body, contexts)


def nodes(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value inside a JSON value."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(found for key, child in children for found in nodes(child, (*path, key)))]


def mutated(draw: st.DrawFn, value: Any) -> Any:
    """`value` with one thing removed, replaced, repeated or added."""
    path = draw(st.sampled_from(nodes(value)[1:]))
    copy = json.loads(json.dumps(value))
    holder = copy
    for step in path[:-1]:
        holder = holder[step]
    operation = draw(st.sampled_from(["remove", "replace", "replace", "add"]))
    if operation == "remove":
        del holder[path[-1]]
    elif operation == "replace":
        holder[path[-1]] = draw(NASTY | json_values | st.sampled_from([holder[key] for key in keys(holder)]))
    elif isinstance(holder, list):
        holder.append(draw(NASTY | st.just(holder[path[-1]])))
    else:
        holder[draw(st.text(NAME_ALPHABET + "\x80\x81", min_size=1, max_size=8))] = draw(NASTY)
    return copy


def keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def test_every_field_type_has_its_strategies() -> None:
    assert set(FIELD_DECLARATIONS) == set(REGISTRY)
    assert set(FIELD_VALUES) == set(REGISTRY)


@given(st.data(), st.booleans())
def test_a_valid_request_is_accepted_as_sent(data: st.DataObject, ascii_only: bool) -> None:
    raw = data.draw(manifests())
    parsed = parse_manifest(raw)
    request = data.draw(decide_requests(parsed.manifest, parsed.contexts))
    assert reference_validator.accepts(raw, request)
    decoded = decode(parsed, request, ascii_only)
    assert (decoded.client_id, decoded.epoch) == (request["client_id"], request["epoch"])
    assert [entity.id for entity in decoded.entities] == [entity["id"] for entity in request["entities"]]
    for entity, sent in zip(decoded.entities, request["entities"], strict=True):
        names = entity.entity_type.action_names
        assert entity.entity_type.name == sent["type"]
        assert entity.legal_actions == tuple(name for name in names if name in sent["legal_actions"])
        assert entity.legal_mask == sum(
            1 << i for i, name in enumerate(names) if name in sent["legal_actions"]
        )
        assert entity.parent == sent.get("parent")


@given(st.data())
def test_a_mutated_request_is_judged_as_the_rules_say(data: st.DataObject) -> None:
    raw = data.draw(manifests())
    parsed = parse_manifest(raw)
    request = data.draw(decide_requests(parsed.manifest, parsed.contexts))
    for _ in range(data.draw(st.integers(1, 2))):
        request = data.draw(st.composite(mutated)(request))
    if reference_validator.accepts(raw, request):
        decode(parsed, request)
        return
    with pytest.raises(InputError) as refused:
        decode(parsed, request)
    text = str(refused.value)
    assert len(text) <= MAX_ERROR_CHARS
    assert not has_control(text)


@given(st.data())
def test_a_wrong_field_is_named_by_its_path(data: st.DataObject) -> None:
    parsed = parse_manifest(data.draw(manifests()))
    request = data.draw(decide_requests(parsed.manifest, parsed.contexts))
    index = data.draw(st.integers(0, len(request["entities"]) - 1))
    observation = request["entities"][index]["observation"]
    if not observation:
        observation["undeclared"] = 1
        name = "undeclared"
    else:
        name = data.draw(st.sampled_from(list(observation)))
        observation[name] = {"no": "field type takes an object"}
    with pytest.raises(InputError) as refused:
        decode(parsed, request)
    assert refused.value.path == f"entities[{index}].observation.{shown(name)}"


@given(manifests())
def test_a_manifest_survives_its_source(raw: dict[str, Any]) -> None:
    manifest = parse_manifest(raw).manifest
    loaded = load_manifest(manifest.source)
    assert loaded == manifest
    assert loaded.key == manifest.key
