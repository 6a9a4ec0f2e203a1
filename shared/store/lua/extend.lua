-- Moves the end of a batch's lease.
--
-- KEYS  1 prefix of the shard ("{q0}"): Q:b:<batch>, Q:leases
-- ARGV  1 now (ms)  2 batch  3 fence from the claim  4 lease from now (ms)  5 life of the queue's keys (ms)
-- Returns 1 when the lease was moved, 0 when the fence is not this claim's any more.
-- Invariant: a batch that was taken over never comes back to life.

local Q = KEYS[1]
local batch = Q .. ":b:" .. ARGV[2]

if redis.call("HGET", batch, "fence") ~= ARGV[3] then
  return 0
end
redis.call("ZADD", Q .. ":leases", tonumber(ARGV[1]) + tonumber(ARGV[4]), ARGV[2])
redis.call("PEXPIRE", batch, ARGV[5])
redis.call("PEXPIRE", Q .. ":leases", ARGV[5])
return 1
