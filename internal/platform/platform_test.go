package platform

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
