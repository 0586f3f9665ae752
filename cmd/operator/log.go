package main

import (
	"context"
	"log/slog"

	"github.com/listener-operator/listener-operator/internal/requests"
)

const levelDebug = slog.LevelInfo - 1

// quiet passes errors by which the API server rejects new objects in namespaces that are being deleted to the handler
// at the debug level, whoever logs them. The library that sends events would log one for each.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		if ok && requests.IsTerminating(err) {
			record.Level = levelDebug
		}
		return record.Level != levelDebug
	})
	if !q.Enabled(ctx, record.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, record)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
