package node

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"baton"
	"baton/internal/fleet"
)

// options are the program's flags, with what the fleet file adds to them.
type options struct {
	nodeID   string
	group    string
	backend  string
	store    string
	resource string
	http     string
	fleet    string
	pidFile  string
	events   string
	insecure bool
	logJSON  bool

	ttl             time.Duration
	renewEvery      time.Duration
	electionTimeout time.Duration
	skew            time.Duration
	tick            time.Duration
	writeDelay      time.Duration

	workDir         string
	workTime        time.Duration
	checkpointEvery time.Duration

	peer peerOptions
	idle []string // flags that were given and have no say

	unsafeTrust  string
	unsafeLinger time.Duration
}

// stopGrace is what the work has to return in: the elector's own default, said
// aloud because the work plans with it.
func (o options) stopGrace() time.Duration { return o.ttl / 10 }

// margin is the elector's own default, for a TTL that the store grants as it is.
func (o options) margin() time.Duration { return o.ttl / 10 }

// defaultTick is how often the scheduler fires.
const defaultTick = time.Second

const usage = `node takes part in the elections of a fleet and, while it leads, does the fleet's
singleton work: a tick every -tick, and numbers for whoever asks POST /next. All its
writes go to the protected resource and carry its fencing token.

usage: node -fleet FILE -node-id ID [flags]
       node -backend B -store URL -resource URL -group G -http ADDR -node-id ID [flags]
       node -backend raft|bully -peers n1=HOST:PORT,... [-data DIR] -resource URL -group G -http ADDR -node-id ID [flags]

Exit status: 0 after SIGTERM, with the lease given back; 1 failed; 2 bad usage;
70 the leader's work did not stop in time, so the process did.

`

// parse returns flag.ErrHelp after it has printed the help to stdout.
func parse(args []string, stdout io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.nodeID, "node-id", "", "the `id` of this node; stays the same over restarts")
	flags.StringVar(&o.fleet, "fleet", "", "fleet `file`: what the flags do not say is taken from it")
	flags.StringVar(&o.group, "group", "", "the `group` to lead (default \"singleton\")")
	flags.StringVar(&o.backend, "backend", "", "what to elect with: "+strings.Join(backendNames(), ", "))
	flags.StringVar(&o.store, "store", "", "`URL` of the backend, such as http://127.0.0.1:7400 for baton; several hosts with commas")
	flags.StringVar(&o.resource, "resource", "", "`URL` of the protected resource (default \"http://127.0.0.1:7410\")")
	flags.StringVar(&o.http, "http", "", "`address` to serve HTTP on; port 0 takes a free one (default \"127.0.0.1:7500\")")
	flags.StringVar(&o.pidFile, "pid-file", "", "`file` to keep the process's number in")
	flags.StringVar(&o.events, "events", "", "`file` to append events to, a line of JSON each")
	flags.BoolVar(&o.insecure, "insecure", false, "allow an address beyond this machine; there is no authentication")
	flags.BoolVar(&o.logJSON, "log-json", false, "log in JSON")
	flags.DurationVar(&o.ttl, "lease-ttl", 3*time.Second, "how long the group stays closed when its leader vanishes")
	flags.DurationVar(&o.renewEvery, "renew-interval", 0, "time between renewals (default a third of -lease-ttl)")
	flags.DurationVar(&o.electionTimeout, "election-timeout", 0, "the longest pause between two attempts to be elected (default half of -lease-ttl, at most 5s); for raft and bully, how long a leader may be silent (default 200ms and 500ms), and half of the lease: -lease-ttl and -renew-interval have no say there")
	flags.DurationVar(&o.skew, "clock-skew", 0, "what this node's clocks are off by, such as -200ms; leases do not depend on it")
	flags.DurationVar(&o.tick, "tick", defaultTick, "time between two ticks of the scheduler")
	flags.DurationVar(&o.writeDelay, "write-delay", 0, "how long the leader thinks between its look at the lease and each write: the time that a pause has to hit")
	flags.StringVar(&o.workDir, "work-dir", "", "`directory` with a set of jobs and segments, the same for all nodes: the leader works them off and checkpoints how far it is")
	flags.DurationVar(&o.workTime, "work-time", time.Minute, "how long the whole set takes")
	flags.DurationVar(&o.checkpointEvery, "checkpoint-every", 250*time.Millisecond, "time between two checkpoints")
	flags.StringVar(&o.unsafeTrust, "unsafe-trust", "", "`receipt`: trust leases from when the answer came, and without a margin. BROKEN on purpose, for experiments")
	flags.DurationVar(&o.unsafeLinger, "unsafe-linger", 0, "go on writing for this long after the leadership has ended, unless refused. BROKEN on purpose, for experiments")
	o.peer.flags(flags)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(stdout)
			_, _ = io.WriteString(stdout, usage)
			flags.PrintDefaults()
		}
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.fleet != "" {
		if err := o.fromFleet(); err != nil {
			return o, err
		}
	}
	setString(&o.group, "singleton")
	setString(&o.resource, "http://127.0.0.1:7410")
	setString(&o.http, "127.0.0.1:7500")
	if err := o.settlePeers(); err != nil {
		return o, err
	}
	o.idle = idleFlags(o.backend, flags)
	return o, o.validate()
}

func setString(s *string, or string) {
	if *s == "" {
		*s = or
	}
}

// fromFleet takes from the fleet file what the flags have left open.
func (o *options) fromFleet() error {
	f, err := fleet.Load(o.fleet)
	if err != nil {
		return err
	}
	n, ok := f.Node(o.nodeID)
	if !ok {
		return fmt.Errorf("-node-id is %q: the fleet file names no such node", o.nodeID)
	}
	store, err := f.StoreFor(n)
	if err != nil {
		return err
	}
	setString(&o.group, f.Group)
	setString(&o.backend, f.Backend)
	if o.backend == raftBackend || o.backend == bullyBackend {
		if err := o.peer.fromFleet(f, n, store); err != nil {
			return err
		}
	}
	setString(&o.store, store)
	setString(&o.resource, f.Resource)
	setString(&o.http, n.HTTP)
	setString(&o.pidFile, f.Path(n.PIDFile))
	setString(&o.events, f.Path(n.Events))
	return nil
}

func (o *options) validate() error {
	if err := baton.ValidateID("-node-id", o.nodeID); err != nil {
		return err
	}
	if err := baton.ValidateID("-group", o.group); err != nil {
		return err
	}
	if _, err := findBackend(o.backend); err != nil {
		return err
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"-lease-ttl", o.ttl, time.Nanosecond}, {"-tick", o.tick, time.Nanosecond},
		{"-renew-interval", o.renewEvery, 0}, {"-election-timeout", o.electionTimeout, 0}, {"-unsafe-linger", o.unsafeLinger, 0},
		{"-write-delay", o.writeDelay, 0}, {"-work-time", o.workTime, time.Millisecond}, {"-checkpoint-every", o.checkpointEvery, time.Millisecond},
	} {
		if d.value < d.least {
			return fmt.Errorf("%s is %v: want a positive duration", d.flag, d.value)
		}
	}
	if o.unsafeTrust != "" && o.unsafeTrust != trustReceipt {
		return fmt.Errorf("-unsafe-trust is %q: want %s, or better nothing", o.unsafeTrust, trustReceipt)
	}
	return o.validateHTTP()
}

func (o *options) validateHTTP() error {
	host, _, err := net.SplitHostPort(o.http)
	if err != nil {
		return fmt.Errorf("-http is %q: want host:port", o.http)
	}
	if ip := net.ParseIP(host); !o.insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("-http is %q, beyond this machine, and there is no authentication: say -insecure if you mean it", o.http)
	}
	return nil
}
