-- Hands one worker the most urgent batch that is ready, or writes it down as asleep.
--
-- Order of work: batches whose lease has ended go back to their lanes (or are dropped with a reply); lanes
-- whose time has come become ready; the most urgent ready lane is emptied by deadline up to the worker's cap.
-- Items that nobody could answer in time are dropped with a reply, never returned. Every `share`-th batch goes
-- to a lower class, in turn each of them, so that none starves.
--
-- KEYS  1 prefix of the shard ("{q0}"); the keys built on it are named in lanes.lua, wake.lua, admit.lua, and
--         Q:b:<batch> (hash: fence, and a field per unanswered item), Q:leases (batch by end of lease),
--         Q:turn (batches claimed so far), Q:r:<gateway> (stream of replies: i item, c code)
-- ARGV  1 now (ms)  2 worker  3 batch (an id never used before)  4 lease (ms)  5 least time worth a call (ms)
--       6 longest sleep (ms)  7 share: every how many batches a lower class goes first, 0 never
--       8 most attempts per item  9 life of the queue's keys (ms)  10 life of a reply stream (ms)
--       11 length of a reply stream  then for each route: name, most questions of a batch (0: not now)
-- Returns {batch, lane, class, fence, route, then per item: id, gateway, attempts before, deadline, payload},
--      or {ms after which to claim again unless woken before}.
-- Invariant: an item is in its lane or in one batch, never in both; counters as in admit.lua; the sleeper rule
-- of wake.lua.

local Q = KEYS[1]
local now = tonumber(ARGV[1])
local WORKER, BATCH, LEASE, MIN_LEFT = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local MAX_SLEEP, SHARE, MAX_ATTEMPTS, TTL = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local REPLY_TTL, REPLY_LENGTH = ARGV[10], ARGV[11]
--- @include lanes
--- @include wake
local MAX_TAKEOVERS = 16 -- ended leases handled by one claim
local MAX_LOOKS = 16 -- lanes looked at by one claim: bounds what dropping late items costs the others
local CHUNK = 1000 -- values that Lua unpacks at once and items of a batch, well below the interpreter's limit

local caps, routes = {}, {}
for at = 12, #ARGV, 2 do
  routes[#routes + 1] = ARGV[at]
  caps[ARGV[at]] = tonumber(ARGV[at + 1])
end

local function drop(item, gateway, code)
  if redis.call("DEL", Q .. ":i:" .. item) == 1 then
    local replies = Q .. ":r:" .. gateway
    redis.call("XADD", replies, "MAXLEN", "~", REPLY_LENGTH, "*", "i", item, "c", code)
    redis.call("PEXPIRE", replies, REPLY_TTL)
  end
end

-- An item whose worker went silent: back to its lane, ready at once, if there is time and it was not tried
-- too often.
local function take_back(item)
  local found = redis.call("HMGET", Q .. ":i:" .. item, "m", "l", "r", "d", "g")
  local member, lane_key, route, deadline = found[1], found[2], found[3], tonumber(found[4])
  if not member then
    return -- answered, cancelled or expired
  end
  local attempts = redis.call("HINCRBY", Q .. ":i:" .. item, "a", 1)
  if deadline - now < MIN_LEFT or attempts >= MAX_ATTEMPTS then
    drop(item, found[5], "unavailable")
    return
  end
  local questions, bytes = parse(member)
  redis.call("ZADD", Q .. ":l:" .. lane_key, deadline, member)
  count_lane(lane_key, questions, bytes)
  redis.call("INCRBY", Q .. ":depth", questions)
  redis.call("INCRBY", Q .. ":bytes", bytes)
  for _, key in ipairs({ ":l:" .. lane_key, ":n", ":depth", ":bytes" }) do
    redis.call("PEXPIRE", Q .. key, TTL)
  end
  place_lane(route, lane_key)
  if not caps[route] then
    wake(route, now)
  end
end

local function take_over()
  for _, batch in ipairs(redis.call("ZRANGE", Q .. ":leases", "-inf", now, "BYSCORE", "LIMIT", 0, MAX_TAKEOVERS)) do
    for _, item in ipairs(redis.call("HKEYS", Q .. ":b:" .. batch)) do
      if item ~= "fence" then
        take_back(item)
      end
    end
    redis.call("DEL", Q .. ":b:" .. batch)
    redis.call("ZREM", Q .. ":leases", batch)
  end
end

-- Moves the lanes whose time has come from due to ready.
local function promote(route)
  local due, ready = Q .. ":due:" .. route, Q .. ":ready:" .. route
  local lanes = redis.call("ZRANGE", due, "-inf", now, "BYSCORE")
  if not lanes[1] then
    return
  end
  local scored = {}
  for _, lane_key in ipairs(lanes) do
    -- A lane that has expired goes to the front of its class, where it is looked at and forgotten.
    local earliest = redis.call("ZRANGE", Q .. ":l:" .. lane_key, 0, 0, "WITHSCORES")[2] or 0
    scored[#scored + 1] = class_of(lane_key) * CLASS_SPAN + earliest
    scored[#scored + 1] = lane_key
  end
  for at = 1, #scored, CHUNK do
    redis.call("ZADD", ready, unpack(scored, at, math.min(at + CHUNK - 1, #scored)))
  end
  redis.call("ZREMRANGEBYSCORE", due, "-inf", now)
  redis.call("PEXPIRE", ready, TTL)
end

-- The ready lane of the route to look at: {lane key, score}, empty when there is none. `lowest` is the lower
-- class whose turn it is: it or the next more urgent one that waits.
local function candidate(route, lowest)
  local ready = Q .. ":ready:" .. route
  if not lowest then
    return redis.call("ZRANGE", ready, 0, 0, "WITHSCORES")
  end
  local top = "(" .. string.format("%.0f", (lowest + 1) * CLASS_SPAN)
  local last = redis.call("ZRANGE", ready, top, 0, "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES")
  if not last[1] then
    return last
  end
  local floor = math.floor(tonumber(last[2]) / CLASS_SPAN) * CLASS_SPAN
  return redis.call("ZRANGE", ready, floor, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
end

-- The lane to serve next among all routes the worker serves now.
local function pick(lowest)
  local best_route, best_lane, best_class, best_score
  for _, route in ipairs(routes) do
    local found = caps[route] > 0 and candidate(route, lowest) or {}
    if found[1] then
      local score = tonumber(found[2])
      local class = math.floor(score / CLASS_SPAN)
      local earlier = not best_score or (class == best_class and score < best_score)
      local other_class = best_class and class ~= best_class and (class > best_class) == (lowest ~= nil)
      if earlier or other_class then
        best_route, best_lane, best_class, best_score = route, found[1], class, score
      end
    end
  end
  if lowest and not best_lane then
    return pick(nil)
  end
  return best_route, best_lane
end

-- Takes items from the lane's head up to the cap; returns the reply's part for them, empty when all were late.
local function take(route, lane_key)
  local lane, cap = Q .. ":l:" .. lane_key, caps[route]
  local members = redis.call("ZRANGE", lane, 0, math.min(cap, CHUNK) - 1, "WITHSCORES")
  if not members[1] then -- the lane's key has expired
    forget_lane(route, lane_key)
    return {}
  end
  local taken, taken_questions, looked, questions, bytes = {}, 0, 0, 0, 0
  for at = 1, #members, 2 do
    local q, b, _, _, item = parse(members[at])
    local deadline = tonumber(members[at + 1])
    if deadline - now < MIN_LEFT then
      local gateway = redis.call("HGET", Q .. ":i:" .. item, "g")
      if gateway then
        drop(item, gateway, "busy")
      end
    elseif taken_questions > 0 and taken_questions + q > cap then
      break
    else
      local found = redis.call("HMGET", Q .. ":i:" .. item, "g", "a", "p")
      if found[1] then
        taken_questions = taken_questions + q
        for _, value in ipairs({ item, found[1], found[2], members[at + 1], found[3] }) do
          taken[#taken + 1] = value
        end
      end
    end
    looked, questions, bytes = looked + 1, questions + q, bytes + b
  end
  redis.call("ZREMRANGEBYRANK", lane, 0, looked - 1)
  uncount(questions, bytes)
  if count_lane(lane_key, 0 - questions, 0 - bytes) == 0 then
    forget_lane(route, lane_key)
  else
    place_lane(route, lane_key)
  end
  return taken
end

local function lease(route, lane_key, taken, turn)
  redis.call("SET", Q .. ":turn", turn, "PX", TTL)
  local class, lane = string.match(lane_key, "^(%d+):(.*)$")
  local reply, fields = { BATCH, lane, tonumber(class), turn, route }, { "fence", turn }
  for at, value in ipairs(taken) do
    reply[#reply + 1] = value
    if at % 5 == 1 then
      fields[#fields + 1] = value
      fields[#fields + 1] = 1
    end
  end
  local batch = Q .. ":b:" .. BATCH
  redis.call("HSET", batch, unpack(fields))
  redis.call("PEXPIRE", batch, TTL)
  redis.call("ZADD", Q .. ":leases", now + LEASE, BATCH)
  redis.call("PEXPIRE", Q .. ":leases", TTL)
  return reply
end

-- When the route's first lane can be claimed, nil when none waits.
local function first_ready(route)
  if redis.call("EXISTS", Q .. ":ready:" .. route) == 1 then
    return now
  end
  return tonumber(redis.call("ZRANGE", Q .. ":due:" .. route, 0, 0, "WITHSCORES")[2])
end

-- Writes the worker down as asleep; it comes by itself for what no other sleeper comes for.
local function sleep()
  local plan = now + MAX_SLEEP
  for _, route in ipairs(routes) do
    local at = first_ready(route)
    if at and caps[route] == 0 then
      wake(route, at) -- this worker may have been the one whom others relied upon
    elseif at and at < plan and not expected(route, at) then
      plan = at
    end
  end
  plan = math.min(plan, tonumber(redis.call("ZRANGE", Q .. ":leases", 0, 0, "WITHSCORES")[2] or plan))
  for _, route in ipairs(routes) do
    if caps[route] > 0 then
      redis.call("ZADD", Q .. ":idle:" .. route, plan, WORKER)
      redis.call("PEXPIRE", Q .. ":idle:" .. route, TTL)
    end
  end
  return { math.max(0, plan - now) }
end

for _, route in ipairs(routes) do
  redis.call("ZREM", Q .. ":idle:" .. route, WORKER)
end
take_over()
for _, route in ipairs(routes) do
  promote(route)
end
local turn = tonumber(redis.call("GET", Q .. ":turn") or 0) + 1
local lowest
if SHARE > 0 and turn % SHARE == 0 then
  lowest = 3 - math.floor(turn / SHARE) % 3
end
for _ = 1, MAX_LOOKS do
  local route, lane_key = pick(lowest)
  if not route then
    break
  end
  local taken = take(route, lane_key)
  if taken[1] then
    for _, other in ipairs(routes) do
      local at = first_ready(other)
      if at then
        wake(other, at)
      end
    end
    return lease(route, lane_key, taken, turn)
  end
end
return sleep()
