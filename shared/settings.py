"""Process settings: the `MUSTER_*` variables, read once into a frozen value by composition roots."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

from shared.errors import ConfigError

SecurityProfile = Literal["local", "hosted"]
RedisClient = Literal["thin", "redis-py"]
LogLevel = Literal["debug", "info", "warning", "error"]
_Choice = TypeVar("_Choice", bound=str)

DEFAULT_BIND = "127.0.0.1:8787"  # A2G Overview, "Transport"


@dataclass(frozen=True, slots=True)
class Settings:
    """What one process needs to know about its surroundings."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    postgres_url: str = "postgresql://muster@127.0.0.1:5432/muster"
    postgres_direct_url: str = ""  # LISTEN and migrations, where a pooler stands in between
    broker_url: str = ""  # Celery's; the same Redis unless set
    redis_client: RedisClient = "thin"
    profile: SecurityProfile = "local"
    bind: str = DEFAULT_BIND
    listen_fd: int | None = None  # a listening socket bound and handed on by the supervisor
    internal_bind: str = "127.0.0.1:0"  # health and metrics
    config_path: Path | None = None
    secret_keys: str = field(default="", repr=False)  # kid:key,… the first signs, all verify
    spill_dir: Path | None = None  # the log writer's own volume
    log_level: LogLevel = "info"
    log_retention_days: int = 30

    @staticmethod
    def from_env(env: Mapping[str, str]) -> "Settings":
        """Read `MUSTER_*`; raises ConfigError naming the variable that cannot be used."""
        defaults = Settings()
        redis_url = env.get("MUSTER_REDIS_URL", defaults.redis_url)
        postgres_url = env.get("MUSTER_POSTGRES_URL", defaults.postgres_url)
        return Settings(
            redis_url=redis_url,
            postgres_url=postgres_url,
            postgres_direct_url=env.get("MUSTER_POSTGRES_DIRECT_URL", postgres_url),
            broker_url=env.get("MUSTER_BROKER_URL", redis_url),
            redis_client=_choice(env, "MUSTER_REDIS_CLIENT", RedisClient, defaults.redis_client),
            profile=_choice(env, "MUSTER_PROFILE", SecurityProfile, defaults.profile),
            bind=env.get("MUSTER_BIND", defaults.bind),
            listen_fd=_optional_int(env, "MUSTER_LISTEN_FD"),
            internal_bind=env.get("MUSTER_INTERNAL_BIND", defaults.internal_bind),
            config_path=_path(env, "MUSTER_CONFIG"),
            secret_keys=env.get("MUSTER_SECRET_KEYS", ""),
            spill_dir=_path(env, "MUSTER_SPILL_DIR"),
            log_level=_choice(env, "MUSTER_LOG_LEVEL", LogLevel, defaults.log_level),
            log_retention_days=_optional_int(env, "MUSTER_LOG_RETENTION_DAYS") or defaults.log_retention_days,
        )

    @property
    def required_config(self) -> Path:
        """The configuration file; raises ConfigError where none is named."""
        if self.config_path is None:
            raise ConfigError("MUSTER_CONFIG: must name the configuration file")
        return self.config_path


def _choice(env: Mapping[str, str], name: str, choices: object, default: _Choice) -> _Choice:
    allowed = get_args(choices)
    value = env.get(name, default)
    if value not in allowed:
        raise ConfigError(f"{name}: must be one of {', '.join(allowed)}")
    return cast("_Choice", value)


def _optional_int(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{name}: must be a whole number") from None
    if value < 0:
        raise ConfigError(f"{name}: must not be negative")
    return value


def _path(env: Mapping[str, str], name: str) -> Path | None:
    text = env.get(name, "")
    return Path(text) if text else None


def host_port(bind: str, name: str) -> tuple[str, int]:
    """Split `host:port` (`[::1]:port` for IPv6); `name` is the setting, for the error."""
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{name}: must be host:port")
    return host.strip("[]") or "127.0.0.1", int(port)
