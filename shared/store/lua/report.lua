-- Takes in one report: each decision is reported once, and becomes its entity's memory.
--
-- KEYS  1 session  2 used (sorted set: decision id by the time after which none is accepted)  3 gone
--       4 mem (hash entity -> reports joined by "\n", oldest first)
-- ARGV  1 now (ms)  2 when the id expires (ms)  3 decision id  4 entity id  5 report, text without a newline
--       6 life of the session's keys (ms)  7 most reports per entity  8 most entities with memory
-- Returns nil for an unknown session, 0 when the decision was reported before, 1 remembered, 2 to be logged
-- only: the entity has left telemetry.
-- Invariant: a decision id is remembered at most once and kept as used until it expires; memory is bounded. At
-- the bound on entities a random other one loses its memory.

local SESSION, USED, GONE, MEM = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, expires, entity, report = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local TTL, MAX_REPORTS, MAX_ENTITIES = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
--- @include bounded

if redis.call("EXISTS", SESSION) == 0 then
  return nil
end
redis.call("ZREMRANGEBYSCORE", USED, "-inf", now)
if redis.call("ZADD", USED, "NX", expires, ARGV[3]) == 0 then
  return 0
end
redis.call("PEXPIRE", USED, TTL)
redis.call("PEXPIRE", SESSION, TTL)
if redis.call("ZSCORE", GONE, entity) then
  return 2
end

local reports = { report }
for earlier in string.gmatch(redis.call("HGET", MEM, entity) or "", "[^\n]+") do
  table.insert(reports, #reports, earlier)
end
local memory = table.concat(reports, "\n", math.max(1, #reports - MAX_REPORTS + 1))
redis.call("HSET", MEM, entity, memory)
make_room(MEM, MAX_ENTITIES, { [entity] = true })
redis.call("PEXPIRE", MEM, TTL)
return 1
