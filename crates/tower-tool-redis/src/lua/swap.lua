-- KEYS: record, executions, moments of the session's records, moments of the actor's records, bodies, their order; and where they
-- share the server: cards, as `cards` has them.
local expected, revision, deadline, GUESS, value, seal = unpack(ARGV, 1, 6)
local body, body_seal, forget, member, actor, executions = unpack(ARGV, 7, 12)
local nonce, cap_count, cap_bytes, channel, sharded = unpack(ARGV, 13, 17)
local approvals, present, created, open, locator, cards_channel = unpack(ARGV, 18, 23)
--TIME--
--SHARED--
--CARDS--
local there = redis.call('HMGET', KEYS[1], 'r', 'v', 's', 'n', 'a', 'e', 'b')
local is_new = not there[1]
if (there[1] or '') ~= expected then
  if is_new then return {'lost', now, certain} end
  local kept = redis.call('HMGET', KEYS[5], member, '!' .. member)
  return {'lost', now, certain, there[1], there[2], there[3], there[4], kept[1], kept[2]}
end
-- A command that was on its way for too long is nobody's any more.
if now > tonumber(deadline) then return {'late', now, certain} end

local before = there[5] or ''
local answer = {'won', now, certain, false, false, false, false, false, false, before}
local whole = actor .. ':' .. member
local moment = forget == '' and '+inf' or forget
local ends = revision ~= '' and instant(moment) or nil
local session_name, session_end = last(KEYS[3])
local actor_name, actor_end = last(KEYS[4])

-- What needs room comes first, so that a server without room refuses all or nothing.
if revision ~= '' then
  local has_body = body ~= '' and '1' or ''
  redis.call('HSET', KEYS[1], 'r', revision, 'v', value, 's', seal, 'n', nonce, 'a', approvals, 'e', executions, 'b', has_body)
  if forget ~= '' then
    redis.call('PEXPIRE', KEYS[1], text(math.max(1, math.min(tonumber(forget) - now, 4e12)) + SLACK))
  elseif not is_new then
    redis.call('PERSIST', KEYS[1])
  end
elseif not is_new then
  local kept = redis.call('HMGET', KEYS[5], member, '!' .. member)
  answer = {'won', now, certain, there[1], there[2], there[3], there[4], kept[1], kept[2], before}
  redis.call('DEL', KEYS[1])
end

-- Gives how many bytes it was.
local function drop(name)
  local bytes = redis.call('HSTRLEN', KEYS[5], name)
  if bytes > 0 then
    redis.call('HDEL', KEYS[5], name, '!' .. name)
    redis.call('HINCRBY', KEYS[5], '#bytes', -bytes)
  end
  redis.call('ZREM', KEYS[6], name)
  return bytes
end

-- Whether something is left of a record of this name that was forgotten, or is removed now.
local is_stale = revision == ''
if revision == '' then
  redis.call('ZREM', KEYS[3], whole)
  redis.call('ZREM', KEYS[4], member)
else
  local is_added = {redis.call('ZADD', KEYS[3], moment, whole), redis.call('ZADD', KEYS[4], moment, member)}
  is_stale = is_new and is_added[1] + is_added[2] < 2
end
if is_stale or there[7] == '1' then drop(member) end

local function forget_executions(name, ids, kept)
  for id in each(ids) do
    if not kept[id] then redis.call('HDEL', KEYS[2], id) end
  end
  if not next(kept) then redis.call('HDEL', KEYS[2], '@' .. name) end
end
-- Its key is always there where that of the moments is, and so has an end.
if not session_name and revision ~= '' then redis.call('HSET', KEYS[2], '#', '') end
local known = there[6] or ''
if is_stale then known = redis.call('HGET', KEYS[2], '@' .. whole) or '' end
if executions ~= known then
  local kept, was, fields = {}, {}, {'@' .. whole, executions}
  for id in each(known) do was[id] = true end
  for id in each(executions) do
    kept[id] = true
    if not was[id] then
      fields[#fields + 1], fields[#fields + 2] = id, whole
    end
    if #fields > 200 then
      redis.call('HSET', KEYS[2], unpack(fields))
      fields = {}
    end
  end
  if #fields > 0 then redis.call('HSET', KEYS[2], unpack(fields)) end
  forget_executions(whole, known, kept)
end

if is_new then
  -- What became of records that were forgotten since, a few at a time.
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', text(now - SLACK), 'LIMIT', 0, 16)) do
    forget_executions(name, redis.call('HGET', KEYS[2], '@' .. name) or '', {})
    redis.call('ZREM', KEYS[3], name)
  end
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(now - SLACK), 'LIMIT', 0, 16)) do
    drop(name)
    redis.call('ZREM', KEYS[4], name)
  end
end

local is_first_body = false
if body ~= '' then
  if body_seal ~= '' then
    redis.call('HSET', KEYS[5], member, body, '!' .. member, body_seal)
  else
    redis.call('HSET', KEYS[5], member, body)
  end
  local bytes = redis.call('HINCRBY', KEYS[5], '#bytes', #body)
  redis.call('ZADD', KEYS[6], redis.call('HINCRBY', KEYS[5], '#count', 1), member)
  cap_count, cap_bytes = tonumber(cap_count), tonumber(cap_bytes)
  local count = redis.call('ZCARD', KEYS[6])
  -- Keys that were just made have no end yet.
  is_first_body = count == 1
  while count > 0 and (count > cap_count or bytes > cap_bytes) do
    bytes = bytes - drop(redis.call('ZRANGE', KEYS[6], 0, 0)[1])
    count = count - 1
  end
end
age(KEYS[3], session_name, session_end, whole, ends, {KEYS[2], KEYS[3]}, false)
age(KEYS[4], actor_name, actor_end, member, ends, {KEYS[4], KEYS[5], KEYS[6]}, is_first_body)
if KEYS[7] and (before ~= '' or approvals ~= '') then
  cards({KEYS[7], KEYS[8], KEYS[9], KEYS[10]}, before, approvals, present, created, open, locator, moment, cards_channel, sharded)
end
announce(channel, revision, sharded)
return answer
