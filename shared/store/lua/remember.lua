-- Writes fields of a bounded hash: latest decisions, or entities known from decide requests.
--
-- KEYS  1 the hash
-- ARGV  1 life of the session's keys (ms)  2 most fields  then field, value for each: no more than the bound
-- Returns the number of fields that are new.
-- Invariant: never more fields than the bound; what this call wrote is there. Random others make room.

local HASH, TTL, MAX_FIELDS = KEYS[1], ARGV[1], tonumber(ARGV[2])
--- @include bounded

local written = {}
for at = 3, #ARGV, 2 do
  written[ARGV[at]] = true
end
local added = redis.call("HSET", HASH, unpack(ARGV, 3))
make_room(HASH, MAX_FIELDS, written)
redis.call("PEXPIRE", HASH, TTL)
return added
