-- Follows the code of valkey/functions.lua in one library: the ephemeral tier is kept as that file keeps entries, and
-- changed with its words. Beside the keys that it names, of the same stem:
--   :holders  hash, HOLDER -> "UNTIL:ALONE:KEYS:BYTES", whose turn it is on some keys, or alone; how long; its pledge
--   :held     hash, key -> HOLDER
--   :queue    sorted set, HOLDER -> the number of its arrival, of those that wait for a turn
--   :asked    hash, HOLDER -> when it last asked, of the same
--   :doubt    set of the keys whose holder ended in the middle of a turn: they may be in both tiers
--   :moved    sorted set, key -> when it went over to the durable tier, in microseconds, of the last seconds
--   :kept:... the answer that a token has had, where the ephemeral tier alone was written
-- Turns are timed by the server's own clock, in milliseconds.

-- One that has not asked for so long is not waiting any more.
local PATIENCE = 1000
-- Longer than any reader takes from one tier to the other.
local MEMORY = 15000

local function microseconds()
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end

local function clock()
  return math.floor(microseconds() / 1000)
end

local function turn(raw)
  local ends, alone, keys, bytes = string.match(raw, "^(%d+):(%d):(%d+):(%d+)$")
  return {ends = tonumber(ends), alone = alone == "1", keys = tonumber(keys), bytes = tonumber(bytes)}
end

-- Only while it lasts may a holder change anything here.
local function has_turn(space, holder)
  local raw = redis.call("HGET", space .. ":holders", holder)
  return raw and turn(raw).ends > clock()
end

local function give_up(space, holder)
  redis.call("HDEL", space .. ":holders", holder)
  local held = redis.call("HGETALL", space .. ":held")
  for at = 1, #held, 2 do
    if held[at + 1] == holder then
      redis.call("HDEL", space .. ":held", held[at])
      redis.call("SADD", space .. ":doubt", held[at])
    end
  end
end

-- Those whose turn it is. Whoever has overstayed goes.
local function holders(space, time)
  local found, raw = {}, redis.call("HGETALL", space .. ":holders")
  for at = 1, #raw, 2 do
    local one = turn(raw[at + 1])
    if one.ends > time then
      found[raw[at]] = one
    else
      give_up(space, raw[at])
    end
  end
  return found
end

local function first_in_queue(space, time)
  while true do
    local first = redis.call("ZRANGE", space .. ":queue", 0, 0)[1]
    if not first then
      return nil
    end
    if tonumber(redis.call("HGET", space .. ":asked", first) or 0) > time - PATIENCE then
      return first
    end
    redis.call("ZREM", space .. ":queue", first)
    redis.call("HDEL", space .. ":asked", first)
  end
end

local function wait(space, holder, time)
  local last = redis.call("ZRANGE", space .. ":queue", -1, -1, "WITHSCORES")
  redis.call("ZADD", space .. ":queue", "NX", (tonumber(last[2]) or 0) + 1, holder)
  redis.call("HSET", space .. ":asked", holder, time)
  redis.call("PEXPIRE", space .. ":queue", MEMORY)
  redis.call("PEXPIRE", space .. ":asked", MEMORY)
end

-- Of: now, holder, lease, 1 if alone, the most keys and bytes that it may add, how many tokens, tokens, keys.
-- The answer is empty while others have the turn. Else: the totals here, what others may add; of each token what was
-- kept; of each key what the hash has; some keys in doubt.
local function enter(space, args)
  local now, holder, lease, alone = args[1], args[2], tonumber(args[3]), args[4] == "1"
  local time = clock()
  local others, keys, bytes, is_free = 0, 0, 0, true
  local found = holders(space, time)
  for _, other in pairs(found) do
    others, keys, bytes = others + 1, keys + other.keys, bytes + other.bytes
    is_free = is_free and not alone and not other.alone
  end
  local first_key = 8 + args[7]
  local asks_for_keys = first_key <= #args
  if others > 0 and is_free and asks_for_keys then
    for _, other in ipairs(redis.call("HMGET", space .. ":held", unpack(args, first_key))) do
      is_free = is_free and not other
    end
  end
  local first = first_in_queue(space, time)
  if not is_free or (first and first ~= holder) then
    wait(space, holder, time)
    return {}
  end
  if first then
    redis.call("ZREM", space .. ":queue", holder)
    redis.call("HDEL", space .. ":asked", holder)
  end
  redis.call("HSET", space .. ":holders", holder, table.concat({whole(time + lease), args[4], args[5], args[6]}, ":"))
  settle(space, now, -1)
  local kept, entries = {}, {}
  for at = 8, first_key - 1 do
    kept[#kept + 1] = redis.call("GET", space .. ":kept:" .. args[at])
  end
  if asks_for_keys then
    local marks = {}
    for at = first_key, #args do
      marks[#marks + 1] = args[at]
      marks[#marks + 1] = holder
    end
    redis.call("HSET", space .. ":held", unpack(marks))
    entries = redis.call("HMGET", space .. ":entries", unpack(args, first_key))
  end
  local totals = writes.usage(space, now)
  return {
    totals[1], totals[2], keys, bytes, kept, entries,
    redis.call("SRANDMEMBER", space .. ":doubt", 100),
  }
end

local changes = {}

function changes.put(space, now, key, expires, window, value)
  write(space, key, current(space, key, now), {tier = "e", expires = expires, window = window, value = value})
end

function changes.drop(space, now, key)
  writes.delete(space, now, key)
end

-- The key is in the durable tier by now. Who looks there and then here may have seen it in neither.
function changes.move(space, now, key)
  writes.delete(space, now, key)
  local time = microseconds()
  redis.call("ZADD", space .. ":moved", whole(time), key)
  redis.call("ZREMRANGEBYSCORE", space .. ":moved", "-inf", whole(time - MEMORY * 1000))
  redis.call("PEXPIRE", space .. ":moved", MEMORY)
end

function changes.keep(space, now, token, answer)
  redis.call("SET", space .. ":kept:" .. token, answer, "EX", WEEK)
end

function changes.flush(space, now)
  writes.flush(space, now)
end

local takes = {put = 4, drop = 1, move = 1, keep = 2, flush = 0}

local function make(space, args, at)
  while args[at] do
    local kind = args[at]
    changes[kind](space, args[1], unpack(args, at + 1, at + takes[kind]))
    at = at + 1 + takes[kind]
  end
end

-- Of: now, holder, and each change with what it takes. All of them, or none where the turn is over: 1 or 0.
local function change(space, args)
  if not has_turn(space, args[2]) then
    return 0
  end
  make(space, args, 3)
  return 1
end

-- The same, and with the last of them the holder leaves. Of: now, holder, how many keys, its keys, changes.
local function finish(space, args)
  if not has_turn(space, args[2]) then
    return 0
  end
  local first_change = 4 + args[3]
  make(space, args, first_change)
  redis.call("HDEL", space .. ":holders", args[2])
  if first_change > 4 then
    redis.call("HDEL", space .. ":held", unpack(args, 4, first_change - 1))
    redis.call("SREM", space .. ":doubt", unpack(args, 4, first_change - 1))
  end
  return 1
end

-- Of: now, holder, 1 if it has done all that it planned and 0 if nothing, its keys.
local function leave(space, args)
  local had_turn = redis.call("HDEL", space .. ":holders", args[2]) == 1
  if #args < 4 then
    return
  end
  if had_turn then
    redis.call("HDEL", space .. ":held", unpack(args, 4))
  end
  if args[3] == "1" then
    -- Others may have written between a turn that was over, or that the server forgot, and the last of its writes.
    redis.call(had_turn and "SREM" or "SADD", space .. ":doubt", unpack(args, 4))
  end
end

-- Of: now, holder, keys of which nobody knows what it has done to them, whoever has had them since.
local function doubt(space, args)
  give_up(space, args[2])
  redis.call("ZREM", space .. ":queue", args[2])
  redis.call("HDEL", space .. ":asked", args[2])
  if #args > 2 then
    redis.call("SADD", space .. ":doubt", unpack(args, 3))
  end
end

-- Of: now, key. What the hash has of it, and when it last moved.
local function look(space, args)
  return {redis.call("HGET", space .. ":entries", args[2]), redis.call("ZSCORE", space .. ":moved", args[2])}
end

-- Of: now, bounds, limit. Keys in order, and which keys moved of late.
local function list(space, args)
  return {writes.scan(space, args[1], args[2], args[3], args[4]), redis.call("ZRANGE", space .. ":moved", 0, -1)}
end

-- The same with what the hash has of each.
local function carry(space, args)
  return {writes.export(space, args[1], args[2], args[3]), redis.call("ZRANGE", space .. ":moved", 0, -1)}
end

-- What somebody who ended in the middle of a turn has left in doubt, at most 100 keys.
local function doubtful(space)
  holders(space, clock())
  return redis.call("SRANDMEMBER", space .. ":doubt", 100)
end

local function register_plain(name, body)
  redis.register_function(LIBRARY .. "_" .. name, function(keys, args)
    return body(keys[1], args)
  end)
end

register_plain("enter", enter)
register_plain("change", change)
register_plain("finish", finish)
register_plain("leave", leave)
register_plain("doubt", doubt)
register_plain("look", look)
register_plain("list", list)
register_plain("carry", carry)
register_plain("doubtful", doubtful)
