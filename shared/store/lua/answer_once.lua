-- Ends questions in flight: writes the answers that may be reused, and lets others ask for the rest.
--
-- KEYS  for each question: its cached decision (string), its question in flight (string: the asker)
-- ARGV  1 asker  then for each question: value ("" for none), how long it may be reused (ms)
-- Returns the number of questions that this asker had in flight.
-- Invariant: an asker ends no flight but its own; every cached decision expires.

local asker = ARGV[1]

local ended = 0
for at = 1, #KEYS, 2 do
  local value, ttl_ms = ARGV[at + 1], ARGV[at + 2]
  if value ~= "" then
    redis.call("SET", KEYS[at], value, "PX", ttl_ms)
  end
  if redis.call("GET", KEYS[at + 1]) == asker then
    redis.call("DEL", KEYS[at + 1])
    ended = ended + 1
  end
end
return ended
