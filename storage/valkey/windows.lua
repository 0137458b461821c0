-- A moving window is the list of the times at which something was taken, oldest first, in microseconds.
-- It is kept a minute longer than it counts: a caller's clock, if one is given, need not run as the server's does.

local GRACE = 60 * 1000

local function moment(given)
  if given ~= "" then
    return tonumber(given)
  end
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end

-- The first of those that are younger than `oldest`, by halves: a list reaches its middle in steps.
local function first_after(window, oldest, count)
  local low, high = 0, count - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(redis.call("LINDEX", window, middle)) <= oldest then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Drops what no longer counts. Answers how many are left, and the time, which never goes back within a window.
local function trim(window, length, now)
  local last = tonumber(redis.call("LINDEX", window, -1) or now)
  if last <= now - length or last > now + length then
    -- In the second case the clock was set back by more than the window, which would stay shut until it caught up.
    redis.call("DEL", window)
    return 0, now
  end
  now = math.max(now, last)
  local count = redis.call("LLEN", window)
  if count > 0 and tonumber(redis.call("LINDEX", window, 0)) <= now - length then
    local first = first_after(window, now - length, count)
    redis.call("LTRIM", window, first, -1)
    count = count - first
  end
  return count, now
end

-- Answers what is left and the microseconds until something is free again; less than nothing left means refused.
local function spend(keys, args)
  local window, amount, length, cost = keys[1], tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local taken, now = trim(window, length, moment(args[4]))
  local left = amount - taken - cost
  if left < 0 then
    if -left > taken then
      return {left, length}
    end
    return {left, tonumber(redis.call("LINDEX", window, -left - 1)) + length - now}
  end
  local time = string.format("%.0f", now)
  for _ = 1, cost do
    redis.call("RPUSH", window, time)
  end
  redis.call("PEXPIRE", window, length / 1000 + GRACE)
  return {left, tonumber(redis.call("LINDEX", window, 0)) + length - now}
end

local function used(keys, args)
  return (trim(keys[1], tonumber(args[1]), moment(args[2])))
end

redis.register_function(LIBRARY .. "_spend", spend)
redis.register_function(LIBRARY .. "_used", used)
