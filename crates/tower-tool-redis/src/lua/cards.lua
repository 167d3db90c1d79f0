local function text(number) return string.format('%.0f', number) end

local function each(list) return string.gmatch(list, '%S+') end

-- Lets keys go once nothing in the sorted set, whose scores are moments, is to be kept any more.
local function age(moments, slack, keys)
  local last = redis.call('ZREVRANGE', moments, 0, 0, 'WITHSCORES')
  if not last[2] then return end
  for _, key in ipairs(keys) do
    if last[2] == 'inf' then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIRE', key, text(math.max(1, math.min(tonumber(last[2]) - now, 4e12)) + slack))
    end
  end
end

-- keys: what each card belongs to, pending cards, moments at which they may be forgotten, how often they changed.
local function cards(keys, before, after, present, created, open, locator, forget, channel)
  local kept = {}
  for id in each(after) do
    kept[id] = true
    if id == present then
      redis.call('HSET', keys[1], id, created .. ' ' .. locator)
    elseif redis.call('HEXISTS', keys[1], id) == 0 then
      redis.call('HSET', keys[1], id, '0 ' .. locator)
    end
    redis.call('ZADD', keys[3], forget, id)
    if id == present and open == '1' then
      redis.call('ZADD', keys[2], created, id)
    elseif open ~= '' then
      redis.call('ZREM', keys[2], id)
    end
  end
  for id in each(before) do
    if not kept[id] then
      redis.call('HDEL', keys[1], id)
      redis.call('ZREM', keys[2], id)
      redis.call('ZREM', keys[3], id)
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys[3], '-inf', text(now), 'LIMIT', 0, 16)) do
    redis.call('HDEL', keys[1], id)
    redis.call('ZREM', keys[2], id)
    redis.call('ZREM', keys[3], id)
  end
  -- Begins at a time, so that it grows although it is forgotten once there are no cards.
  local count = text(math.max((tonumber(redis.call('GET', keys[4])) or 0) + 1, now * 1000))
  redis.call('SET', keys[4], count, 'PX', 86400000)
  age(keys[3], 60000, {keys[1], keys[2], keys[3]})
  age(keys[3], 86400000, {keys[4]})
  redis.pcall('PUBLISH', channel, count)
end
