package boottime

import "context"

// Context is a context that ends when its owner's clock says so, even if no
// timer has fired yet: after a pause of the process, timers are late and code
// that resumes in the middle of something must not find a live context.
type Context struct {
	context.Context
	check func()
}

// NewContext returns a child of parent. check is called by every Err, and
// cancels the context, by the function returned, if its time is over. A
// context derived from this one sees the end when Done is closed, so somebody
// has to call Err now and then.
func NewContext(parent context.Context, check func()) (*Context, context.CancelCauseFunc) {
	inner, cancel := context.WithCancelCause(parent)
	return &Context{Context: inner, check: check}, cancel
}

// Err looks at the clock first.
func (c *Context) Err() error {
	c.check()
	return c.Context.Err()
}
