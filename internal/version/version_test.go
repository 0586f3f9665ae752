package version_test

import (
	"testing"

	"github.com/listener-operator/listener-operator/internal/version"
)

func TestLinksLeadToThePagesOfTheRelease(t *testing.T) {
	const files = "https://github.com/listener-operator/listener-operator/blob/"
	for _, tc := range []struct{ version, text, want string }{
		{"dev", "If it is gone: docs/lost-nodes.md", "If it is gone: " + files + "main/docs/lost-nodes.md"},
		{"v1.2.3-4-gabcdef0", "docs/tls.md", files + "main/docs/tls.md"},
		{"1.2.3-dirty", "docs/tls.md", files + "main/docs/tls.md"},
		{"abcdef0-dirty", "docs/tls.md", files + "main/docs/tls.md"},
		{"v1.2.3", "docs/tls.md", files + "v1.2.3/docs/tls.md"}, // built from a checkout of the tag
		{"1.2.3-rc.1", "docs/tls.md", files + "v1.2.3-rc.1/docs/tls.md"},
		{"1.2.3", "docs/tls.md#authorities, docs/recipes/hdfs.md.", files + "v1.2.3/docs/tls.md#authorities, " + files + "v1.2.3/docs/recipes/hdfs.md."},
		{"1.2.3", "(config/samples/configuration/listeneroperator.yaml)", "(" + files + "v1.2.3/config/samples/configuration/listeneroperator.yaml)"},
		{"1.2.3", files + "v1.2.3/docs/tls.md", files + "v1.2.3/docs/tls.md"},
		{"1.2.3", "https://example.com/docs/tls.md, docs", "https://example.com/docs/tls.md, docs"},
	} {
		t.Run(tc.version+" "+tc.text, func(t *testing.T) {
			before := version.Version
			t.Cleanup(func() { version.Version = before })
			version.Version = tc.version
			if got := version.Link(tc.text); got != tc.want || version.Link(got) != got {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
