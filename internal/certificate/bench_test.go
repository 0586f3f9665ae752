package certificate_test

import (
	"testing"

	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// BenchmarkAuthority derives the authority of a namespace from a root, which the operator does for each certificate.
func BenchmarkAuthority(b *testing.B) {
	root := certificate.NewRoot(now)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := root.Authority("kafka", "uid"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIssue signs a certificate for a key of each type.
func BenchmarkIssue(b *testing.B) {
	a, err := certificate.NewRoot(now).Authority("kafka", "uid")
	check.Must(b, err)
	for name, key := range keys(b) {
		b.Run(name, func(b *testing.B) {
			leaf := leafOf(key, "203.0.113.7", "2001:db8::7", "kafka-0.example.com")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Issue(leaf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
