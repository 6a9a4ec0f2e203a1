-- Named blocks, read by shared/store/queries.py. A block starts at a line `-- name: word` and ends at the next.

-- name: ping
SELECT 1

-- name: ensure_log_days
-- $1 date[]
SELECT ensure_log_days($1::date[])

-- name: drop_log_days
-- $1 date: partitions of days before it go
SELECT * FROM drop_log_days($1::date)

-- name: drop_dead_letters
-- $1 date: what was set aside before it goes
DELETE FROM dead_letters WHERE at < $1::date

-- name: retention_lock_timeout
-- Dropping waits for readers of the log; meanwhile the log writer waits behind it, so not for long.
SET LOCAL lock_timeout = '2s'

-- name: stage_decisions
-- Dropped at commit: behind a transaction pooler the next transaction may be another session's.
CREATE TEMPORARY TABLE new_decisions (LIKE decisions) ON COMMIT DROP

-- name: insert_decisions
INSERT INTO decisions (
    at, id, game, session, client_id, security_profile, epoch, manifest_hash, contexts_hash, scope, route,
    priority, state, entity_id, entity_type, legal_actions, source, code, action, confidence, probabilities,
    profile, trigger, parent, input, provider, model, cached, input_tokens, output_tokens, cost_nanousd,
    latency_ms)
SELECT
    at, id, game, session, client_id, security_profile, epoch, manifest_hash, contexts_hash, scope, route,
    priority, state, entity_id, entity_type, legal_actions, source, code, action, confidence, probabilities,
    profile, trigger, parent, input, provider, model, cached, input_tokens, output_tokens, cost_nanousd,
    latency_ms
FROM new_decisions
ON CONFLICT DO NOTHING

-- name: stage_reports
CREATE TEMPORARY TABLE new_reports (LIKE reports) ON COMMIT DROP

-- name: insert_reports
INSERT INTO reports (
    at, id, decision_id, game, session, client_id, security_profile, entity_id, action, status, outcome,
    remembered, source, local_prediction, policy_version)
SELECT
    at, id, decision_id, game, session, client_id, security_profile, entity_id, action, status, outcome,
    remembered, source, local_prediction, policy_version
FROM new_reports
ON CONFLICT DO NOTHING

-- name: insert_manifests
INSERT INTO manifests (first_at, game, hash, source)
SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[])
ON CONFLICT DO NOTHING

-- name: insert_static_texts
INSERT INTO static_texts (first_at, game, hash, source)
SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[])
ON CONFLICT DO NOTHING

-- name: insert_dead_letters
INSERT INTO dead_letters (id, error, entry)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[])
ON CONFLICT DO NOTHING

-- name: migrations_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    name       text        PRIMARY KEY,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: server_encoding
SELECT current_setting('server_encoding')

-- name: lock_migrations
SELECT pg_advisory_lock(hashtext('muster migrations'))

-- name: migration_timeouts
-- A migration that would wait long behind a lock blocks everyone behind it: give up instead.
SELECT set_config('lock_timeout', '5s', true), set_config('statement_timeout', '300s', true)

-- name: applied_migrations
SELECT name, checksum FROM schema_migrations

-- name: record_migration
INSERT INTO schema_migrations (name, checksum) VALUES ($1, $2)
