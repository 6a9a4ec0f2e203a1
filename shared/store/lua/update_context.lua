-- Replaces a session's scopes and profiles, if nobody else has changed the record meanwhile.
--
-- KEYS  1 session (hash)
-- ARGV  1 version that the change was made from  2 hash of the new scopes and profiles
--       3 life of the session's keys (ms)
-- Returns nil for an unknown session, {1, new version} when replaced, {0, current version} when it moved.
-- Invariant: two updates from one version never both succeed.

local SESSION = KEYS[1]

local version = redis.call("HGET", SESSION, "version")
if not version then
  return nil
end
if version ~= ARGV[1] then
  return { 0, tonumber(version) }
end
redis.call("HSET", SESSION, "contexts_hash", ARGV[2])
local replaced = redis.call("HINCRBY", SESSION, "version", 1)
redis.call("PEXPIRE", SESSION, ARGV[3])
return { 1, replaced }
