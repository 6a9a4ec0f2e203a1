"""Which migrations are applied, and in which order."""

import pytest

from shared.errors import ConfigError
from shared.store.migrations import Migration, load_migrations, parse_migration, plan_migrations

FILES = ["001_start.pre.sql", "002_rename.post.sql", "002_rename.pre.sql", "003_more.pre.sql"]
KNOWN = [parse_migration(name, f"SELECT '{name}'") for name in FILES]


def applied(*names: str) -> dict[str, str]:
    return {one.name: one.checksum for one in KNOWN if one.name in names}


def names(chosen: list[Migration]) -> list[str]:
    return [one.name for one in chosen]


def test_everything_goes_in_order_with_pre_before_post() -> None:
    in_order = ["001_start.pre", "002_rename.pre", "002_rename.post", "003_more.pre"]
    assert names(plan_migrations(reversed(KNOWN), {}, "all")) == in_order


def test_what_is_applied_is_left_alone() -> None:
    assert names(plan_migrations(KNOWN, applied("001_start.pre", "002_rename.pre"), "all")) == [
        "002_rename.post",
        "003_more.pre",
    ]
    assert plan_migrations(KNOWN, {one.name: one.checksum for one in KNOWN}, "all") == []


def test_a_phase_applies_its_own_files() -> None:
    assert names(plan_migrations(KNOWN[:3], applied("001_start.pre"), "pre")) == ["002_rename.pre"]
    assert names(plan_migrations(KNOWN[:3], applied("001_start.pre", "002_rename.pre"), "post")) == [
        "002_rename.post"
    ]


def test_a_phase_does_not_overtake_the_other() -> None:
    with pytest.raises(ConfigError, match=r"002_rename\.post has to be applied before 003_more\.pre"):
        plan_migrations(KNOWN, applied("001_start.pre", "002_rename.pre"), "pre")
    with pytest.raises(ConfigError, match=r"002_rename\.pre has to be applied before 002_rename\.post"):
        plan_migrations(KNOWN, applied("001_start.pre"), "post")


def test_a_phase_with_nothing_to_do_is_fine_whatever_waits() -> None:
    assert plan_migrations(KNOWN[:1], {}, "post") == []


def test_a_changed_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"001_start\.pre was changed"):
        plan_migrations(KNOWN, {"001_start.pre": "0" * 64}, "all")


def test_a_newer_versions_migrations_are_left_alone() -> None:
    newer = {"009_future.pre": "0" * 64}
    assert len(plan_migrations(KNOWN, newer, "all")) == 4


@pytest.mark.parametrize("name", ["start.pre.sql", "001_start.sql", "001_start.mid.sql", "x01_start.pre.sql"])
def test_a_file_with_another_name_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="named NNN_name"):
        parse_migration(name, "")


def test_the_shipped_files_are_numbered_without_gaps() -> None:
    numbers = sorted({one.number for one in load_migrations()})
    assert numbers == list(range(1, len(numbers) + 1))
