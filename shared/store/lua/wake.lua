-- Fragment of the queue's scripts: who sleeps, and waking them. Needs `Q` and `now`.
--
-- Q:idle:<route> holds sleeping workers by the time at which they claim by themselves. Invariant kept by every
-- script that makes a lane claimable: somebody live comes by the time its first lane is ready, or nobody
-- sleeps. So a lone item costs one message and one claim, and busy workers are left alone. A sleeper that dies
-- before its time is found out by the next claim, at the latest when the longest sleep of another one ends.

local LATE_MS = 100 -- a worker this far behind its own plan is not relied upon

local function listening(worker)
  return redis.call("PUBSUB", "SHARDNUMSUB", Q .. ":w:" .. worker)[2] > 0
end

-- Whether a live sleeper claims from the route at `at` or earlier without being told. Forgets the dead it
-- meets, and the late: those come by themselves if they come at all.
local function expected(route, at)
  local idle = Q .. ":idle:" .. route
  while true do
    local first = redis.call("ZRANGE", idle, 0, 0, "WITHSCORES")
    local planned = tonumber(first[2])
    if not planned or planned > at then
      return false
    end
    if planned >= now - LATE_MS and listening(first[1]) then
      return true
    end
    redis.call("ZREM", idle, first[1])
  end
end

-- Sees to it that somebody claims from the route at `at`: tells one sleeper how many ms to sleep on, the next
-- one when that one is not really listening.
local function wake(route, at)
  if expected(route, at) then
    return
  end
  local idle = Q .. ":idle:" .. route
  while true do
    local worker = redis.call("ZRANGE", idle, 0, 0)[1]
    if not worker then
      return
    end
    local told = redis.call("SPUBLISH", Q .. ":w:" .. worker, math.max(0, at - now)) > 0
    if told and at > now then
      redis.call("ZADD", idle, at, worker)
    else
      redis.call("ZREM", idle, worker)
    end
    if told then
      return
    end
  end
end

