"""The provider kinds: one module each, one line here (and its name in `shared.config.ProviderKind`)."""

from shared.config import ProviderKind
from workers.providers import systemone
from workers.providers.base import ProviderModule

KINDS: dict[ProviderKind, ProviderModule] = {
    "systemone": systemone,
}
