package certificate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/certificate"
)

const day = 24 * time.Hour

// For each rotation, at each time at which something changes, what signs has been trusted for the overlap, and every
// certificate that is still valid is trusted; after a leak, every certificate that was refreshed in time.
func TestRotationsBreakNoConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		rotation func(at time.Duration) certificate.Rotation
		validFor time.Duration
		want     int
	}{
		"by age": {func(time.Duration) certificate.Rotation {
			return certificate.Rotation{Overlap: certificate.DefaultOverlap}
		},
			certificate.LeafLifetime, 3},
		"on request": {func(at time.Duration) certificate.Rotation {
			r := certificate.Rotation{Overlap: certificate.DefaultOverlap}
			if at >= 100*day {
				r.NotBefore = now.Add(100 * day)
			}
			return r
		}, certificate.LeafLifetime, 4},
		"after a leak": {func(at time.Duration) certificate.Rotation {
			if at >= 100*day {
				return certificate.Rotation{NotBefore: now.Add(100 * day), Overlap: 5 * time.Minute}
			}
			return certificate.Rotation{Overlap: 5 * time.Minute}
		}, certificate.RefreshAfter + 7*time.Minute, 4},
	} {
		t.Run(name, func(t *testing.T) {
			type signature struct {
				root certificate.Root
				at   time.Duration
			}
			var (
				roots   certificate.Roots
				signed  []signature
				trusted = map[certificate.Root]time.Duration{}
			)
			for at := time.Duration(0); at < 3*365*day; at += 10 * time.Minute {
				rotation := tc.rotation(at)
				roots, _ = roots.Next(rotation, now.Add(at))
				for _, root := range roots {
					if _, ok := trusted[root]; !ok {
						trusted[root] = at
					}
				}
				signing := roots.Signing(rotation, now.Add(at))
				if since := trusted[signing]; since > 0 && at-since < rotation.Overlap {
					t.Fatalf("after %s, a root signs that clients trust for %s only", at, at-since)
				}
				signed = slices.DeleteFunc(signed, func(s signature) bool { return at-s.at > tc.validFor })
				for _, s := range signed {
					if !slices.Contains(roots, s.root) {
						t.Fatalf("after %s, a certificate of %s ago is no longer trusted", at, at-s.at)
					}
				}
				signed = append(signed, signature{signing, at})
			}
			if len(trusted) != tc.want || len(roots) > 2 {
				t.Errorf("there were %d roots, want %d; in the end there are %d", len(trusted), tc.want, len(roots))
			}
		})
	}
}

// They do not change in between.
func TestRootsChangeWhenNextSays(t *testing.T) {
	rotation := certificate.Rotation{Overlap: certificate.DefaultOverlap}
	var roots certificate.Roots
	var changes []string
	for at := now; at.Before(now.Add(800 * day)); {
		next, again := roots.Next(rotation, at)
		changes = append(changes, at.Sub(now).Round(time.Hour).String())
		before, stillNext := next.Next(rotation, again.Add(-time.Second))
		if !slices.Equal(before, next) || !stillNext.Equal(again) || next.Signing(rotation, at) != next.Signing(rotation, again.Add(-time.Second)) {
			t.Errorf("the roots of %s change before %s", at, again)
		}
		if !again.After(at) {
			t.Fatalf("at %s, the next change is at %s", at, again)
		}
		roots, at = next, again
	}
	if got, want := strings.Join(changes, " "), "0s 8760h0m0s 9480h0m0s 9504h0m0s 17520h0m0s 18240h0m0s 18264h0m0s"; got != want {
		t.Errorf("roots change after %s, want %s", got, want)
	}
}

// They are replaced at once, as when an operator did not run for years.
func TestExpiredRoots(t *testing.T) {
	roots, _ := certificate.Roots(nil).Next(certificate.Rotation{}, now)
	later := now.Add(certificate.AuthorityLifetime)
	next, _ := roots.Next(certificate.Rotation{Overlap: certificate.DefaultOverlap}, later)
	if len(next) != 1 || next[0] == roots[0] || next.Signing(certificate.Rotation{Overlap: certificate.DefaultOverlap}, later) != next[0] {
		t.Errorf("after expiry, there are %d roots", len(next))
	}
}

// They are errors that reveal nothing.
func TestDamagedRoots(t *testing.T) {
	for _, data := range []map[string][]byte{
		{"tls.key": []byte("c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=")},
		{"20261126T120000Z": []byte("c2VjcmV0")},
		{"20261126T120000Z": []byte("secret!!")},
		{"20261126T120000Z": nil},
	} {
		if _, err := certificate.Decode(data); err == nil || strings.Contains(err.Error(), "ecret") || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("Decode(%s): %v", data, err)
		}
	}
	if roots, err := certificate.Decode(nil); err != nil || len(roots) != 0 {
		t.Error("an empty Secret has roots, or an error: ", err)
	}
}
