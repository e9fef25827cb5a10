package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
)

// oldest is the version of Redis that is needed at least: it has users, and
// replicates what scripts did and not the scripts.
var oldest = [2]int{6, 0}

// unknown is a setting that Redis did not tell.
const unknown = "unknown"

// survey is what a Redis said of itself. The zero value has said nothing.
type survey struct {
	appendOnly   string // "yes" or "no"
	appendFsync  string // "always", "everysec" or "no"
	evicts       bool   // keys that have no expiry, too
	memoryPolicy string
}

// survey asks Redis, every master of a cluster, who it is and how it is set up.
func (s *Store) survey(ctx context.Context) (survey, error) {
	const op = "open redis store"
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	var mu sync.Mutex
	var all []survey
	ask := func(ctx context.Context, c redis.Cmdable, clustered bool) error {
		found, err := examine(ctx, c, clustered)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found)
		return err
	}
	err := s.within(bounded, func(ctx context.Context) error {
		if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
			return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return ask(ctx, c, true) })
		}
		return ask(ctx, s.rdb, false)
	})
	mu.Lock()
	defer mu.Unlock()
	if err == nil && len(all) == 0 {
		err = errors.New("the cluster has no master")
	}
	var unsuitable *unsuitableError
	if errors.As(err, &unsuitable) {
		return survey{}, fmt.Errorf("%s: %w", op, err)
	}
	if err != nil {
		return survey{}, s.fail(ctx, op, err)
	}
	worst := all[0]
	for _, found := range all[1:] {
		worst = worst.or(found)
	}
	return worst, nil
}

// unsuitableError says that a server which answers well cannot be used.
type unsuitableError struct{ reason string }

func (e *unsuitableError) Error() string { return e.reason }

// examine reads one server.
func examine(ctx context.Context, c redis.Cmdable, clustered bool) (survey, error) {
	text, err := c.Info(ctx).Result()
	if err != nil {
		return survey{}, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	if err := checkVersion(info["redis_version"]); err != nil {
		return survey{}, err
	}
	switch {
	case info["role"] == "slave":
		return survey{}, &unsuitableError{"this Redis is a replica: leases are kept by its master, " + info["master_host"] + ":" + info["master_port"]}
	case info["cluster_enabled"] == "1" && !clustered:
		return survey{}, &unsuitableError{"this Redis is part of a cluster: say so, with ?cluster=true in the URL or Config.Cluster"}
	}
	found := survey{appendOnly: unknown, appendFsync: unknown, memoryPolicy: info["maxmemory_policy"]}
	found.evicts = info["maxmemory"] != "0" && strings.HasPrefix(found.memoryPolicy, "allkeys-")
	settings, err := c.ConfigGet(ctx, "append*").Result()
	switch {
	case err == nil:
		found.appendOnly, found.appendFsync = settings["appendonly"], settings["appendfsync"]
	case !isRedis(err):
		return survey{}, err
	case info["aof_enabled"] == "0":
		found.appendOnly = "no" // CONFIG may be refused; this much is told to all
	}
	return found, nil
}

func checkVersion(version string) error {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if errors.Join(err, err2) != nil {
		return &unsuitableError{fmt.Sprintf("this Redis says that its version is %q: want %d.%d or later", version, oldest[0], oldest[1])}
	}
	if a < oldest[0] || a == oldest[0] && b < oldest[1] {
		return &unsuitableError{fmt.Sprintf("this Redis is version %s, which is too old: want %d.%d or later", version, oldest[0], oldest[1])}
	}
	return nil
}

func (v survey) durable() bool { return v.appendOnly == "yes" && v.appendFsync == "always" }

// or is the worse of the two where it matters.
func (v survey) or(other survey) survey {
	if v.durable() {
		v.appendOnly, v.appendFsync = other.appendOnly, other.appendFsync
	}
	if !v.evicts {
		v.evicts, v.memoryPolicy = other.evicts, other.memoryPolicy
	}
	return v
}

func (v survey) guarantees() baton.Guarantees {
	g := baton.Guarantees{
		Store:         "redis",
		MinTTL:        100 * time.Millisecond,
		MaxTTL:        baton.MaxTTL,
		TTLStep:       time.Millisecond,
		Time:          baton.TimeWall,
		DurableTerms:  v.durable(),
		DeletionTerms: true,
		Extends:       true,
		Waiting:       baton.WaitLine,
		Transfers:     true,
		Caveats: []string{
			"a Redis that fails over to a replica can lose the last grants: two leaders at once, and a term granted twice; protect what leaders write to by fencing",
			"Redis judges leases by its wall clock: a step forward ends them early, a step back keeps them for up to a TTL longer",
			"whoever flushes Redis or restores it from a backup sets terms back",
		},
	}
	switch {
	case v.durable():
	case v.appendOnly == "":
		g.Caveats = append(g.Caveats, "unless Redis has appendonly yes and appendfsync always, a crash of it loses the last grants")
	case v.appendOnly == unknown:
		g.Caveats = append(g.Caveats, "appendfsync is unknown, since this user may not read it: unless it is always, a crash of Redis loses the last grants")
	case v.appendOnly == "no":
		g.Caveats = append(g.Caveats, "Redis has appendonly no: a crash or a restart of it loses the last grants, and possibly all terms; set appendonly yes and appendfsync always")
	default:
		g.Caveats = append(g.Caveats, "Redis has appendfsync "+v.appendFsync+": a crash of it loses the last grants; set appendfsync always")
	}
	if v.evicts {
		g.Caveats = append(g.Caveats, "Redis has maxmemory-policy "+v.memoryPolicy+": when memory runs short it forgets leases and terms; set noeviction")
	}
	return g
}
