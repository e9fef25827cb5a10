package redisfence

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"baton"
)

// Script is a fenced Lua script: the check, then the body.
type Script struct{ lua *redis.Script }

// NewScript joins body to the check. The body is Lua as EVAL takes it, with its
// own KEYS and ARGV; the ledger's key and the claim are not among them. It runs
// as a function, so it has no varargs and no shebang line; line numbers in
// errors are the body's own. It runs only if the claim was let in.
//
// Inside the body Redis' own rules hold: keys come from KEYS, and nothing is
// undone when it fails half-way. So it should look before it writes.
func NewScript(body string) (*Script, error) {
	switch {
	case strings.TrimSpace(body) == "":
		return nil, &baton.InvalidArgumentError{Field: "script", Value: body, Want: "Lua"}
	case strings.HasPrefix(body, "#!"):
		return nil, &baton.InvalidArgumentError{Field: "script", Value: body, Want: "Lua without a shebang line"}
	}
	return wrap(body), nil
}

func wrap(body string) *Script {
	return &Script{redis.NewScript(prelude + body + "\n" + postlude)}
}

// Numbers stay in the text they came in: Lua would print large ones in
// exponential form. Compared as doubles they are exact, being below 2^53.
//
// A refusal is answered with the record alone; which one it is follows from the
// record, by the rules of fence.Record.
const (
	loadRecord = `
local held = redis.call('HMGET', KEYS[1], 'group', 'term', 'instance', 'last_seq')
local group, term, instance, seq = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local heldTerm, heldSeq = tonumber(held[2] or '0'), tonumber(held[4] or '0')
if not (held[1] and held[2] and held[3] and held[4] and heldTerm and heldSeq) then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('DAMAGED ' .. KEYS[1] .. ' is not a ledger record')
  end
end
local past = heldTerm > term or (heldTerm == term and held[3] ~= instance)
if heldTerm > 0 and (held[1] ~= group or past) then
  return {0, held[1], held[2], held[3], held[4]}
end
`
	adoptLua = loadRecord + `
redis.call('HSET', KEYS[1], 'group', group, 'term', ARGV[2], 'instance', instance)
redis.call('HSETNX', KEYS[1], 'last_seq', '0')
redis.call('PERSIST', KEYS[1])
return {1, group, ARGV[2], instance, held[4] or '0'}
`
	admitLua = loadRecord + `
if heldTerm < term or (seq and seq <= heldSeq) then
  return {0, held[1] or '', held[2] or '0', held[3] or '', held[4] or '0'}
end
if seq then redis.call('HSET', KEYS[1], 'last_seq', ARGV[4]) end
local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 5, #ARGV do args[i - 4] = ARGV[i] end
`
	postlude = "end)(keys, args))}"
)

// prelude is on the body's first line, which keeps the body's line numbers.
var prelude = strings.Join(strings.Fields(admitLua), " ") + " return {1, ((function(KEYS, ARGV) "

var adoptScript = redis.NewScript(adoptLua)

// Lua unpacks no more than some 8,000 values at once.
var (
	advanceScript = wrap(`return 0`)
	setScript     = wrap(`
		if ARGV[2] == '0' then return redis.call('SET', KEYS[1], ARGV[1]) end
		return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`)
	hsetScript = wrap(`
		local added = 0
		for i = 1, #ARGV, 1000 do
			added = added + redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
		end
		return added`)
	delScript = wrap(`
		local deleted = 0
		for i = 1, #KEYS, 1000 do
			deleted = deleted + redis.call('DEL', unpack(KEYS, i, math.min(i + 999, #KEYS)))
		end
		return deleted`)
)
