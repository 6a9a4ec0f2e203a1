"""Field types: what a manifest may declare and how a value is judged (A2G Manifest, "Field types"). Pure.

One entry of `REGISTRY` is one field type. A value is judged in two steps: msgspec decodes it against
`annotation`, then `check`, where there is one, does what an annotation cannot say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from shared.errors import InputError
from shared.protocol.checks import fault, finite_double, inside, require_table, require_whole, unknown_keys
from shared.protocol.limits import (
    MAX_ENUM_VALUES,
    MAX_FIELDS,
    MAX_LIST_ITEMS,
    MAX_NAME_CHARS,
    MAX_STRING_CHARS,
)
from shared.protocol.names import clean_text, has_control, wire_name

Kind = Literal["number", "boolean", "string", "enum", "vector2", "vector3", "entity_ref", "list"]
Check = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FieldType:
    """One declared field. `values` belongs to an enum (whole numbers as int), `sub` and `max` to a list."""

    kind: Kind
    values: tuple[str | int | float, ...] = ()
    sub: Mapping[str, "FieldType"] = field(default_factory=dict)
    max: int = 0

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers only, so that thresholds can put them into bands."""
        if self.kind == "enum":
            return not any(isinstance(value, str) for value in self.values)
        return self.kind == "number"

    @property
    def is_scalar(self) -> bool:
        """Whether it may stand in a cache key (A2G Manifest, "Decision cache")."""
        return self.kind in ("number", "boolean", "string", "enum")


@dataclass(frozen=True, slots=True)
class FieldKind:
    """An entry of the registry.

    `annotation` is the msgspec type of a value. `check(field, controls)` returns None, or a function that
    takes a decoded value and returns the one to keep, or raises `InputError` with a path relative to the
    value; `controls` is false for a body that cannot hold control characters, which spares strings their
    scan. `declaration` is the JSON that declares the field.
    """

    annotation: Callable[[FieldType], Any]
    check: Callable[[FieldType, bool], Check | None] = lambda _field, _controls: None
    declaration: Callable[[FieldType], object] = lambda field: field.kind


def attribute(index: int) -> str:
    """The attribute that holds the `index`-th declared field in a compiled Struct; any name can be declared,
    an attribute must be an identifier."""
    return f"f{index}"


def object_struct(title: str, fields: Mapping[str, FieldType]) -> type[msgspec.Struct]:
    """A Struct that accepts exactly `fields`: no missing, no extra (A2G Manifest, "Field types")."""
    return msgspec.defstruct(
        title,
        [(attribute(i), REGISTRY[kind.kind].annotation(kind)) for i, kind in enumerate(fields.values())],
        rename={attribute(i): wire_name(name) for i, name in enumerate(fields)},
        forbid_unknown_fields=True,
        gc=False,
    )


def respelled(value: Any) -> Any:
    """Decoded JSON with every key in its wire name."""
    if isinstance(value, dict):
        return {wire_name(key): respelled(member) for key, member in value.items()}
    if isinstance(value, list):
        return [respelled(member) for member in value]
    return value


def check_object(fields: Mapping[str, FieldType], controls: bool) -> Callable[[msgspec.Struct], None] | None:
    """A function that judges and cleans one decoded object in place; None when nothing is left to do."""
    steps = tuple(
        (attribute(i), name, check)
        for i, (name, kind) in enumerate(fields.items())
        if (check := REGISTRY[kind.kind].check(kind, controls)) is not None
    )
    if not steps:
        return None

    def run(value: msgspec.Struct) -> None:
        for attr, name, check in steps:
            try:
                setattr(value, attr, check(getattr(value, attr)))
            except InputError as exc:
                raise InputError(join_paths(inside("", name), exc.path), exc.problem) from None

    return run


def join_paths(outer: str, inner: str) -> str:
    """The path of `inner` (`hp`, `[2].hp` or empty) seen from the object that holds `outer`."""
    return f"{outer}{inner}" if not inner or inner.startswith("[") else f"{outer}.{inner}"


def _check_string(_field: FieldType, controls: bool) -> Check | None:
    return clean_text if controls else None


def _check_entity_ref(_field: FieldType, controls: bool) -> Check | None:
    def check(value: str | None) -> str | None:
        if value is not None and has_control(value):
            raise InputError("", "must hold no control characters")
        return value

    return check if controls else None


def _enum_annotation(declared: FieldType) -> Any:
    texts = [value for value in declared.values if isinstance(value, str)]
    if not texts:
        return float
    if len(texts) == len(declared.values):
        return Literal[tuple(texts)]
    return float | str


def _check_enum(declared: FieldType, _controls: bool) -> Check | None:
    if all(isinstance(value, str) for value in declared.values):
        return None  # its annotation is exact
    by_value = {value: value for value in declared.values}  # 2.0 finds 2, "2" does not

    def check(value: str | float) -> str | int | float:
        try:
            return by_value[value]
        except KeyError:
            raise InputError("", "must be one of the allowed values") from None

    return check


def _check_list(declared: FieldType, controls: bool) -> Check | None:
    check_item = check_object(declared.sub, controls)
    if check_item is None:
        return None

    def check(items: list[msgspec.Struct]) -> list[msgspec.Struct]:
        for i, item in enumerate(items):
            try:
                check_item(item)
            except InputError as exc:
                raise InputError(join_paths(f"[{i}]", exc.path), exc.problem) from None
        return items

    return check


REGISTRY: Mapping[Kind, FieldKind] = {
    "number": FieldKind(annotation=lambda _: float),
    "boolean": FieldKind(annotation=lambda _: bool),
    "string": FieldKind(
        annotation=lambda _: Annotated[str, msgspec.Meta(max_length=MAX_STRING_CHARS)], check=_check_string
    ),
    "enum": FieldKind(
        annotation=_enum_annotation, check=_check_enum, declaration=lambda field: list(field.values)
    ),
    "vector2": FieldKind(annotation=lambda _: tuple[float, float]),
    "vector3": FieldKind(annotation=lambda _: tuple[float, float, float]),
    "entity_ref": FieldKind(
        annotation=lambda _: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)] | None,
        check=_check_entity_ref,
    ),
    "list": FieldKind(
        annotation=lambda field: Annotated[
            list[object_struct("ListItem", field.sub)],  # type: ignore[misc]  # a type made at run time
            msgspec.Meta(max_length=field.max),
        ],
        check=_check_list,
        declaration=lambda field: {"list": declared_fields(field.sub), "max": field.max},
    ),
}

_NAMED: Mapping[str, FieldType] = {kind: FieldType(kind) for kind in REGISTRY if kind not in ("enum", "list")}
_LIST_KEYS = frozenset({"list", "max"})


def declared_fields(fields: Mapping[str, FieldType]) -> dict[str, object]:
    """The JSON object that declares `fields`."""
    return {name: REGISTRY[kind.kind].declaration(kind) for name, kind in fields.items()}


def parse_fields(value: object, path: str, warnings: list[str]) -> dict[str, FieldType]:
    """Up to 24 declared fields (None: none). Raises `InputError`."""
    table = require_table(value, path, 0, MAX_FIELDS, "fields")
    return {name: _parse_field(raw, inside(path, name), warnings) for name, raw in table.items()}


def _parse_field(raw: object, path: str, warnings: list[str], in_list: bool = False) -> FieldType:
    if isinstance(raw, str) and raw in _NAMED:
        return _NAMED[raw]
    if isinstance(raw, list):
        return _parse_enum(raw, path)
    if isinstance(raw, dict) and "list" in raw:
        if in_list:
            raise fault(path, "a list cannot hold another list")
        return _parse_list(raw, path, warnings)
    raise fault(path, f"must be a field type: {', '.join(_NAMED)}, an array of values or a list object")


def _parse_enum(raw: list[object], path: str) -> FieldType:
    if not 1 <= len(raw) <= MAX_ENUM_VALUES:
        raise fault(path, f"must list 1–{MAX_ENUM_VALUES} values")
    values: dict[str | int | float, None] = {}
    for value in raw:
        number = None if isinstance(value, str) else finite_double(value)
        if not isinstance(value, str) and number is None:
            raise fault(path, "enum values must be strings or finite numbers")
        # Values are compared as doubles (DESIGN, numeric enums), so they are kept as doubles keep them.
        kept = value if isinstance(value, str) else _plain_number(number or 0.0)
        if kept in values:
            raise fault(path, "lists a value twice")
        values[kept] = None
    return FieldType("enum", values=tuple(values))


def _plain_number(number: float) -> int | float:
    return int(number) if number.is_integer() and abs(number) <= 2**53 else number


def _parse_list(raw: dict[str, object], path: str, warnings: list[str]) -> FieldType:
    warnings += unknown_keys(raw, _LIST_KEYS, path)
    table = require_table(raw["list"], inside(path, "list"), 1, MAX_FIELDS, "sub-fields")
    sub = {
        name: _parse_field(value, inside(inside(path, "list"), name), warnings, in_list=True)
        for name, value in table.items()
    }
    return FieldType(
        "list", sub=sub, max=require_whole(raw.get("max"), inside(path, "max"), 1, MAX_LIST_ITEMS)
    )
