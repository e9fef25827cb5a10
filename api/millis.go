package api

import (
	"math"
	"time"
)

// Duration is ms milliseconds. What a time.Duration cannot hold becomes the
// longest or shortest there is, which every bound then refuses.
func Duration(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	switch {
	case ms > most:
		return math.MaxInt64
	case ms < -most:
		return math.MinInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// Millis is d in whole milliseconds, rounded down: a holder must not be told
// of more time than it has.
func Millis(d time.Duration) int64 { return d.Milliseconds() }

// MillisUp is d in whole milliseconds, rounded up: whoever waits that long has waited long enough.
func MillisUp(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > Duration(ms) {
		ms++
	}
	return ms
}

// stamp is t in milliseconds since 1970, 0 for the zero time.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromStamp(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
