-- A bucket is the moment at which it is full again. KEYS: bucket. ARGV: guess of the time, time for a call, room for so much time;
-- all in microseconds, but for the guess.
local time = redis.pcall('TIME')
local now, certain
if time.err then
  now, certain = tonumber(ARGV[1]) * 1000, 0
else
  now, certain = tonumber(time[1]) * 1000000 + tonumber(time[2]), 1
end
local each, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local full = tonumber(redis.call('GET', KEYS[1])) or now
-- No bucket is emptier than empty. It seems so where time stepped back, and would for as long as the step.
full = math.min(math.max(full, now), now + room) + each
local over = full - (now + room)
local milliseconds = math.floor(now / 1000)
if over > 0 then return {'over', milliseconds, certain, string.format('%.0f', math.ceil(over / 1000))} end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', string.format('%.0f', math.max(1, math.ceil((full - now) / 1000))))
return {'won', milliseconds, certain}
