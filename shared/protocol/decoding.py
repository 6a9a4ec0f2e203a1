"""From a body's bytes to values: every fault becomes an `InputError` with a short text that names the path
and echoes nothing but names. Pure."""

import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from shared.errors import InputError
from shared.protocol.checks import fault, inside
from shared.protocol.names import declared_name, shown

T = TypeVar("T")

_MISSING = "Object missing required field `"
_UNKNOWN = "Object contains unknown field `"
_PLACE = " - at `$"
_OUT_OF_RANGE = "must be a number within the range of a double"


def decode(decoder: Callable[[bytes], T], body: bytes) -> T:
    """`decoder(body)`; raises `InputError` where that finds a fault."""
    if not body.isascii():
        check_utf8(body)  # msgspec does not look inside values that it skips
    try:
        return decoder(body)
    except msgspec.ValidationError as exc:
        refused = input_error(exc)
        if refused.problem == _OUT_OF_RANGE:
            # Inside untyped values msgspec does not name the keys on the way.
            refused = fault(_place_of_endless(body) or refused.path, _OUT_OF_RANGE)
        raise refused from exc
    except msgspec.DecodeError as exc:
        raise InputError("", "the body is not valid JSON") from exc
    except RecursionError as exc:
        raise InputError("", "the body is nested too deeply") from exc


_ANY_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def decode_any(body: bytes) -> Any:
    """The decoded JSON of `body`."""
    return decode(_ANY_DECODER.decode, body)


def check_utf8(body: bytes) -> None:
    """Refuse bytes that are not UTF-8 (A2G Overview, "Transport")."""
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        raise InputError("", "the body is not valid UTF-8") from exc


def may_hold_control(body: bytes) -> bool:
    """Whether a string in this JSON may hold a control character: those below U+0020 must be escaped, U+007F
    is one byte and the others are not ASCII. False spares the strings of most bodies a scan each."""
    return b"\\" in body or b"\x7f" in body or not body.isascii()


def input_error(exc: msgspec.ValidationError) -> InputError:
    """msgspec's refusal in the protocol's words."""
    text = str(exc)
    message, place, tail = text.rpartition(_PLACE)
    if not place:
        message, tail = text, ""
    path = shown_path(tail.removesuffix("`").lstrip("."))
    if message.startswith(_MISSING):
        return fault(inside(path, declared_name(message[len(_MISSING) : -1])), "is required")
    if message.startswith(_UNKNOWN):
        return fault(inside(path, declared_name(message[len(_UNKNOWN) : -1])), "is not declared")
    if message.startswith("Invalid enum value"):
        return fault(path, "must be one of the allowed values")
    if message.startswith("Invalid value"):
        return fault(path, "must be a declared entity type that has actions")
    if message.startswith("Expected"):
        return fault(path, _in_json_words(message))
    return fault(path, _OUT_OF_RANGE)


def _place_of_endless(body: bytes) -> str | None:
    """The path of the first number beyond a double, None when the body cannot be read once more."""
    try:
        steps: list[tuple[str, object]] = [("", json.loads(body, parse_int=float))]
    except (ValueError, RecursionError):
        return None
    while steps:
        path, value = steps.pop()
        if isinstance(value, float) and math.isinf(value):
            return path
        if isinstance(value, dict):
            steps += [(inside(path, key), one) for key, one in reversed(value.items())]
        elif isinstance(value, list):
            steps += [(f"{path}[{at}]", value[at]) for at in reversed(range(len(value)))]
    return None


# msgspec names Python's types; a game knows JSON's.
_JSON_WORDS = {
    "float": "number",
    "int": "whole number",
    "str": "string",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
}


def _in_json_words(message: str) -> str:
    """`Expected `float | str`, got `bool`` as `must be number or string, got boolean`."""
    words = re.sub(r"\w+", lambda word: _JSON_WORDS.get(word.group(), word.group()), message)
    return words.replace("Expected", "must be", 1).replace("`", "").replace("|", "or")


def shown_path(path: str) -> str:
    """A path as an error may echo it; its names are declared ones, so only their length is in doubt."""
    return ".".join(shown(part) for part in declared_name(path).split("."))
