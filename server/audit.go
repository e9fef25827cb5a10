package server

import (
	"context"
	"log/slog"
)

type actorKey struct{}

// WithActor says on whose behalf ctx acts, for the audit log: an identity that
// was proven, or else an address.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// audit records an act of an administrator, done or refused. Its lines can be
// told from all others by audit=true.
func (s *Service) audit(ctx context.Context, act, group string, err error, attrs ...any) {
	actor, _ := ctx.Value(actorKey{}).(string)
	attrs = append([]any{"audit", true, "act", act, "actor", actor, "group", group}, attrs...)
	if err != nil {
		s.log.Log(ctx, slog.LevelWarn, "administrator's act refused", append(attrs, "error", err)...)
		return
	}
	s.log.Log(ctx, slog.LevelInfo, "administrator acted", attrs...)
}
