package cli

import (
	"os"
	"sync"
)

// headroom is memory that is never touched, and so is none: the collector
// counts it, and lets as much garbage collect before it begins. A server with
// few leases would otherwise collect its few megabytes many times a second.
const headroom = 64 << 20

// reserve is kept for good by being what a function has returned once.
var reserve = sync.OnceValue(func() []byte { return make([]byte, headroom) })

// spareCollector makes the garbage collector of a server run less often, unless
// the operator has settings of their own.
func spareCollector() {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := os.LookupEnv(name); set {
			return
		}
	}
	_ = reserve()
}
