-- Puts items into their lanes and sees to it that a worker comes for them.
--
-- KEYS  1 prefix of the shard ("{q0}"); the keys built on it are named in lanes.lua and wake.lua, and
--         Q:i:<item> (hash p payload, m lane member, l lane key, r route, d deadline ms, a attempts, g gateway),
--         Q:depth, Q:bytes (strings, waiting questions and payload bytes)
-- ARGV  1 now (ms)  2 most waiting questions  3 most waiting payload bytes  4 life of the queue's keys (ms)
--       5 how long an item's key outlives its deadline (ms)
--       then for each item: id, gateway, route, class (0 most urgent … 3), lane, deadline (ms), questions,
--       questions of a full batch (the same for all items of a lane), linger (ms), payload
-- Returns one number per item: 1 admitted (also when it was before), 0 refused because the queue is full.
-- Invariant: depth, bytes and n equal the sums over the lanes; no bound is exceeded.

local Q = KEYS[1]
local now = tonumber(ARGV[1])
local MAX_DEPTH, MAX_BYTES, TTL, GRACE = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
--- @include lanes
--- @include wake
local FIELDS = 10

local fresh = {} -- keys whose life starts anew

-- Puts the lane among the ready or the due after one item joined it; returns when it is ready.
local function join_lane(route, lane_key, waiting, full, ready_at, deadline)
  local ready, due = Q .. ":ready:" .. route, Q .. ":due:" .. route
  local is_full = waiting >= full
  if is_full or redis.call("ZSCORE", ready, lane_key) then
    redis.call("ZADD", ready, "LT", class_of(lane_key) * CLASS_SPAN + deadline, lane_key)
    if is_full then
      redis.call("ZREM", due, lane_key)
    end
    fresh[ready] = true
    return now
  end
  redis.call("ZADD", due, "LT", ready_at, lane_key)
  fresh[due] = true
  return ready_at
end

-- Stores one item; returns when its lane is ready.
local function insert(at, lane_key, route, deadline, questions, payload)
  local item, full, linger = ARGV[at], ARGV[at + 7], tonumber(ARGV[at + 8])
  -- Of a near deadline at most a quarter is spent on waiting for company.
  local ready_at = now + math.max(0, math.min(linger, math.floor((deadline - now) / 4)))
  local member = string.format("%d|%d|%.0f|%d|%s", questions, #payload, ready_at, full, item)
  local key, lane = Q .. ":i:" .. item, Q .. ":l:" .. lane_key
  redis.call("HSET", key, "p", payload, "m", member, "l", lane_key, "r", route, "d", deadline, "a", 0,
    "g", ARGV[at + 1])
  redis.call("PEXPIRE", key, math.max(1, deadline - now + GRACE))
  redis.call("ZADD", lane, deadline, member)
  fresh[lane] = true
  local waiting = count_lane(lane_key, questions, #payload)
  return join_lane(route, lane_key, waiting, tonumber(full), ready_at, deadline)
end

local results, wakes = {}, {}
local totals = redis.call("MGET", Q .. ":depth", Q .. ":bytes")
local depth, bytes = tonumber(totals[1] or 0), tonumber(totals[2] or 0)
for at = 6, #ARGV, FIELDS do
  local route, lane_key = ARGV[at + 2], ARGV[at + 3] .. ":" .. ARGV[at + 4]
  local deadline, questions, payload = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]), ARGV[at + 9]
  local admitted = 1
  if redis.call("EXISTS", Q .. ":i:" .. ARGV[at]) == 0 then
    if depth + questions > MAX_DEPTH or bytes + #payload > MAX_BYTES then
      admitted = 0
    else
      depth, bytes = depth + questions, bytes + #payload
      local ready_at = insert(at, lane_key, route, deadline, questions, payload)
      wakes[route] = math.min(wakes[route] or ready_at, ready_at)
    end
  end
  results[#results + 1] = admitted
end

if next(wakes) then
  redis.call("SET", Q .. ":depth", depth, "PX", TTL)
  redis.call("SET", Q .. ":bytes", bytes, "PX", TTL)
  fresh[Q .. ":n"] = true
end
for key in pairs(fresh) do
  redis.call("PEXPIRE", key, TTL)
end
for route, ready_at in pairs(wakes) do
  wake(route, ready_at)
end
return results
