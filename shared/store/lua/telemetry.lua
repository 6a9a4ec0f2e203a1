-- Takes in one telemetry snapshot: who is there, who arrived, who left.
--
-- KEYS  1 session  2 snap (hash: t gateway's time ms, s scene, b rows)  3 seen (set of "<type>\n<id>")
--       4 cur (hash id -> type)  5 counts (hash type -> distinct ids since the scene began)
--       6 gone (sorted set: id by the time it left)  7 mem  8 last  9 asked
-- ARGV  1 gateway's time (ms)  2 scene  3 life of the session's keys (ms)  4 most members of seen
--       5 how long a departed id stays in gone (ms)  6 most members of gone  7 rows
--       then for each entity: id, type; no id twice
-- Returns nil for an unknown session, 0 for a snapshot older than the latest (ignored), 1 when taken in.
-- Invariant: cur holds exactly the snapshot's entities, gone none of them; a type's count is never below its number alive; an
-- entity that was in a snapshot and is not in the next has neither memory nor latest decision, one that never
-- was in any keeps both (A2G Report). Once seen is full, an arrival counts as new: counting stays bounded.

local SESSION, SNAP, SEEN, CUR, COUNTS, GONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now, scene, TTL, SEEN_CAP = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local GONE_WINDOW, GONE_CAP, ROWS = tonumber(ARGV[5]), tonumber(ARGV[6]), 8

if redis.call("EXISTS", SESSION) == 0 then
  return nil
end
local latest = redis.call("HMGET", SNAP, "t", "s")
if latest[1] and tonumber(latest[1]) > now then
  return 0
end
redis.call("HSET", SNAP, "t", ARGV[1], "s", scene, "b", ARGV[7])
local new_scene = latest[2] ~= scene
if new_scene then
  redis.call("DEL", SEEN, COUNTS)
end

local before, flat = {}, redis.call("HGETALL", CUR)
for at = 1, #flat, 2 do
  before[flat[at]] = flat[at + 1]
end

-- Whether an entity that was not in the previous snapshot of this scene is one never counted before.
local function is_new(member)
  if redis.call("SCARD", SEEN) >= SEEN_CAP then
    return redis.call("SISMEMBER", SEEN, member) == 0
  end
  return redis.call("SADD", SEEN, member) == 1
end

local arrivals, counted = {}, {}
for at = ROWS, #ARGV, 2 do
  local id, kind = ARGV[at], ARGV[at + 1]
  if new_scene or before[id] ~= kind then
    if is_new(kind .. "\n" .. id) then
      counted[kind] = (counted[kind] or 0) + 1
    end
    redis.call("HSET", CUR, id, kind)
    if not before[id] then
      arrivals[#arrivals + 1] = id
    end
  end
  before[id] = nil
end
for kind, number in pairs(counted) do
  redis.call("HINCRBY", COUNTS, kind, number)
end
if arrivals[1] then
  redis.call("ZREM", GONE, unpack(arrivals))
end

local left = {}
for id in pairs(before) do
  left[#left + 1] = id
  redis.call("ZADD", GONE, now, id)
end
if left[1] then
  for _, key in ipairs({ CUR, KEYS[7], KEYS[8] }) do
    redis.call("HDEL", key, unpack(left))
  end
end
redis.call("ZREMRANGEBYSCORE", GONE, "-inf", now - GONE_WINDOW)
redis.call("ZREMRANGEBYRANK", GONE, 0, -GONE_CAP - 1)
redis.call("DEL", KEYS[9])
for at = 1, 8 do
  redis.call("PEXPIRE", KEYS[at], TTL)
end
return 1
