"""Provider keys: read from the environment or a file, held where no text shows them."""

from collections.abc import Mapping
from pathlib import Path

from shared.config import ProviderConfig
from shared.errors import ConfigError

MAX_KEY_CHARS = 4_096


class ProviderKey:
    """A secret. Its `repr` and `str` hide it; only the transport reveals it, into one header."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The key itself; never for a log, an error or a metric."""
        return self._value

    def __repr__(self) -> str:
        return "ProviderKey(***)"


def read_key(name: str, provider: ProviderConfig, env: Mapping[str, str]) -> ProviderKey | None:
    """The key of the provider called `name`, or None when it takes none or none is there.

    A key that is not there does not stop the start: the provider answers `unavailable` (DESIGN, "Reading the
    specification"). Raises ConfigError for one that cannot stand in a header.
    """
    if provider.key_env is not None:
        text = env.get(provider.key_env, "").strip()
    elif provider.key_file is not None:
        try:
            text = Path(provider.key_file).read_text(encoding="utf-8").strip()
        except OSError:
            return None
        except UnicodeDecodeError:
            raise ConfigError(f"providers.{name}.key_file: does not hold a key") from None
    else:
        return None
    if not text:
        return None
    if len(text) > MAX_KEY_CHARS or not all("!" <= char <= "~" for char in text):
        key = "key_env" if provider.key_env is not None else "key_file"
        raise ConfigError(f"providers.{name}.{key}: does not hold a key")
    return ProviderKey(text)
