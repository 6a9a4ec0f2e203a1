"""The text of the Lua scripts: files in `lua/`, where `--- @include NAME` stands for `lua/NAME.lua`."""

import re
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^--- @include (\w+)$", re.MULTILINE)


@cache
def lua_source(name: str) -> str:
    """The script `lua/<name>.lua` with its includes in place; raises FileNotFoundError when there is none."""
    text = (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: lua_source(found[1]), text)
