-- KEYS: record, bodies. ARGV: guess of the time, member.
local GUESS = ARGV[1]
--TIME--
local found = redis.call('HMGET', KEYS[1], 'r', 'v', 's', 'n')
if not found[1] then return {'none', now, certain} end
local body = redis.call('HMGET', KEYS[2], ARGV[2], '!' .. ARGV[2])
return {'here', now, certain, found[1], found[2], found[3], found[4], body[1], body[2]}
