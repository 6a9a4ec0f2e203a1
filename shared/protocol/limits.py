"""The protocol's limits, each with its unit and the page of A2G 0.1 that sets it. Pure."""

from typing import Final

PROTOCOL_VERSION: Final = "0.1"  # (A2G Overview, "Versioning")

MAX_BODY_BYTES: Final = 256 * 1024  # (A2G Overview, "Transport")
MAX_NAME_CHARS: Final = 128  # ids and names; code points (DESIGN, table of open questions)
MAX_STRING_CHARS: Final = (
    80  # a "string" field, display names, telemetry strings (A2G Manifest, "Field types")
)
MAX_ERROR_CHARS: Final = 300  # of an error's text: enough for two names of full length
MAX_WARNINGS: Final = 64  # listed one by one; the rest is counted

# A2G Manifest, "Top-level keys"
MAX_WORLD_CHARS: Final = 4000
MAX_FIELDS: Final = 24  # in world_fields, in a type and in a scope
MAX_SCOPES: Final = 64
MAX_PROFILES: Final = 256
MAX_ENTITY_TYPES: Final = 32

# A2G Manifest, "Entity types"
MAX_DESCRIPTION_CHARS: Final = 1000
MAX_ACTIONS: Final = 32
MAX_EVENTS: Final = 16
MAX_CHOICE_CHARS: Final = 300  # description of an action or event
MIN_DECISION_TTL_MS: Final = 1000
MAX_DECISION_TTL_MS: Final = 120_000
DEFAULT_DECISION_TTL_MS: Final = 12_000
MIN_REFRESH_MS: Final = 1000
MAX_REFRESH_MS: Final = 600_000
MIN_INPUT_TOKENS: Final = 50
MAX_INPUT_TOKENS: Final = 20_000

# A2G Manifest, "Field types", "Scopes", "Profiles", "Decision cache"
MAX_ENUM_VALUES: Final = 32
MAX_LIST_ITEMS: Final = 32
MAX_SCOPE_CHARS: Final = 4000
MAX_PROFILE_CHARS: Final = 1000
MIN_CACHE_TTL_MS: Final = 1000
MAX_CACHE_TTL_MS: Final = 600_000
MAX_CACHE_ENTRIES: Final = 256  # of a key, or of thresholds; ours: every digest walks them

MAX_DECIDE_ENTITIES: Final = 16  # (A2G Decide, "Request")
MAX_EPOCH: Final = 2**63 - 1  # what the decision log's column holds; echoed exactly

MAX_OUTCOME_VALUES: Final = 12  # (A2G Report, "Request")
MAX_TELEMETRY_ENTITIES: Final = 128  # (A2G Telemetry, "Request")
MAX_TELEMETRY_VALUES: Final = 24  # in world and in one entity's fields
MAX_DECISION_VALUES: Final = 12  # in one entity's decision
