package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestErrorsOfNamespacesThatAreBeingDeletedAreLoggedForDebugging(t *testing.T) {
	terminating := apierrors.NewForbidden(corev1.Resource("events"), "web", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tc := range []struct {
		err   error
		level slog.Level
		want  string
	}{
		{terminating, slog.LevelInfo, ""},
		{fmt.Errorf("writing the event: %w", terminating), slog.LevelInfo, ""},
		{terminating, slog.LevelInfo - 1, "DEBUG+3"},
		{apierrors.NewForbidden(corev1.Resource("events"), "web", errors.New("denied")), slog.LevelInfo, "ERROR"},
		{errors.New("the API server is unavailable"), slog.LevelInfo, "ERROR"},
		{nil, slog.LevelInfo, "ERROR"},
	} {
		var got strings.Builder
		log := logr.FromSlogHandler(quiet{slog.NewTextHandler(&got, &slog.HandlerOptions{Level: tc.level})})
		log.WithName("events").WithValues("namespace", "shop").Error(tc.err, "Server rejected event", "event", "web")
		if tc.want == "" != (got.Len() == 0) || !strings.Contains(got.String(), tc.want) {
			t.Errorf("%v at level %s: logged %q, want %q", tc.err, tc.level, got.String(), tc.want)
		}
	}
}
