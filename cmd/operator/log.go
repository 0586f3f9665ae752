package main

import (
	"context"
	"log/slog"

	"github.com/listener-operator/listener-operator/internal/requests"
)

// quiet returns a handler that passes errors by which the API server rejects new objects in namespaces that are
// being deleted to next at the debug level, whoever logs them. The library that sends events would log one for each.
func quiet(next slog.Handler) slog.Handler { return logHandler{next} }

// levelDebug is logr's V(1).
const levelDebug = slog.LevelInfo - 1

type logHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	terminating := false
	record.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		terminating = ok && requests.IsTerminating(err)
		return !terminating
	})
	if terminating {
		record.Level = levelDebug
		if !h.Enabled(ctx, record.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
