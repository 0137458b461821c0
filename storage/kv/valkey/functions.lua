-- Every function takes one key, `kv:{SPACE}`, the stem of those it uses; they share its hash slot:
--   :entries   hash, key -> "TIER:EXPIRES:WINDOW:VALUE"; tier d or e, epoch milliseconds and seconds or nothing
--   :keys      sorted set, all scores 0, for the order of keys
--   :expiries  sorted set, key -> EXPIRES
--   :bytes     what all entries add up to, expired ones included until they are met
--   :frozen    there while the space is frozen
--   :once:...  the answer that a token has had
-- The first arguments are the caller's time, in milliseconds, and its token or nothing.
-- A function's second result says that the answer is a refusal, which no token keeps.

local WEEK = 7 * 24 * 3600

local function whole(number)
  return string.format("%.0f", number)
end

local function drop(space, key, size)
  redis.call("HDEL", space .. ":entries", key)
  redis.call("ZREM", space .. ":keys", key)
  redis.call("ZREM", space .. ":expiries", key)
  if redis.call("DECRBY", space .. ":bytes", size) == 0 then
    redis.call("DEL", space .. ":bytes")
  end
end

local function read(space, key)
  local raw = redis.call("HGET", space .. ":entries", key)
  if not raw then
    return nil
  end
  local tier, expires, window, start = string.match(raw, "^(.):(%d*):(%d*):()")
  local value = string.sub(raw, start)
  return {tier = tier, expires = expires, window = window, value = value, size = #key + #value}
end

local function current(space, key, now)
  local entry = read(space, key)
  if entry and entry.expires ~= "" and tonumber(entry.expires) <= tonumber(now) then
    drop(space, key, entry.size)
    return nil
  end
  return entry
end

local function settle(space, now, limit)
  local due = redis.call("ZRANGEBYSCORE", space .. ":expiries", "-inf", now, "LIMIT", 0, limit)
  for _, key in ipairs(due) do
    drop(space, key, read(space, key).size)
  end
  return #due
end

local function write(space, key, before, entry)
  redis.call("HSET", space .. ":entries", key, table.concat({entry.tier, entry.expires, entry.window, entry.value}, ":"))
  if not before then
    redis.call("ZADD", space .. ":keys", 0, key)
  end
  if entry.expires ~= (before and before.expires or "") then
    if entry.expires == "" then
      redis.call("ZREM", space .. ":expiries", key)
    else
      redis.call("ZADD", space .. ":expiries", entry.expires, key)
    end
  end
  local grown = #key + #entry.value - (before and before.size or 0)
  if grown ~= 0 then
    redis.call("INCRBY", space .. ":bytes", grown)
  end
end

local function excess(space, keys, size, caps)
  if keys > 0 and caps.keys then
    local used = redis.call("HLEN", space .. ":entries")
    if used + keys > caps.keys then
      return {"KeysExhausted", used, caps.keys}
    end
  end
  if size > 0 and caps.bytes then
    local used = tonumber(redis.call("GET", space .. ":bytes") or 0)
    if used + size > caps.bytes then
      return {"StorageFull", used, caps.bytes}
    end
  end
  return nil
end

local function store(space, key, now, before, entry, caps)
  local keys, size = before and 0 or 1, #key + #entry.value - (before and before.size or 0)
  if excess(space, keys, size, caps) then
    -- Only now does it matter that expired entries still count.
    settle(space, now, -1)
    local refusal = excess(space, keys, size, caps)
    if refusal then
      return refusal
    end
  end
  write(space, key, before, entry)
  return nil
end

local function quota(keys, bytes)
  return {keys = tonumber(keys), bytes = tonumber(bytes)}
end

-- The next value of an entry keeps its tier and expiry; the first one of a key is durable.
local function succeed(before, value, expires, window)
  if before then
    return {tier = before.tier, expires = before.expires, window = before.window, value = value}
  end
  return {tier = "d", expires = expires, window = window, value = value}
end

-- Nil where the sum leaves 64 bit. Lua's own numbers are exact up to 53.
local function sum(space, stored, by)
  if #stored <= 15 and #by <= 15 then
    return whole(tonumber(stored) + tonumber(by))
  end
  local scratch = space .. ":sum"
  redis.call("SET", scratch, stored == "-0" and "0" or stored)
  local added = redis.pcall("INCRBY", scratch, by)
  local total = redis.call("GET", scratch)
  redis.call("DEL", scratch)
  return type(added) == "number" and total or nil
end

local function frozen(space)
  return redis.call("EXISTS", space .. ":frozen") == 1
end

-- What the functions register as `refusing` do, they do in no frozen space.
local writes = {}

function writes.put(space, now, key, value, tier, expires, window, max_keys, max_bytes)
  local entry = {tier = tier, expires = expires, window = window, value = value}
  local refusal = store(space, key, now, current(space, key, now), entry, quota(max_keys, max_bytes))
  return refusal or 1, refusal
end

function writes.delete(space, now, key)
  local before = current(space, key, now)
  if not before then
    return 0
  end
  drop(space, key, before.size)
  return 1
end

function writes.incr(space, now, key, by, expires, window, max_keys, max_bytes)
  local before = current(space, key, now)
  local stored = before and before.value or "0"
  if not (string.find(stored, "^%-?[1-9]%d*$") or string.find(stored, "^%-?0$")) then
    return {"NotAnInteger"}, true
  end
  local total = sum(space, stored, by)
  if not total then
    return {"IntegerOverflow"}, true
  end
  local entry = succeed(before, total, expires, window)
  local refusal = store(space, key, now, before, entry, quota(max_keys, max_bytes))
  return refusal or total, refusal
end

function writes.setnx(space, now, key, value, tier, expires, window, max_keys, max_bytes)
  if current(space, key, now) then
    return 0
  end
  return writes.put(space, now, key, value, tier, expires, window, max_keys, max_bytes)
end

-- Whether JSON means the same is the caller's to say, of what it has seen: `present` is 0 where that was no entry.
function writes.cas(space, now, key, present, seen, matches, value, expires, window, max_keys, max_bytes)
  local before = current(space, key, now)
  if (before and "1" or "0") ~= present or (before and before.value ~= seen) then
    return {"Changed", before and before.value}, true
  end
  if matches == "0" then
    return 0
  end
  local entry = succeed(before, value, expires, window)
  local refusal = store(space, key, now, before, entry, quota(max_keys, max_bytes))
  return refusal or 1, refusal
end

function writes.expire(space, now, key, expires, window)
  local before = current(space, key, now)
  if not before then
    return 0
  end
  write(space, key, before, {tier = before.tier, expires = expires, window = window, value = before.value})
  return 1
end

function writes.touch(space, now, key)
  local before = current(space, key, now)
  if before and before.tier == "d" and before.window ~= "" and not frozen(space) then
    local expires = whole(tonumber(now) + tonumber(before.window) * 1000)
    write(space, key, before, {tier = "d", expires = expires, window = before.window, value = before.value})
  end
  return before and before.value or false
end

-- Of each get a list of the value or of nothing, of each set 1 or a refusal, of each delete how many went.
function writes.batch(space, now, max_keys, max_bytes, ...)
  local arguments, answers, at = {...}, {}, 1
  local refusing = frozen(space)
  while arguments[at] do
    local kind, key = arguments[at], arguments[at + 1]
    if refusing and kind ~= "get" then
      -- The first write of them, so none is made.
      return {"SpaceFrozen"}, true
    end
    if kind == "get" then
      local entry = current(space, key, now)
      answers[#answers + 1] = {entry and entry.value}
      at = at + 2
    elseif kind == "delete" then
      answers[#answers + 1] = writes.delete(space, now, key)
      at = at + 2
    else
      local value, expires, window = arguments[at + 2], arguments[at + 3], arguments[at + 4]
      answers[#answers + 1] = writes.put(space, now, key, value, "d", expires, window, max_keys, max_bytes)
      at = at + 5
    end
  end
  return answers
end

function writes.flush(space, now)
  local live = redis.call("HLEN", space .. ":entries") - redis.call("ZCOUNT", space .. ":expiries", "-inf", now)
  redis.call("UNLINK", space .. ":entries", space .. ":keys", space .. ":expiries", space .. ":bytes")
  return live
end

function writes.scan(space, now, lowest, above, limit)
  settle(space, now, -1)
  return redis.call("ZRANGEBYLEX", space .. ":keys", lowest, above, "LIMIT", 0, limit)
end

function writes.usage(space, now)
  settle(space, now, -1)
  return {redis.call("HLEN", space .. ":entries"), tonumber(redis.call("GET", space .. ":bytes") or 0)}
end

-- Of each entry its key and what the hash has of it.
function writes.export(space, now, lowest, limit)
  settle(space, now, -1)
  local found = redis.call("ZRANGEBYLEX", space .. ":keys", lowest, "+", "LIMIT", 0, limit)
  for at, key in ipairs(found) do
    found[at] = {key, redis.call("HGET", space .. ":entries", key)}
  end
  return found
end

-- Of each entry: key, value, tier, expires, window.
function writes.load(space, now, ...)
  local arguments = {...}
  for at = 1, #arguments, 5 do
    local key, value, tier, expires, window = unpack(arguments, at, at + 4)
    write(space, key, current(space, key, now), {tier = tier, expires = expires, window = window, value = value})
  end
end

function writes.freeze(space)
  redis.call("SET", space .. ":frozen", 1)
end

function writes.thaw(space)
  redis.call("DEL", space .. ":frozen")
end

function writes.erase(space, now)
  writes.flush(space, now)
  writes.thaw(space)
end

function writes.sweep(space, now, limit)
  return settle(space, now, limit)
end

local function register(name, body)
  redis.register_function(LIBRARY .. "_" .. name, function(keys, args)
    local space, now, token = keys[1], args[1], args[2]
    if token == "" then
      return (body(space, now, unpack(args, 3)))
    end
    local place = space .. ":once:" .. token
    local kept = redis.call("GET", place)
    if kept then
      return cmsgpack.unpack(kept)
    end
    local answer, refused = body(space, now, unpack(args, 3))
    if not refused then
      redis.call("SET", place, cmsgpack.pack(answer), "EX", WEEK)
    end
    return answer
  end)
end

local function refusing(body)
  return function(space, ...)
    if frozen(space) then
      return {"SpaceFrozen"}, true
    end
    return body(space, ...)
  end
end

-- While a library is loaded nothing may be looped over.
register("put", refusing(writes.put))
register("delete", refusing(writes.delete))
register("incr", refusing(writes.incr))
register("setnx", refusing(writes.setnx))
register("cas", refusing(writes.cas))
register("expire", refusing(writes.expire))
register("flush", refusing(writes.flush))
register("touch", writes.touch)
register("batch", writes.batch)
register("scan", writes.scan)
register("usage", writes.usage)
register("export", writes.export)
register("load", writes.load)
register("freeze", writes.freeze)
register("thaw", writes.thaw)
register("erase", writes.erase)
register("sweep", writes.sweep)
