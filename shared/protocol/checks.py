"""Readers of decoded JSON: each takes a value and its path, returns it in the type that the rule asks for, or
raises `InputError` with that path. Pure."""

import math
from collections.abc import Mapping

from shared.errors import InputError
from shared.protocol.limits import MAX_ERROR_CHARS, MAX_NAME_CHARS
from shared.protocol.names import is_name, shown


def fault(path: str, problem: str) -> InputError:
    """An error for `path`; both are cut so that the whole text stays short, whatever the sender wrote."""
    room = MAX_ERROR_CHARS - len(problem) - 2
    if len(path) > room:
        path = f"{path[: room // 2 - 1]}…{path[len(path) - (room - room // 2 - 1) :]}"
    return InputError(path, problem)


def inside(path: str, name: str) -> str:
    """The path of key `name` inside the object at `path`."""
    return f"{path}.{shown(name)}" if path else shown(name)


def require_object(value: object, path: str) -> dict[str, object]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise fault(path, "must be an object")
    return value


def require_table(value: object, path: str, least: int, most: int, noun: str) -> dict[str, object]:
    """An object of `least`–`most` entries whose keys are names; absent (None) is an empty one."""
    table = require_object({} if value is None else value, path)
    if not least <= len(table) <= most:
        raise fault(path, f"must have {f'{least}–{most}' if least else f'at most {most}'} {noun}")
    for key in table:
        if not is_name(key):
            raise fault(inside(path, key), f"a name has 1–{MAX_NAME_CHARS} characters, none of them control")
    return table


def require_string(value: object, path: str, most_chars: int) -> str:
    """A string of at most `most_chars` code points."""
    if not isinstance(value, str):
        raise fault(path, "must be a string")
    if len(value) > most_chars:
        raise fault(path, f"must have at most {most_chars} characters")
    return value


def require_name(value: object, path: str) -> str:
    """An id or name: a string of 1–128 characters without control characters."""
    if not isinstance(value, str) or not is_name(value):
        raise fault(path, f"must be a string of 1–{MAX_NAME_CHARS} characters without control characters")
    return value


def finite_double(value: object) -> float | None:
    """`value` as a finite double, None when it is no number (booleans are none) or too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def require_number(value: object, path: str) -> float:
    """A finite number."""
    number = finite_double(value)
    if number is None:
        raise fault(path, "must be a finite number")
    return number


def require_whole(value: object, path: str, least: int, most: int) -> int:
    """A whole number of `least`–`most`, whatever its spelling: 12000 and 12000.0 alike."""
    number = finite_double(value)
    if number is None or not number.is_integer() or not least <= number <= most:
        raise fault(path, f"must be a whole number of {least}–{most}")
    return int(number)


def unknown_keys(value: Mapping[str, object], known: frozenset[str], path: str) -> list[str]:
    """One warning for each key of `value` that the protocol does not know: a later version may."""
    return [f"{inside(path, key)}: unknown key, ignored" for key in value if key not in known]
