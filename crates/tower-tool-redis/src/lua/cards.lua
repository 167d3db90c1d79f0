-- keys: what each card belongs to, pending cards, moments at which they may be forgotten, how often they changed.
local function cards(keys, before, after, present, created, open, locator, forget, channel, sharded)
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
  local function drop(id)
    redis.call('HDEL', keys[1], id)
    redis.call('ZREM', keys[2], id)
    redis.call('ZREM', keys[3], id)
  end
  for id in each(before) do
    if not kept[id] then drop(id) end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys[3], '-inf', text(now - SLACK), 'LIMIT', 0, 16)) do drop(id) end
  -- Begins at a time, so that it grows although it is forgotten once there are no cards.
  local count = text(math.max((tonumber(redis.call('GET', keys[4])) or 0) + 1, now * 1000))
  redis.call('SET', keys[4], count)
  local _, moment = last(keys[3])
  keep({keys[1], keys[2], keys[3]}, moment, MINUTE)
  keep({keys[4]}, moment, 1440 * MINUTE)
  announce(channel, count, sharded)
end
