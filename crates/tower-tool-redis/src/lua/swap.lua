-- KEYS: record, executions, moments of the session's records, moments of the actor's records, bodies, their order; and where they
-- share the server: cards, as `cards` has them.
local expected, revision, deadline, GUESS, value, seal = unpack(ARGV, 1, 6)
local body, body_seal, forget, member, actor, executions = unpack(ARGV, 7, 12)
local nonce, cap_count, cap_bytes, channel = unpack(ARGV, 13, 16)
local approvals, present, created, open, locator, cards_channel = unpack(ARGV, 17, 22)
--TIME--
--CARDS--
local there = redis.call('HMGET', KEYS[1], 'r', 'v', 's', 'n', 'a')
if (there[1] or '') ~= expected then
  if not there[1] then return {'lost', now, certain} end
  local kept = redis.call('HMGET', KEYS[5], member, '!' .. member)
  return {'lost', now, certain, there[1], there[2], there[3], there[4], kept[1], kept[2]}
end
-- A command that was on its way for too long is nobody's any more.
if now > tonumber(deadline) then return {'late', now, certain} end

local before = there[5] or ''
local answer = {'won', now, certain, false, false, false, false, false, false, before}
local whole = actor .. ':' .. member
local moment = forget == '' and '+inf' or forget

-- What needs room comes first, so that a server without room refuses all or nothing.
if revision ~= '' then
  redis.call('HSET', KEYS[1], 'r', revision, 'v', value, 's', seal, 'n', nonce, 'a', approvals)
  if forget == '' then
    redis.call('PERSIST', KEYS[1])
  else
    redis.call('PEXPIRE', KEYS[1], text(math.max(1, math.min(tonumber(forget) - now, 4e12))))
  end
elseif there[1] then
  local kept = redis.call('HMGET', KEYS[5], member, '!' .. member)
  answer = {'won', now, certain, there[1], there[2], there[3], there[4], kept[1], kept[2], before}
  redis.call('DEL', KEYS[1])
end

local kept = {}
for id in each(executions) do
  kept[id] = true
  redis.call('HSET', KEYS[2], id, whole)
end
for id in each(redis.call('HGET', KEYS[2], '@' .. whole) or '') do
  if not kept[id] then redis.call('HDEL', KEYS[2], id) end
end
if executions == '' then
  redis.call('HDEL', KEYS[2], '@' .. whole)
else
  redis.call('HSET', KEYS[2], '@' .. whole, executions)
end

local function drop(name)
  local bytes = redis.call('HSTRLEN', KEYS[5], name)
  if bytes > 0 then
    redis.call('HDEL', KEYS[5], name, '!' .. name)
    redis.call('HINCRBY', KEYS[5], '#bytes', -bytes)
  end
  redis.call('ZREM', KEYS[6], name)
end

drop(member)
if revision == '' then
  redis.call('ZREM', KEYS[3], whole)
  redis.call('ZREM', KEYS[4], member)
else
  redis.call('ZADD', KEYS[3], moment, whole)
  redis.call('ZADD', KEYS[4], moment, member)
end
-- What became of records that were forgotten since, a few at a time.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', text(now), 'LIMIT', 0, 16)) do
  for id in each(redis.call('HGET', KEYS[2], '@' .. name) or '') do redis.call('HDEL', KEYS[2], id) end
  redis.call('HDEL', KEYS[2], '@' .. name)
  redis.call('ZREM', KEYS[3], name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(now), 'LIMIT', 0, 16)) do
  drop(name)
  redis.call('ZREM', KEYS[4], name)
end
if body ~= '' then
  redis.call('HSET', KEYS[5], member, body)
  if body_seal ~= '' then redis.call('HSET', KEYS[5], '!' .. member, body_seal) end
  redis.call('HINCRBY', KEYS[5], '#bytes', #body)
  redis.call('ZADD', KEYS[6], redis.call('HINCRBY', KEYS[5], '#count', 1), member)
  cap_count, cap_bytes = tonumber(cap_count), tonumber(cap_bytes)
  local count = redis.call('ZCARD', KEYS[6])
  while count > 0 and (count > cap_count or tonumber(redis.call('HGET', KEYS[5], '#bytes')) > cap_bytes) do
    drop(redis.call('ZRANGE', KEYS[6], 0, 0)[1])
    count = count - 1
  end
end
age(KEYS[3], 60000, {KEYS[2], KEYS[3]})
age(KEYS[4], 60000, {KEYS[4], KEYS[5], KEYS[6]})
if KEYS[7] and (before ~= '' or approvals ~= '') then
  cards({KEYS[7], KEYS[8], KEYS[9], KEYS[10]}, before, approvals, present, created, open, locator, moment, cards_channel)
end
redis.pcall('PUBLISH', channel, revision)
return answer
