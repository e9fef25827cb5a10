package redisstore

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// One who leaves a channel and one who comes may be all that the subscriber
// sees: nothing to do. The one who came is told all the same that it hears.
func TestWhoComesBeforeTheChannelIsLeftHasNews(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	h := newHub(rdb)
	h.pubsub = rdb.Subscribe(t.Context()) // connects to nothing yet; and nobody follows the channels here
	defer func() { _ = h.close() }()
	h.subscribed["c"] = true
	gone := h.listen("c")
	h.leave(gone)
	if news := h.listen("c"); len(news.C) != 1 {
		t.Error("no news: what was missed before is not looked for")
	}
}
