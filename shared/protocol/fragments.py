"""Ready pieces of compact JSON text, from which model input is spliced. Pure.

A renderer is composed once per entity type, world or scope chain; rendering a value then costs one formatting
call. Strings are escaped, and control characters removed, wherever a game's text enters the model's input
(A2G Security, "Prompt injection"). Numbers are short: decimals are weak input for small models.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from math import isinf
from operator import call
from typing import Any

import msgspec
from msgspec.structs import astuple

from shared.protocol.fields import FieldType
from shared.protocol.manifest import CacheRule
from shared.protocol.names import clean_text

Scalar = str | float | int | bool | None
Render = Callable[[Any], str]
Renderer = Callable[[msgspec.Struct], str]

_BOOLEAN_TEXT: dict[bool, str] = {True: "true", False: "false"}
_PLAIN_BELOW = 1e9  # numbers from here on are written with an exponent
_FIXED_BELOW = 1e15  # beyond it a double has no decimals worth fixing
_MOST_DECIMALS = 9  # thresholds finer than this are matched by the exact value instead


def number_text(value: float) -> str:
    """A finite number with at most four significant digits: `0.333`, `1`, `12350`, `1.235e12`."""
    text = "%.4g" % value  # noqa: UP031 - the fastest formatting there is, on the path of every decision
    if "e" in text:
        return _plain_text(text)
    return "0" if text == "-0" else text


def exact_number_text(value: float) -> str:
    """The shortest text that reads back as the same double; `1` for 1.0, `0` for -0.0."""
    text = repr(float(value)).removesuffix(".0")
    return "0" if text == "-0" else text


def number_text_for(thresholds: Sequence[float]) -> Callable[[float], str]:
    """A `number_text` with as many decimals as ascending `thresholds` distinguish.

    The text reads back into the same band as the value, where a value equal to a threshold is in the upper
    band: what the model sees never contradicts the cache key (A2G Manifest, "Decision cache").
    """
    decimals = max((_decimals(threshold) for threshold in thresholds), default=0)
    if decimals > _MOST_DECIMALS:
        return exact_number_text
    bounds = tuple(float(threshold) for threshold in thresholds)
    step = Decimal(1).scaleb(-decimals)
    # Only a value less than half a step below a threshold can be rounded across it; the rest is margin.
    suspects = tuple(bound - 0.6 * float(step) for bound in bounds)
    template = f"%.{decimals}f"

    def render(value: float) -> str:
        if not -_FIXED_BELOW < value < _FIXED_BELOW:
            return exact_number_text(value)
        text = template % value
        band = bisect_right(bounds, value)
        if band < len(suspects) and value >= suspects[band] and float(text) >= bounds[band]:
            text = f"{Decimal(text) - step:f}"
        if decimals:
            text = text.rstrip("0").rstrip(".")
        return "0" if text == "-0" else text

    return render


def string_text(value: str) -> str:
    """A JSON string without control characters; other characters stay as they are."""
    # Printable text has none; asking costs a tenth of the substitution.
    return encode_basestring(value if value.isprintable() else clean_text(value))


def json_text(value: Scalar) -> str:
    """A scalar as compact JSON text: strings by `string_text`, numbers by `number_text`."""
    if isinstance(value, str):
        return string_text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return _BOOLEAN_TEXT[value]
    return number_text(value)


def scalars_text(values: Mapping[str, Scalar]) -> str:
    """An object of scalars, in the mapping's order."""
    return "{" + ",".join([f"{string_text(name)}:{json_text(value)}" for name, value in values.items()]) + "}"


def compile_renderer(
    fields: Mapping[str, FieldType], cache: CacheRule | None = None, prefix: str = ""
) -> Renderer:
    """Compose a function from a decoded Struct of exactly `fields` to its JSON object text.

    The Struct's fields stand in the order of `fields`, whatever Python calls them. `prefix` (empty, `world.`
    or `scope.`) finds the buckets of a field in the type's `cache` rule; such numbers are rounded to what the
    buckets distinguish.
    """
    buckets: Mapping[str, tuple[float, ...]] = cache.buckets if cache is not None else {}
    renders = [_field_render(field, buckets.get(prefix + name)) for name, field in fields.items()]
    members = [string_text(name).replace("%", "%%") + ":%s" for name in fields]
    template = "{" + ",".join(members) + "}"

    def render(struct: msgspec.Struct) -> str:
        return template % tuple(map(call, renders, astuple(struct)))

    return render


def _field_render(field: FieldType, thresholds: tuple[float, ...] | None) -> Render:
    """The function that writes one field's decoded value."""
    match field.kind:
        case "number":
            return number_text_for(thresholds) if thresholds else number_text
        case "boolean":
            return _BOOLEAN_TEXT.__getitem__
        case "enum":
            return {value: enum_text(value) for value in field.values}.__getitem__
        case "vector2" | "vector3":
            return _vector_text
        case "list":
            return _list_render(compile_renderer(field.sub))
        case _:  # string and entity_ref; a reference may be null
            return json_text


def enum_text(value: str | float) -> str:
    """One of an enum's values; numbers stay exact, so that no two of them look alike."""
    return string_text(value) if isinstance(value, str) else exact_number_text(value)


def _vector_text(value: Sequence[float]) -> str:
    return "[" + ",".join([number_text(part) for part in value]) + "]"


def _list_render(render_item: Renderer) -> Render:
    def render(items: Sequence[msgspec.Struct]) -> str:
        return "[" + ",".join([render_item(item) for item in items]) + "]"

    return render


def _plain_text(text: str) -> str:
    """Turn `1.235e+04` into `12350`, or into `1.235e9` where plain notation would be long."""
    value = float(text)
    if 1 <= abs(value) < _PLAIN_BELOW:
        return str(int(value))
    if isinf(value):  # rounded up beyond the largest double, which readers would take for infinity
        return "1.797e308" if value > 0 else "-1.797e308"
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"


def _decimals(threshold: float) -> int:
    exponent = Decimal(repr(float(threshold))).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
