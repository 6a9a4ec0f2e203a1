-- Gives up items: the gateway answers them itself, and nobody else will.
--
-- KEYS  1 prefix of the shard ("{q0}"); the keys built on it are named in lanes.lua and admit.lua
-- ARGV  1 life of the queue's keys (ms)  then the items' ids
-- Returns one number per item: 2 it was still queued, 1 it was claimed (a late settle answers nobody),
--      0 it is gone: its reply is on the way, was read, or came from a cancel before.
-- Invariant: counters as in admit.lua; deleting the item's key decides, as in settle.lua.

local Q = KEYS[1]
local TTL = ARGV[1]
--- @include lanes

-- Takes one item away; returns its verdict and, when it was queued, its lane key and route.
local function give_up(item)
  local key = Q .. ":i:" .. item
  local found = redis.call("HMGET", key, "m", "l", "r")
  local member, lane_key = found[1], found[2]
  if not member then
    return 0
  end
  redis.call("DEL", key)
  if redis.call("ZREM", Q .. ":l:" .. lane_key, member) == 0 then
    return 1
  end
  local questions, bytes = parse(member)
  uncount(questions, bytes)
  count_lane(lane_key, 0 - questions, 0 - bytes)
  return 2, lane_key, found[3]
end

local verdicts, touched = {}, {}
for at = 2, #ARGV do
  local verdict, lane_key, route = give_up(ARGV[at])
  verdicts[#verdicts + 1] = verdict
  if verdict == 2 then
    touched[lane_key] = route
  end
end
for lane_key, route in pairs(touched) do
  place_lane(route, lane_key)
end
return verdicts
