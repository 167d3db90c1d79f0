-- A bucket is the moment at which it is full again, and the one at which that was written. KEYS: bucket. ARGV: guess of the time, time for a call, room for so much time;
-- all in microseconds, but for the guess.
local time = redis.pcall('TIME')
local now, certain
if time.err then
  now, certain = tonumber(ARGV[1]) * 1000, 0
else
  now, certain = tonumber(time[1]) * 1000000 + tonumber(time[2]), 1
end
local each, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local milliseconds = math.floor(now / 1000)

local function put(full)
  local left = string.format('%.0f', math.max(1, math.ceil((full - now) / 1000)))
  redis.call('SET', KEYS[1], string.format('%.0f %.0f', full, now), 'PX', left)
end

local kept = redis.call('GET', KEYS[1]) or ''
local full, written = string.match(kept, '^(%d+) (%d+)$')
full, written = tonumber(full) or now, tonumber(written) or now
if written > now then
  -- Time stepped back: the bucket is as empty as it was, and fills from here on, not after the step.
  full = full - (written - now)
  if full > now then put(full) end
end
local taken = math.max(full, now) + each
local over = taken - (now + room)
if over > 0 then return {'over', milliseconds, certain, string.format('%.0f', math.ceil(over / 1000))} end
put(taken)
return {'won', milliseconds, certain}
