-- The decision log: what was answered (decisions), how it ended (reports), and the long texts both name by hash.
-- No CHECK on words: the log must take what a newer gateway writes. Times and partition bounds are UTC.

CREATE TABLE decisions (
    at               timestamptz NOT NULL,        -- when the answer was made
    id               text        NOT NULL,        -- the decision id, or f_… for a fallback
    decision_id      text        GENERATED ALWAYS AS (CASE WHEN source = 'AI' THEN id END) STORED,
    game             text        NOT NULL,
    session          text        NOT NULL,
    client_id        text        NOT NULL,
    security_profile text        NOT NULL,
    epoch            bigint      NOT NULL,
    manifest_hash    text        NOT NULL,        -- manifests.hash
    contexts_hash    text        NOT NULL,        -- static_texts.hash
    scope            text,
    route            text        NOT NULL,
    priority         text        NOT NULL,
    state            text        NOT NULL,        -- JSON as the provider saw it: text keeps it byte for byte
    entity_id        text        NOT NULL,
    entity_type      text        NOT NULL,
    legal_actions    text[]      NOT NULL,        -- in the manifest's order
    source           text        NOT NULL,        -- AI or FALLBACK
    code             text,                        -- why there was no decision
    action           text,
    confidence       double precision,
    probabilities    double precision[],          -- over legal_actions, in their order
    profile          text,
    trigger          text,
    parent           text,
    input            text        NOT NULL,        -- the entity's part of the model input, JSON as the provider saw it
    provider         text,
    model            text,
    cached           boolean     NOT NULL,
    input_tokens     bigint      NOT NULL,
    output_tokens    bigint      NOT NULL,
    cost_nanousd     bigint      NOT NULL,
    latency_ms       bigint      NOT NULL,
    PRIMARY KEY (at, id)
) PARTITION BY RANGE (at);

CREATE TABLE reports (
    at               timestamptz NOT NULL,
    id               text        NOT NULL,        -- digest of the report: a repeated delivery is the same row
    decision_id      text,                        -- decisions.decision_id; null for a decision of the game's own policy
    game             text        NOT NULL,
    session          text        NOT NULL,
    client_id        text        NOT NULL,
    security_profile text        NOT NULL,
    entity_id        text        NOT NULL,
    action           text        NOT NULL,
    status           text        NOT NULL,        -- executed, blocked or expired
    outcome          jsonb       NOT NULL,
    remembered       boolean     NOT NULL,
    source           text        NOT NULL,        -- AI or LOCAL
    local_prediction jsonb,
    policy_version   text,
    PRIMARY KEY (at, id)
) PARTITION BY RANGE (at);

CREATE TABLE manifests (
    game     text        NOT NULL,
    hash     text        NOT NULL,
    source   text        NOT NULL,                -- canonical JSON without scopes and profiles
    first_at timestamptz NOT NULL,
    PRIMARY KEY (game, hash)
);

CREATE TABLE static_texts (
    game     text        NOT NULL,
    hash     text        NOT NULL,
    source   text        NOT NULL,                -- canonical JSON of a session's scopes and profiles
    first_at timestamptz NOT NULL,
    PRIMARY KEY (game, hash)
);

-- Stream entries that could not be stored as rows, kept for a human to look at.
CREATE TABLE dead_letters (
    id      text        PRIMARY KEY,              -- digest of the entry
    at      timestamptz NOT NULL DEFAULT now(),
    error   text        NOT NULL,
    entry   bytea       NOT NULL
);

-- Reads the catalogue's tables: to_regclass() may answer from a cache that another session's commit has outdated.
CREATE FUNCTION is_log_partition(parent text, partition text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
        WHERE inhparent = parent::regclass AND child.relname = partition);
END
$$;

-- Makes the partitions of these days where they are missing; returns how many it made.
-- Attaching a ready table locks out neither readers nor writers, as CREATE … PARTITION OF would.
CREATE FUNCTION ensure_log_days(days date[]) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    parent    text;
    day       date;
    partition text;
    made      integer := 0;
BEGIN
    FOREACH day IN ARRAY days LOOP
        FOREACH parent IN ARRAY ARRAY['decisions', 'reports'] LOOP
            partition := parent || to_char(day, '_YYYYMMDD');
            CONTINUE WHEN is_log_partition(parent, partition);
            PERFORM pg_advisory_xact_lock(hashtext('muster log partitions'));
            CONTINUE WHEN is_log_partition(parent, partition);
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', partition, parent);
            EXECUTE format(
                'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                parent, partition,
                day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

-- Drops the partitions of days before this one; returns their names. Dropping locks the parent for a moment:
-- the caller sets lock_timeout, so that a long reader delays retention and not the log.
CREATE FUNCTION drop_log_days(before date) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    partition text;
BEGIN
    FOR partition IN
        SELECT child.relname
        FROM pg_inherits
        JOIN pg_class AS child ON child.oid = inhrelid
        WHERE inhparent IN ('decisions'::regclass, 'reports'::regclass)
          AND child.relname ~ '_[0-9]{8}$'
          AND to_date(right(child.relname, 8), 'YYYYMMDD') < before
        ORDER BY child.relname
    LOOP
        EXECUTE format('DROP TABLE %I', partition);
        RETURN NEXT partition;
    END LOOP;
END
$$;
