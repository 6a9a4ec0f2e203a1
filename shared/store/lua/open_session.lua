-- Creates a session's record, or replaces it when the same session is opened again.
--
-- KEYS  1 session (hash)  2 snap  3 asked  4 counts  5 seen  6 cur  7 gone  8 mem  9 last  10 used
-- ARGV  1 now (ms)  2 life of the session's keys (ms)  3 manifest key  4 game
--       then field, value for each other field
-- Returns the record's version.
-- Invariant: a version is never given twice, also not to a session that expired and came back, so that a copy
-- of the record is current exactly when its version is. Memory, latest decisions and used ids outlive a
-- reopening by the same game, only used ids one by another game; a snapshot and its counts are dropped when
-- their types may have changed with the manifest.

local SESSION = KEYS[1]
local now, TTL, manifest_key, game = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

local before = redis.call("HMGET", SESSION, "version", "manifest_key", "game")
local version = math.max(now, tonumber(before[1] or 0) + 1)
if before[3] ~= game then
  redis.call("DEL", unpack(KEYS, 2, 9))
elseif before[2] ~= manifest_key then
  redis.call("DEL", unpack(KEYS, 2, 5))
end
redis.call("DEL", SESSION)
redis.call("HSET", SESSION, "version", version, "created_ms", now, "manifest_key", manifest_key, "game", game)
redis.call("HSET", SESSION, unpack(ARGV, 5))
for _, key in ipairs(KEYS) do
  redis.call("PEXPIRE", key, TTL)
end
return version
