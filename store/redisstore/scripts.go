package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
)

const (
	// maxPast is how many terms that ended are remembered; with the present one a hundred.
	maxPast = 99
	// turnKept is how long each in line has before the next one is called.
	turnKept = time.Second
	// placeKept is how long a place outlives its owner's last sign of life. A
	// place that is given up between polls has at least 5 seconds left.
	placeKept = 7 * time.Second
)

// Every script begins with these. Its keys are those of one group, all in one
// hash slot: the record, the counter, the past, the line and its signs of life.
//
// The record is a hash. While somebody leads it has term, node, instance,
// metadata, ttl, until, elected and gap, and ending, note and successor if that
// is being ended. After the first leadership it has last_term, last_node,
// last_instance and ended of the one that ended last, next, the successor that
// this ending named; by is the request that ended it, asked the one that last asked for an ending.
//
// Terms stay in the text they came in: Lua prints large numbers in exponential
// form. Compared as doubles they are exact, being below 2^53.
//
// A Redis that is out of memory, or a replica, or cannot write to its disk
// refuses the first write of a script and with it all others. An answer that
// nothing had to be written for begins with a write that changes nothing, so it is refused as well: what a replica has
// may be old.
const prelude = `
local record, counter, past, line, signs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- What begins now begins with the next full millisecond: no lease is cut short by a part of one.
local soon = tonumber(time[1]) * 1000 + math.ceil(tonumber(time[2]) / 1000)
local r = {}
do
  local flat = redis.call('HGETALL', record)
  for i = 1, #flat, 2 do r[flat[i]] = flat[i + 1] end
end

local function text(n) return string.format('%.0f', n) end

local function set(field, value)
  redis.call('HSET', record, field, value)
  r[field] = value
end

-- highest is the last term, given what the counter says. The record knows it
-- too, in case somebody removed the counter.
local function highest(t)
  t = t or '0'
  for _, seen in ipairs({r.term or '0', r.last_term or '0'}) do
    if tonumber(seen) > tonumber(t) then t = seen end
  end
  return t
end

local function forgetPlace(place)
  redis.call('ZREM', line, place)
  redis.call('ZREM', signs, place)
end

-- prune forgets who gave no sign of life for long. Signs from the future are of
-- a clock that was set back since.
local function prune()
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', signs, '-inf', now - $placeKept)) do forgetPlace(place) end
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', signs, now + 1, '+inf')) do redis.call('ZADD', signs, now, place) end
  if redis.call('ZCARD', line) == redis.call('ZCARD', signs) then return end
  for _, place in ipairs(redis.call('ZRANGE', line, 0, -1)) do -- the signs were evicted
    if not redis.call('ZSCORE', signs, place) then forgetPlace(place) end
  end
end

-- rankOf is the first place of a node in line, and all of them.
local function rankOf(node)
  local ranks = {}
  for i, place in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    if string.sub(place, 1, #node + 1) == node .. '/' then ranks[#ranks + 1] = i - 1 end
  end
  return ranks[1], ranks
end

-- ahead is how many in line go before this place. A successor goes before all,
-- with each of its places: it may have been restarted.
local function ahead(place)
  local n = redis.call('ZRANK', line, place) or redis.call('ZCARD', line)
  local before = n
  if r.next then
    local _, ranks = rankOf(r.next)
    for i, rank in ipairs(ranks) do
      if rank == n then return i - 1 end
      if rank > n then before = before + 1 end
    end
  end
  return before
end

local function first()
  local n = r.next and rankOf(r.next) or 0
  return redis.call('ZRANGE', line, n, n)[1] or ''
end

-- tell is a hint: whoever does not hear it finds out by looking.
local function tell(message) redis.pcall('PUBLISH', record, message) end

-- over ends the present leadership.
local function over(reason, at, by)
  at = math.max(at, tonumber(r.elected))
  redis.call('LPUSH', past, cjson.encode({
    term = r.term, node = r.node, instance = r.instance, metadata = r.metadata,
    elected = r.elected, ended = text(at), gap = r.gap, reason = reason, note = r.note,
  }))
  redis.call('LTRIM', past, 0, $maxPast - 1)
  set('last_term', r.term)
  set('last_node', r.node)
  set('last_instance', r.instance)
  set('ended', text(at))
  set('by', by)
  if r.successor and r.successor ~= '' then set('next', r.successor) end
  for _, field in ipairs({'term', 'node', 'instance', 'metadata', 'ttl', 'until', 'elected', 'gap', 'ending', 'note', 'successor'}) do
    redis.call('HDEL', record, field)
    r[field] = nil
  end
  prune()
  tell('vacant ' .. first())
end

-- What has run out is over for good, whatever the clock does later.
if r.node and tonumber(r['until']) <= now then over('EXPIRED', tonumber(r['until']), '') end

-- A deadline further away than the ttl was set before the clock was set back.
-- What the holder was promised is over in a ttl at most.
if r.node and tonumber(r['until']) > soon + tonumber(r.ttl) then set('until', text(soon + tonumber(r.ttl))) end

-- A vacancy from the future, too: turns count from it.
if tonumber(r.ended or '0') > now then set('ended', text(now)) end

local function leads(node, instance, term)
  return r.node == node and r.instance == instance and (not term or r.term == term)
end

-- extend never moves a deadline earlier; more than the ttl raises it for good.
local function extend(ms)
  if r.ending then return end
  if ms > tonumber(r.ttl) then set('ttl', text(ms)) end
  if soon + ms > tonumber(r['until']) then set('until', text(soon + ms)) end
end

local function reply(outcome, entries, a, b)
  redis.call('HDEL', record, '') -- changes nothing
  local flat = {}
  for field, value in pairs(r) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  local kept = redis.call('HMGET', counter, 'last', 'born')
  return {outcome, soon, highest(kept[1]), kept[2] or '', flat, entries or {}, a or 0, b or 0}
end
`

// The scripts. What they answer is read by parseReply.
var (
	// node, instance, metadata, ttl, whether the group is in the index, and a
	// name for this group's counter in case it has none yet
	acquireScript = script(`
local node, instance, metadata, ttl, indexed, born = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local place = node .. '/' .. instance
if leads(node, instance) then
  extend(ttl)
  return reply('granted')
end
if r.last_node == node and r.last_instance == instance then return reply('ended') end
if r.node then return reply('held') end
local term = highest(redis.call('HGET', counter, 'last'))
if tonumber(term) >= $maxTerm then return reply('exhausted') end
prune()
local since = now - tonumber(r.ended or '0')
if since >= 0 and since < $turnKept and ahead(place) > 0 then return reply('turn', nil, $turnKept - since) end
if indexed == '0' and redis.call('HEXISTS', counter, 'born') == 0 then return reply('index') end
redis.call('HSET', counter, 'last', term)
redis.call('HINCRBY', counter, 'last', 1)
redis.call('HSETNX', counter, 'born', born)
set('term', redis.call('HGET', counter, 'last'))
set('node', node)
set('instance', instance)
set('metadata', metadata)
set('ttl', text(ttl))
set('until', text(soon + ttl))
set('elected', text(soon))
set('gap', r.ended and text(math.max(0, soon - tonumber(r.ended))) or '0')
redis.call('HDEL', record, 'next')
r.next = nil
forgetPlace(place)
tell('led')
return reply('granted')
`)
	// node, instance, term, how long: what nearly every renewal is, without the
	// prelude, which takes longer than all the rest. Anything else is 'look'.
	renewPlainly = redis.NewScript(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local soon = tonumber(time[1]) * 1000 + math.ceil(tonumber(time[2]) / 1000)
local r = redis.call('HMGET', KEYS[1], 'node', 'instance', 'term', 'ttl', 'until', 'ending', 'metadata', 'elected', 'gap')
local deadline, extend = tonumber(r[5] or '0'), tonumber(ARGV[4])
if r[1] ~= ARGV[1] or r[2] ~= ARGV[2] or r[3] ~= ARGV[3] or deadline <= now or r[6]
  or extend > tonumber(r[4]) or deadline > soon + tonumber(r[4]) then
  return {'look', soon, '0', '', {}, {}, 0, 0}
end
if soon + extend > deadline then
  deadline = soon + extend
  redis.call('HSET', KEYS[1], 'until', string.format('%.0f', deadline))
else
  redis.call('HDEL', KEYS[1], '') -- changes nothing
end
return {'renewed', soon, r[3], '', {
  'node', r[1], 'instance', r[2], 'term', r[3], 'ttl', r[4], 'until', string.format('%.0f', deadline),
  'metadata', r[7], 'elected', r[8], 'gap', r[9],
}, {}, 0, 0}
`)
	// node, instance, term, how long
	renewScript = script(`
if not leads(ARGV[1], ARGV[2], ARGV[3]) then return reply('not_leader') end
extend(tonumber(ARGV[4]))
return reply('renewed')
`)
	// node, instance, term, and a name for this request: one that comes twice is answered twice
	releaseScript = script(`
if not leads(ARGV[1], ARGV[2], ARGV[3]) then return reply(r.by == ARGV[4] and 'released' or 'not_leader') end
over(r.ending or 'RESIGNED', now, ARGV[4])
return reply('released')
`)
	// term, reason, note, successor, whether at once, and a name for this request
	endScript = script(`
local term, reason, note, successor, immediate, by = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if r.term ~= term then return reply(r.asked == by and 'ended' or 'not_leader') end
prune()
if successor ~= '' and not rankOf(successor) then return reply('not_in_line') end
set('ending', reason)
set('note', note)
set('successor', successor)
set('asked', by)
if immediate == '1' then over(reason, now, by) end
return reply('ended')
`)
	// how many of the past terms to tell
	lookScript = script(`
local n = tonumber(ARGV[1])
return reply('seen', n > 0 and redis.call('LRANGE', past, 0, n - 1) or {})
`)
	// node, instance. The first goes when the group opens, each one behind it a
	// second later. Who came after that counts from when it came.
	awaitScript = script(`
local place = ARGV[1] .. '/' .. ARGV[2]
if leads(ARGV[1], ARGV[2]) then return reply('called') end
prune()
redis.call('ZADD', line, 'NX', text(tonumber(time[1]) * 1000000 + tonumber(time[2])), place)
redis.call('ZADD', signs, now, place)
redis.call('PEXPIRE', line, $placeKept)
redis.call('PEXPIRE', signs, $placeKept)
local before = ahead(place)
local came = math.min(now, math.floor(tonumber(redis.call('ZSCORE', line, place)) / 1000))
local wait = before * $turnKept + math.max(came, tonumber(r['until'] or r.ended or '0')) - now
if not r.node and (before == 0 or wait <= 0) then return reply('called') end
return reply('waits', nil, wait, before)
`)
	// Besides the group's other keys: its policy. The version that is there, the
	// policy, and a name for this request.
	putScript = script(`
local policy, version, value, by = KEYS[6], ARGV[1], ARGV[2], ARGV[3]
local is = redis.call('HMGET', policy, 'version', 'by')
if is[2] == by then return reply('put', nil, tonumber(is[1])) end
if (is[1] or '0') ~= version then return reply('version') end
local new = redis.call('HINCRBY', counter, 'version', 1)
redis.call('HSET', policy, 'version', new, 'policy', value, 'by', by)
return reply('put', nil, new)
`)
	// Besides the group's other keys: its policy. A name for this request: one
	// that comes twice is answered twice, and what has come since is not its business.
	deleteScript = script(`
local policy, by = KEYS[6], ARGV[1]
if redis.call('HGET', counter, 'deleted') == by then return reply('deleted') end
if r.node then return reply('held') end
if redis.call('EXISTS', record, policy) == 0 then return reply('not_found') end
redis.call('HSET', counter, 'last', highest(redis.call('HGET', counter, 'last')), 'deleted', by)
redis.call('DEL', record, past, line, signs, policy)
r = {}
return reply('deleted')
`)
)

func script(body string) *redis.Script {
	return redis.NewScript(strings.NewReplacer(
		"$placeKept", strconv.FormatInt(placeKept.Milliseconds(), 10),
		"$turnKept", strconv.FormatInt(turnKept.Milliseconds(), 10),
		"$maxPast", strconv.Itoa(maxPast),
		"$maxTerm", strconv.FormatUint(uint64(baton.MaxTerm), 10),
	).Replace(prelude + body))
}
