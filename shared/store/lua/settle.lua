-- Answers items of a claimed batch: the only way in which a reply and its log entry come to be.
--
-- KEYS  1 prefix of the shard ("{q0}"): Q:b:<batch>, Q:leases, Q:i:<item>, Q:r:<gateway> (stream: i item,
--         b reply), Q:log (stream: e entry)
-- ARGV  1 batch  2 fence from the claim  3 final: 1 when the worker is done with the batch, else 0
--       4 length of a reply stream  5 life of a reply stream (ms)  6 length of the log  7 life of the log (ms)
--       then for each item: id, gateway, reply, log entry ("" for none)
-- Returns {0} when the fence is not this claim's any more: nothing has happened.
--      Else {1, per item: 1 answered, 0 answered or cancelled before}.
-- Invariant: deleting an item's key decides who answers it, and that happens once. Items that a final settle
-- leaves unanswered are taken back by the next claim, as if the lease had ended.

local Q = KEYS[1]
local BATCH, FENCE, FINAL = ARGV[1], ARGV[2], ARGV[3] == "1"
local REPLY_LENGTH, REPLY_TTL, LOG_LENGTH, LOG_TTL = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local batch, log, leases = Q .. ":b:" .. BATCH, Q .. ":log", Q .. ":leases"

if redis.call("HGET", batch, "fence") ~= FENCE then
  return { 0 }
end
local flags, gateways, logged = { 1 }, {}, false
for at = 8, #ARGV, 4 do
  local item, gateway, entry = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  local answers = redis.call("HDEL", batch, item) == 1 and redis.call("DEL", Q .. ":i:" .. item) == 1
  if answers then
    redis.call("XADD", Q .. ":r:" .. gateway, "MAXLEN", "~", REPLY_LENGTH, "*", "i", item, "b", ARGV[at + 2])
    gateways[gateway] = true
    if entry ~= "" then
      redis.call("XADD", log, "MAXLEN", "~", LOG_LENGTH, "*", "e", entry)
      logged = true
    end
  end
  flags[#flags + 1] = answers and 1 or 0
end
for gateway in pairs(gateways) do
  redis.call("PEXPIRE", Q .. ":r:" .. gateway, REPLY_TTL)
end
if logged then
  redis.call("PEXPIRE", log, LOG_TTL)
end
if FINAL then
  if redis.call("HLEN", batch) == 1 then
    redis.call("DEL", batch)
    redis.call("ZREM", leases, BATCH)
  else
    redis.call("HDEL", batch, "fence")
    redis.call("ZADD", leases, "XX", 0, BATCH)
  end
end
return flags
