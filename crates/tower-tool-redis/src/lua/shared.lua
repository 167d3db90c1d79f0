-- For so long after its end a record is kept, in milliseconds: whoever asks may be a little behind.
local SLACK = 1000

-- Ends of keys are set anew once a minute, not with every record.
local MINUTE = 60000

local function text(number) return string.format('%.0f', number) end

local function each(list) return string.gmatch(list, '%S+') end

local function instant(score)
  if score == 'inf' or score == '+inf' then return math.huge end
  return tonumber(score)
end

-- The name and the moment of what is to be kept longest.
local function last(moments)
  local found = redis.call('ZREVRANGE', moments, 0, 0, 'WITHSCORES')
  return found[1], found[2] and instant(found[2])
end

-- Keeps keys until all that they are for may be forgotten: nothing, something until a moment, or something for ever.
local function keep(keys, moment, slack)
  for _, key in ipairs(keys) do
    if moment == math.huge then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIRE', key, text(math.max(1, math.min((moment or now) - now, 4e12)) + slack))
    end
  end
end

-- As `keep`, after one name in the sorted set has got another moment, or none: as little as possible.
local function age(moments, before_name, before, name, moment, keys, is_forced)
  local after = moment
  if before_name == name and (not moment or moment < before) or is_forced then
    local _
    _, after = last(moments)
  elseif before and (not moment or moment < before) then
    after = before
  end
  local minute = after and math.floor(after / MINUTE)
  if is_forced or not before or minute ~= math.floor(before / MINUTE) then
    keep(keys, after and (minute + 1) * MINUTE, MINUTE)
  end
end

-- In a cluster an announcement stays in its slot, where the server can do that.
local function announce(channel, what, sharded)
  -- An error is a table, and else it is how many heard.
  if sharded == '1' and type(redis.pcall('SPUBLISH', channel, what)) == 'number' then return end
  redis.pcall('PUBLISH', channel, what)
end
