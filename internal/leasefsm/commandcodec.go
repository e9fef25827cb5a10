package leasefsm

import (
	"fmt"
	"time"

	"baton"
)

// commandVersion is the first byte of every encoded command. It rises when a
// field or a kind is added; older versions stay readable for as long as logs may hold them.
const commandVersion = 1

// kind is the second byte of an encoded command. The numbers are in logs: they
// are never reused.
type kind byte

const (
	kindAcquire     kind = 1
	kindExtend      kind = 2
	kindRelease     kind = 3
	kindExpire      kind = 4
	kindEnd         kind = 5
	kindPutGroup    kind = 6
	kindDeleteGroup kind = 7
	kindRaiseFloor  kind = 8
)

func (Acquire) kind() kind     { return kindAcquire }
func (Extend) kind() kind      { return kindExtend }
func (Release) kind() kind     { return kindRelease }
func (Expire) kind() kind      { return kindExpire }
func (End) kind() kind         { return kindEnd }
func (PutGroup) kind() kind    { return kindPutGroup }
func (DeleteGroup) kind() kind { return kindDeleteGroup }
func (RaiseFloor) kind() kind  { return kindRaiseFloor }

// AppendCommand appends the encoding of c to b.
func AppendCommand(b []byte, c Command) []byte {
	return c.appendTo(append(b, commandVersion, byte(c.kind())))
}

// DecodeCommand reads what AppendCommand wrote, all of b. Its errors are of
// kind ErrVersion or ErrMalformed.
func DecodeCommand(b []byte) (Command, error) {
	d := &decoder{b: b}
	d.version("command", commandVersion)
	c := d.command()
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("decode command: %w", err)
	}
	return c, nil
}

func (c Acquire) appendTo(b []byte) []byte {
	b = appendString(b, c.Group)
	b = appendCandidate(b, c.Candidate)
	b = appendInt(b, int64(c.TTL))
	return appendInt(b, c.Stamp)
}

func (c Extend) appendTo(b []byte) []byte {
	return appendInt(appendLeaseID(b, c.ID), int64(c.TTL))
}

func (c Release) appendTo(b []byte) []byte {
	return appendInt(appendLeaseID(b, c.ID), c.Stamp)
}

func (c Expire) appendTo(b []byte) []byte {
	b = appendString(b, c.Group)
	b = appendUint(b, uint64(c.Term))
	return appendInt(b, c.Stamp)
}

func (c End) appendTo(b []byte) []byte {
	b = appendString(b, c.Group)
	b = appendUint(b, uint64(c.Term))
	b = appendEnding(b, c.Ending)
	return appendInt(b, c.Stamp)
}

func (c PutGroup) appendTo(b []byte) []byte { return appendGroup(b, c.Group) }

func (c DeleteGroup) appendTo(b []byte) []byte { return appendString(b, c.ID) }

func (c RaiseFloor) appendTo(b []byte) []byte { return appendUint(b, uint64(c.Term)) }

func (d *decoder) command() Command {
	switch k := kind(d.byte()); k {
	case kindAcquire:
		return Acquire{Group: d.string(), Candidate: d.candidate(), TTL: d.duration(), Stamp: d.int()}
	case kindExtend:
		return Extend{ID: d.leaseID(), TTL: d.duration()}
	case kindRelease:
		return Release{ID: d.leaseID(), Stamp: d.int()}
	case kindExpire:
		return Expire{Group: d.string(), Term: d.term(), Stamp: d.int()}
	case kindEnd:
		return End{Group: d.string(), Term: d.term(), Ending: d.ending(), Stamp: d.int()}
	case kindPutGroup:
		return PutGroup{Group: d.group()}
	case kindDeleteGroup:
		return DeleteGroup{ID: d.string()}
	case kindRaiseFloor:
		return RaiseFloor{Term: d.term()}
	default:
		d.fail("a command of kind %d", k)
		return nil
	}
}

func (d *decoder) duration() time.Duration { return time.Duration(d.int()) }

func (d *decoder) group() baton.Group {
	return baton.Group{
		ID:           d.string(),
		Policy:       baton.Policy{MinTTL: d.duration(), MaxTTL: d.duration(), RetryAfter: d.duration()},
		AllowedNodes: d.strings(),
		Version:      d.uint(),
	}
}
