-- Fragment of scripts that keep a hash bounded.

-- Removes random fields other than `kept` (a set of fields that are there, at most `most`) until the hash has
-- at most `most`: what was written last is worth more than any one of the others.
local function make_room(key, most, kept)
  local excess = redis.call("HLEN", key) - most
  if excess <= 0 then
    return
  end
  local sample = excess
  for _ in pairs(kept) do
    sample = sample + 1
  end
  for _, field in ipairs(redis.call("HRANDFIELD", key, sample)) do
    if excess > 0 and not kept[field] then
      redis.call("HDEL", key, field)
      excess = excess - 1
    end
  end
end

