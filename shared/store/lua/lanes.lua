-- Fragment of the queue's scripts: how lanes lie in Redis. Needs `Q`, the shard's prefix ("{q0}"), and `TTL`,
-- the life of the queue's keys in ms.
--
-- A lane key is "<class>:<lane>". What exists of a lane:
--   Q:l:<lane key>    sorted set of members by deadline; a member is "<questions>|<bytes>|<ready at>|<full>|<item>",
--                     so that counters stay exact when an item's own key has expired
--   Q:n               hash lane key -> waiting questions * LOAD_UNIT + waiting payload bytes, one number so that
--                     one command counts both
--   Q:ready:<route>   sorted set of the lanes that may be claimed, by class * CLASS_SPAN + earliest deadline
--   Q:due:<route>     sorted set of the others, by the time at which their first item has waited long enough
-- Invariant: a lane with waiting items is in exactly one of ready and due; one without is nowhere.
-- A lane is ready when it holds `full` questions (the same for all its items) or an item's ready time has come.

local CLASS_SPAN = 4398046511104 -- 2^42 ms lies in the year 2109; four classes stay exact in a double
local LOAD_UNIT = 4294967296 -- 2^32: a lane holds less than 4 GiB and 2^21 questions

local function parse(member)
  local questions, bytes, ready_at, full, item = string.match(member, "^(%d+)|(%d+)|(%d+)|(%d+)|(.*)$")
  return tonumber(questions), tonumber(bytes), tonumber(ready_at), tonumber(full), item
end

local function class_of(lane_key)
  return tonumber(string.match(lane_key, "^%d+"))
end

-- Adds to what waits in the lane; returns the questions that wait there now.
local function count_lane(lane_key, questions, bytes)
  local load = redis.call("HINCRBY", Q .. ":n", lane_key, questions * LOAD_UNIT + bytes)
  return math.floor(load / LOAD_UNIT)
end

-- Takes from what waits in the shard.
local function uncount(questions, bytes)
  redis.call("DECRBY", Q .. ":depth", questions)
  redis.call("DECRBY", Q .. ":bytes", bytes)
end

-- Removes what is left of an empty lane. Something is still counted only when the lane's key has expired, and
-- with it all its items.
local function forget_lane(route, lane_key)
  local load = tonumber(redis.call("HGET", Q .. ":n", lane_key) or 0)
  if load > 0 then
    uncount(math.floor(load / LOAD_UNIT), load % LOAD_UNIT)
  end
  redis.call("HDEL", Q .. ":n", lane_key)
  redis.call("ZREM", Q .. ":ready:" .. route, lane_key)
  redis.call("ZREM", Q .. ":due:" .. route, lane_key)
end

-- Puts a lane where it belongs after its items changed. Looks at all members only while they are fewer than
-- a full batch.
local function place_lane(route, lane_key)
  local lane, ready, due = Q .. ":l:" .. lane_key, Q .. ":ready:" .. route, Q .. ":due:" .. route
  local head = redis.call("ZRANGE", lane, 0, 0, "WITHSCORES")
  if not head[1] then
    forget_lane(route, lane_key)
    return
  end
  local _, _, first, full = parse(head[1])
  if tonumber(redis.call("HGET", Q .. ":n", lane_key)) >= full * LOAD_UNIT then
    redis.call("ZREM", due, lane_key)
    redis.call("ZADD", ready, class_of(lane_key) * CLASS_SPAN + tonumber(head[2]), lane_key)
    redis.call("PEXPIRE", ready, TTL)
    return
  end
  for _, member in ipairs(redis.call("ZRANGE", lane, 1, -1)) do
    local _, _, ready_at = parse(member)
    first = math.min(first, ready_at)
  end
  redis.call("ZREM", ready, lane_key)
  redis.call("ZADD", due, first, lane_key)
  redis.call("PEXPIRE", due, TTL)
end

