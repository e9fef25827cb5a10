package redisstore

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// hub hears what scripts tell of groups, over one connection for all who
// listen. What it tells is a hint: a message may be lost.
type hub struct {
	rdb redis.UniversalClient

	mu         sync.Mutex
	ears       map[string]map[*ear]bool // by channel
	subscribed map[string]bool          // by channel
	changed    chan struct{}            // the set of channels may have changed
	pubsub     *redis.PubSub            // nil until somebody listens
	closed     bool
	running    sync.WaitGroup
}

// ear is one who listens.
type ear struct {
	channel string
	// C has the last message. It is empty when more than one came, or some may
	// have been missed: a look tells what matters.
	C chan string
}

func newHub(rdb redis.UniversalClient) *hub {
	return &hub{rdb: rdb, ears: map[string]map[*ear]bool{}, subscribed: map[string]bool{}, changed: make(chan struct{}, 1)}
}

// listen begins to hear a channel. The first message is the news that it does.
func (h *hub) listen(channel string) *ear {
	e := &ear{channel: channel, C: make(chan string, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return e
	}
	if h.pubsub == nil {
		h.pubsub = h.rdb.Subscribe(context.Background())
		messages := h.pubsub.ChannelWithSubscriptions()
		h.running.Go(func() { h.hear(messages) })
		h.running.Go(h.subscribe)
	}
	if h.ears[channel] == nil {
		h.ears[channel] = map[*ear]bool{}
		h.note()
	}
	if len(h.ears[channel]) > 0 || h.subscribed[channel] {
		e.tell("") // it is heard already, or will be
	}
	h.ears[channel][e] = true
	return e
}

func (h *hub) leave(e *ear) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ears[e.channel], e)
	if len(h.ears[e.channel]) == 0 {
		delete(h.ears, e.channel)
		h.note()
	}
}

// note is called with the lock held.
func (h *hub) note() {
	if h.closed {
		return
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (e *ear) tell(message string) {
	select {
	case e.C <- message:
		return
	default:
	}
	select {
	case <-e.C:
	default:
	}
	select {
	case e.C <- "":
	default:
	}
}

// hear passes on messages until the connection is closed for good. A
// subscription is news too: until it stood, messages were missed.
func (h *hub) hear(messages <-chan any) {
	for m := range messages {
		var channel, text string
		switch m := m.(type) {
		case *redis.Message:
			channel, text = m.Channel, m.Payload
		case *redis.Subscription:
			if m.Kind != "subscribe" {
				continue
			}
			channel = m.Channel
		}
		h.mu.Lock()
		for e := range h.ears[channel] {
			e.tell(text)
		}
		h.mu.Unlock()
	}
}

// subscribe follows the set of channels. It is apart from those who listen,
// since it may wait for Redis. What fails is done again when the connection is.
func (h *hub) subscribe() {
	ctx := context.Background()
	for range h.changed {
		h.mu.Lock()
		var more, less []string
		for channel := range h.ears {
			if !h.subscribed[channel] {
				more = append(more, channel)
				h.subscribed[channel] = true
			}
		}
		for channel := range h.subscribed {
			if h.ears[channel] == nil {
				less = append(less, channel)
				delete(h.subscribed, channel)
			}
		}
		h.mu.Unlock()
		if len(more) > 0 {
			_ = h.pubsub.Subscribe(ctx, more...)
		}
		if len(less) > 0 {
			_ = h.pubsub.Unsubscribe(ctx, less...)
		}
	}
}

func (h *hub) close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	pubsub := h.pubsub
	close(h.changed)
	h.mu.Unlock()
	var err error
	if pubsub != nil {
		err = pubsub.Close()
	}
	h.running.Wait()
	if errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}
