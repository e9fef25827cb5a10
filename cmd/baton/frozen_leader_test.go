package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/raftnode"
	"baton/internal/testprocess"
)

// The leader of the cluster freezes for longer than an election takes, and is
// asked for renewals meanwhile, of a lease that its successor has
// ended. When it wakes up it must not acknowledge a single one.
func TestFrozenLeaderOfTheClusterAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	pauses := dose(t, "BATON_TEST_PAUSES", 40)
	for _, tc := range []struct {
		name   string
		pauses int
		plan   func(t *testing.T) *cluster
		leader func(c *cluster) string // who is to be frozen
	}{
		{"alike", (pauses + 1) / 2, likeServers, func(c *cluster) string { return c.leader(c.ids...) }},
		{"answers on their way", pauses / 2, wiredServers, (*cluster).unhurriedLeader},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := tc.plan(t)
			c.begin()
			l := startLoad(c, 2)
			answers := map[int]int{}
			for i := range tc.pauses {
				leader := tc.leader(c)
				got := c.freeze(leader, fmt.Sprintf("frozen-%d", i))
				if wrong := got[http.StatusOK]; wrong > 0 {
					t.Errorf("pause %d: %s, deposed, acknowledged %d renewals of a lease that had been released", i+1, leader, wrong)
				}
				for status, n := range got {
					answers[status] += n
				}
			}
			t.Logf("%d pauses, answers by status: %v", tc.pauses, answers)
			c.ready(c.ids...)
			l.progress(t, 100)
			l.check(t)
			c.agree()
		})
	}
}

// Servers with raft.VerifyLeader in place of the round do acknowledge such renewals.
func TestVerifyLeaderIsCaught(t *testing.T) {
	t.Parallel()
	c := wiredServers(t)
	c.program = filepath.Join(t.TempDir(), "baton")
	if err := testprocess.Build(c.program, "baton_verifyleader", "baton/cmd/baton"); err != nil {
		t.Fatal(err)
	}
	c.begin()
	const limit = 20 // most pauses catch it
	for i := range limit {
		leader := c.unhurriedLeader()
		if wrong := c.freeze(leader, fmt.Sprintf("frozen-%d", i))[http.StatusOK]; wrong > 0 {
			t.Logf("pause %d: %s, deposed, acknowledged %d renewals of a lease that had been released", i+1, leader, wrong)
			return
		}
	}
	t.Errorf("in %d pauses no deposed leader acknowledged anything: such pauses show nothing about a sound server either", limit)
}

// likeServers all have the same timing, and nothing between them.
func likeServers(t *testing.T) *cluster {
	t.Helper()
	c := planCluster(t, "--election-timeout", "150ms")
	// With more threads than cores, what a server has waiting when it wakes up gets its turn in any order.
	c.env = []string{"GOMAXPROCS=16"}
	return c
}

// unhurried is the server of a wired cluster that does not give up the lead only
// because it has heard nothing while it was frozen. Whether what it acknowledges is true must not hang on such timing.
const unhurried = "s1"

// wiredServers have wires between them that can hold what is on its way.
func wiredServers(t *testing.T) *cluster {
	t.Helper()
	c := planCluster(t, "--election-timeout", "150ms")
	c.own[unhurried] = []string{"--election-timeout", "6s"}
	c.wire()
	return c
}

// unhurriedLeader has the unhurried server lead.
func (c *cluster) unhurriedLeader() string {
	c.t.Helper()
	eventually(c.t, unhurried+" leading the cluster", func() bool {
		if c.leader(c.ids...) == unhurried {
			return true
		}
		c.campaign(unhurried)
		return c.leader(c.ids...) == unhurried
	})
	return unhurried
}

// campaign makes a server stand for election, by the message with which a raft
// leader hands on. It loses if it has not all that was written by then.
func (c *cluster) campaign(id string) {
	c.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	port, err := raftnode.Listen("127.0.0.1:0", func(raftnode.Addressee) error { return raftnode.ErrNotMeant }, quiet)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = port.Close() }()
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: raftnode.Stream{
			Queue: port.Raft, Advertise: port.Raft.Addr().String(), DialContext: (&net.Dialer{}).DialContext,
			At: func(string) (raftnode.Addressee, error) { return raftnode.Addressee{ID: id}, nil },
		},
		MaxPool: 1, Timeout: patience, Logger: raftnode.Logger(quiet),
	})
	defer func() { transport.CloseStreams(); _ = transport.Close() }()
	q := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	if err := transport.TimeoutNow(raft.ServerID(id), raft.ServerAddress(c.wires.listens[id]), &q, &raft.TimeoutNowResponse{}); err != nil {
		c.t.Fatalf("have %s campaign: %v", id, err)
	}
}

// freeze stops the leader of the cluster until its successor has released a
// lease. It returns how the one that wakes up answers renewals of that lease, all
// sent after the release and before it woke up: how many with which status.
//
// Where there are wires, all that is sent to it stays on its way from before it is
// stopped until after it has woken up, as it may on any network. What the others
// answered while they followed it then arrives when it has begun on the renewals.
func (c *cluster) freeze(leader, group string) (answers map[int]int) {
	t := c.t
	t.Helper()
	s := c.open(c.config(c.others(leader)...))
	defer func() { _ = s.Close() }()
	var lease baton.Lease
	eventually(t, "a grant", func() bool {
		var err error
		lease, err = s.Acquire(t.Context(), group, baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute)
		return err == nil
	})
	late := dialLines(t, c.http[leader], 32)
	defer keepRenewing(c.url(leader), lease)()
	if c.wires != nil {
		c.wires.hold(leader)
		pause(t.Context().Done(), 60*time.Millisecond) // a raft leader says something every 20 to 40 ms, and waits for an answer
	}
	c.servers[leader].Signal(syscall.SIGSTOP)
	eventually(t, "a successor of "+leader, func() bool { // before it, the release would be passed on to the leader as well
		return slices.ContainsFunc(c.others(leader), func(id string) bool { return metric(t, c.url(id), "baton_raft_leader") == "1" })
	})
	eventually(t, "the lease released at a successor", func() bool {
		return s.Release(t.Context(), lease.ID()) == nil
	})
	late.renew(t, c.http[leader], lease) // they wait in the kernel until the server runs again
	c.servers[leader].Signal(syscall.SIGCONT)
	if c.wires != nil {
		pause(t.Context().Done(), 5*time.Millisecond+rand.N(45*time.Millisecond))
		c.wires.deliverAnswers(leader)
		pause(t.Context().Done(), 20*time.Millisecond)
		c.wires.deliverRequests(leader) // now it hears of its successor
	}
	answers = map[int]int{}
	for _, status := range late.receive(t) {
		answers[status]++
		switch status {
		case http.StatusOK, http.StatusConflict, http.StatusServiceUnavailable:
		default:
			t.Errorf("%s: a renewal was answered with status %d", group, status)
		}
	}
	return answers
}

// keepRenewing has renewals on their way all the time, so that some are when the server is stopped.
func keepRenewing(url string, l baton.Lease) (stop func()) {
	var stopped atomic.Bool
	var running sync.WaitGroup
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	client := &http.Client{Transport: transport, Timeout: patience}
	for range 4 {
		running.Go(func() {
			for !stopped.Load() {
				resp, err := client.Post(url+"/v1/groups/"+l.Group+"/renew", "application/json", strings.NewReader(renewal(l)))
				if err != nil {
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusConflict {
					return
				}
			}
		})
	}
	return func() {
		stopped.Store(true)
		running.Wait()
		transport.CloseIdleConnections()
	}
}

// lines are connections that a server has accepted, so that it looks at what
// comes on them the moment it runs again.
type lines []*bufio.ReadWriter

func dialLines(t *testing.T, address string, n int) lines {
	t.Helper()
	var all lines
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		all = append(all, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)))
	}
	all.send(t, "GET /healthz HTTP/1.1\r\nHost: "+address+"\r\n\r\n")
	all.receive(t)
	return all
}

func (all lines) send(t *testing.T, request string) {
	t.Helper()
	for _, line := range all {
		if _, err := line.WriteString(request); err != nil {
			t.Fatal(err)
		}
		if err := line.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

func (all lines) renew(t *testing.T, address string, l baton.Lease) {
	t.Helper()
	body := renewal(l)
	all.send(t, fmt.Sprintf("POST /v1/groups/%s/renew HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		l.Group, address, len(body), body))
}

// receive reads one answer of each.
func (all lines) receive(t *testing.T) (statuses []int) {
	t.Helper()
	for _, line := range all {
		resp, err := http.ReadResponse(line.Reader, nil)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		statuses = append(statuses, resp.StatusCode)
		_, _ = io.Copy(io.Discard, resp.Body) // the next answer comes behind it
		_ = resp.Body.Close()
	}
	return statuses
}
