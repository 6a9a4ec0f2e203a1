SELECT pg_catalog.set_config('search_path', '', false);

CREATE FUNCTION public.drop_log_days(before date) RETURNS SETOF text
    LANGUAGE plpgsql
    AS $_$
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
$_$;

CREATE FUNCTION public.ensure_log_days(days date[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.is_log_partition(parent text, partition text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
        WHERE inhparent = parent::regclass AND child.relname = partition);
END
$$;

CREATE TABLE public.dead_letters (
    id text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    error text NOT NULL,
    entry bytea NOT NULL
);

CREATE TABLE public.decisions (
    at timestamp with time zone NOT NULL,
    id text NOT NULL,
    decision_id text GENERATED ALWAYS AS (
CASE
    WHEN (source = 'AI'::text) THEN id
    ELSE NULL::text
END) STORED,
    game text NOT NULL,
    session text NOT NULL,
    client_id text NOT NULL,
    security_profile text NOT NULL,
    epoch bigint NOT NULL,
    manifest_hash text NOT NULL,
    contexts_hash text NOT NULL,
    scope text,
    route text NOT NULL,
    priority text NOT NULL,
    state text NOT NULL,
    entity_id text NOT NULL,
    entity_type text NOT NULL,
    legal_actions text[] NOT NULL,
    source text NOT NULL,
    code text,
    action text,
    confidence double precision,
    probabilities double precision[],
    profile text,
    trigger text,
    parent text,
    input text NOT NULL,
    provider text,
    model text,
    cached boolean NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_nanousd bigint NOT NULL,
    latency_ms bigint NOT NULL
)
PARTITION BY RANGE (at);

CREATE TABLE public.manifests (
    game text NOT NULL,
    hash text NOT NULL,
    source text NOT NULL,
    first_at timestamp with time zone NOT NULL
);

CREATE TABLE public.reports (
    at timestamp with time zone NOT NULL,
    id text NOT NULL,
    decision_id text,
    game text NOT NULL,
    session text NOT NULL,
    client_id text NOT NULL,
    security_profile text NOT NULL,
    entity_id text NOT NULL,
    action text NOT NULL,
    status text NOT NULL,
    outcome jsonb NOT NULL,
    remembered boolean NOT NULL,
    source text NOT NULL,
    local_prediction jsonb,
    policy_version text
)
PARTITION BY RANGE (at);

CREATE TABLE public.schema_migrations (
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.static_texts (
    game text NOT NULL,
    hash text NOT NULL,
    source text NOT NULL,
    first_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.decisions
    ADD CONSTRAINT decisions_pkey PRIMARY KEY (at, id);

ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT manifests_pkey PRIMARY KEY (game, hash);

ALTER TABLE ONLY public.reports
    ADD CONSTRAINT reports_pkey PRIMARY KEY (at, id);

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.static_texts
    ADD CONSTRAINT static_texts_pkey PRIMARY KEY (game, hash);
