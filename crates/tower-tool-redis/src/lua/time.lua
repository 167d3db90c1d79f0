-- Server time in milliseconds. A user may not be allowed to ask for it: then the client's estimate has to do.
local time = redis.pcall('TIME')
local now, certain
if time.err then
  now, certain = tonumber(GUESS), 0
else
  now, certain = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), 1
end
