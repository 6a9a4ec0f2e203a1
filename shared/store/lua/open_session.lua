-- Creates a session's record, or replaces it when the same session is opened again.
--
-- KEYS  1 session (hash)  2 snap  3 asked  4 and more: the session's other keys, which a reopening keeps
-- ARGV  1 now (ms)  2 life of the session's keys (ms)  3 manifest key  then field, value for each other field
-- Returns the record's version.
-- Invariant: a version is never given twice, also not to a session that expired and came back, so that a copy
-- of the record is current exactly when its version is. Memory, latest decisions and used ids outlive a
-- reopening; a snapshot is dropped when its types may have changed with the manifest.

local SESSION = KEYS[1]
local now, TTL, manifest_key = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local before = redis.call("HMGET", SESSION, "version", "manifest_key")
local version = math.max(now, tonumber(before[1] or 0) + 1)
if before[2] ~= manifest_key then
  redis.call("DEL", KEYS[2], KEYS[3])
end
redis.call("DEL", SESSION)
redis.call("HSET", SESSION, "version", version, "created_ms", now, "manifest_key", manifest_key, unpack(ARGV, 4))
for _, key in ipairs(KEYS) do
  redis.call("PEXPIRE", key, TTL)
end
return version
