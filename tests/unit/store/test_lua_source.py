"""The Lua files keep the house's rules."""

import re
from pathlib import Path

import pytest

from shared.store.lua_source import lua_source

FOLDER = Path(__file__).parents[3] / "shared" / "store" / "lua"
FRAGMENTS = {"lanes", "wake", "bounded"}
NAMES = sorted(path.stem for path in FOLDER.glob("*.lua"))
SCRIPTS = [name for name in NAMES if name not in FRAGMENTS]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_does(name: str) -> None:
    header = re.match(r"(--.*\n)+", lua_source(name))
    assert header is not None
    for part in ("-- KEYS ", "-- ARGV ", "-- Returns ", "-- Invariant: "):
        assert part in header[0]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_reads_no_clock_scans_nothing_and_parses_no_json(name: str) -> None:
    source = lua_source(name)
    for forbidden in ('"KEYS"', '"SCAN"', '"TIME"', "cjson", "os.", "math.random", "setresp"):
        assert forbidden not in source


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_include_is_in_its_place(name: str) -> None:
    assert "@include" not in lua_source(name)


def test_a_fragment_comes_in_whole() -> None:
    assert (FOLDER / "wake.lua").read_text() in lua_source("claim")


def test_a_script_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        lua_source("nothing")
