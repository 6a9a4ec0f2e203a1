-- Looks up cached decisions, and decides who asks for those that are missing.
--
-- KEYS  for each question: its cached decision (string), its question in flight (string: the asker)
-- ARGV  1 asker  2 how long a question may be in flight (ms)
-- Returns for each question: the cached value, or 1 when this asker is to ask, or 0 when another one is asking.
-- Invariant: at most one asker is in flight for a question; one that falls silent is forgotten after ARGV 2.

local asker, flight_ms = ARGV[1], ARGV[2]

local results = {}
for at = 1, #KEYS, 2 do
  local result = redis.call("GET", KEYS[at])
  if not result then
    local holder = redis.call("SET", KEYS[at + 1], asker, "NX", "GET", "PX", flight_ms)
    result = (not holder or holder == asker) and 1 or 0
  end
  results[#results + 1] = result
end
return results
