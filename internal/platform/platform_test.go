package platform

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listener-operator/listener-operator/internal/names"
)

// The control plane is upgraded while the operator runs.
func TestAKindThatAnUpgradeAddsIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind, mapper := names.KindPodCertificateRequest, &upgradedMapper{}
		a := &APIs{mapper: mapper, definitions: map[schema.GroupVersionKind]map[schema.GroupVersionResource]string{kind: {}}, changed: make(chan struct{})}
		_, changed := a.state(kind)
		if err := a.discover(t.Context(), OptionalKind{GroupVersionKind: kind, BuiltIn: true}); err != nil || a.Serves(kind) {
			t.Fatalf("served, %v", err)
		}
		mapper.upgraded.Store(true)
		time.Sleep(discoveryInterval) // of the bubble
		synctest.Wait()
		if !a.Serves(kind) {
			t.Error("not noticed")
		}
		<-changed
	})
}

// upgradedMapper knows all kinds after the upgrade, and none before.
type upgradedMapper struct {
	meta.RESTMapper
	upgraded atomic.Bool
}

func (m *upgradedMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if !m.upgraded.Load() {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return &meta.RESTMapping{}, nil
}

func TestEstablished(t *testing.T) {
	crd := func(change func(o map[string]any)) *unstructured.Unstructured {
		o := map[string]any{
			"metadata": map[string]any{"name": "routes.example.com"},
			"spec":     map[string]any{"versions": []any{map[string]any{"name": "v1", "served": true}, map[string]any{"name": "v2", "served": false}}},
			"status": map[string]any{"conditions": []any{
				map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"},
			}},
		}
		change(o)
		return &unstructured.Unstructured{Object: o}
	}
	unchanged := func(map[string]any) {}
	conditions := func(names, established string) func(map[string]any) {
		return func(o map[string]any) {
			o["status"] = map[string]any{"conditions": []any{
				map[string]any{"type": "NamesAccepted", "status": names}, map[string]any{"type": "Established", "status": established},
			}}
		}
	}
	for name, tc := range map[string]struct {
		versions []string
		change   func(map[string]any)
		want     string
	}{
		"established":                                 {[]string{"v1"}, unchanged, "v1"},
		"of another version":                          {[]string{"v3"}, unchanged, ""},
		"version that is not served":                  {[]string{"v2"}, unchanged, ""},
		"not established yet":                         {[]string{"v1"}, conditions("True", "False"), ""},
		"still established after a conflict of names": {[]string{"v1"}, conditions("False", "True"), "v1"},
		"without conditions":                          {[]string{"v1"}, func(o map[string]any) { delete(o, "status") }, ""},
		"first of several versions":                   {[]string{"v3", "v2", "v1", "v0"}, unchanged, "v1"},
		"being deleted": {[]string{"v1"}, func(o map[string]any) {
			o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := established(crd(tc.change), tc.versions); err != nil || got != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestAggregated(t *testing.T) {
	withService := map[string]any{"service": map[string]any{"name": "api"}}
	for name, tc := range map[string]struct {
		object map[string]any
		want   string
	}{
		"with a service":               {map[string]any{"spec": withService}, "v1"},
		"of CustomResourceDefinitions": {map[string]any{"spec": map[string]any{}}, ""},
		"being deleted":                {map[string]any{"spec": withService, "metadata": map[string]any{"deletionTimestamp": "2026-01-02T03:04:05Z"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := aggregated(&unstructured.Unstructured{Object: tc.object}, []string{"v1", "v2"}); err != nil || got != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
