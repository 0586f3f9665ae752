package certificate

import (
	"encoding/base64"
	"fmt"
	"slices"
	"time"
)

// Rotation is how roots are replaced.
type Rotation struct {
	// NotBefore is the time before which no root may have been created. Zero means that only old roots are replaced.
	NotBefore time.Time
	// Overlap is how long clients have to trust a new root before its authorities sign.
	Overlap time.Duration
}

const (
	// DefaultOverlap is the overlap of a rotation that nobody is in a hurry for.
	DefaultOverlap = 30 * 24 * time.Hour
	// rootAge is when a root is replaced. Its authorities are then valid for another year.
	rootAge = AuthorityLifetime / 2
	// LeafLifetime is how long certificates of Pods are valid, unless the Pod asks for less. They are replaced much
	// earlier, so that they remain valid for most of a day while no operator runs.
	LeafLifetime = 24 * time.Hour
	// RefreshAfter is when the kubelet replaces a certificate, and thus how old the addresses in it may be. The kubelet
	// adds up to seven minutes.
	RefreshAfter = 15 * time.Minute
)

// Roots are the roots of the operator, the oldest first. The last ones may not sign yet, the first ones no longer.
type Roots []Root

// Next returns the roots at a time: without those that no certificate depends on any more, and with a new one if it is
// time for one. again is when they change next.
func (r Roots) Next(rotation Rotation, now time.Time) (next Roots, again time.Time) {
	next = slices.DeleteFunc(slices.Clone(r), func(root Root) bool { return !now.Before(root.expiry()) })
	for len(next) > 1 && !now.Before(next[1].distrusts(rotation)) {
		next = next[1:]
	}
	if len(next) == 0 || !now.Before(next[len(next)-1].replacedAt(rotation)) {
		next = append(next, NewRoot(now))
	}
	again = next[len(next)-1].replacedAt(rotation)
	for _, root := range next[1:] {
		for _, t := range []time.Time{root.Since.Add(rotation.Overlap), root.distrusts(rotation)} {
			if t.After(now) && t.Before(again) {
				again = t
			}
		}
	}
	return next, again
}

// Signing returns the root whose authorities sign at a time: the newest one that clients have had time to trust. There
// must be a root.
func (r Roots) Signing(rotation Rotation, now time.Time) Root {
	signing := r[0]
	for _, root := range r[1:] {
		if !now.Before(root.Since.Add(rotation.Overlap)) {
			signing = root
		}
	}
	return signing
}

// expiry is when a root can sign no certificate any more.
func (r Root) expiry() time.Time { return r.Since.Add(AuthorityLifetime - LeafLifetime) }

// replacedAt is when the root gets a successor.
func (r Root) replacedAt(rotation Rotation) time.Time {
	if r.Since.Before(rotation.NotBefore.Truncate(time.Second)) {
		return rotation.NotBefore
	}
	return r.Since.Add(rootAge)
}

// distrusts is when the root has signed for so long that its predecessors are no longer trusted: when all their
// certificates have expired, or, in a rotation with a short overlap, when they have been refreshed.
func (r Root) distrusts(rotation Rotation) time.Time {
	return r.Since.Add(rotation.Overlap).Add(min(max(rotation.Overlap, 4*RefreshAfter), LeafLifetime))
}

const timeFormat = "20060102T150405Z"

// Encode returns the data of the Secret that keeps the roots: each seed by the time since which it exists.
func (r Roots) Encode() map[string][]byte {
	data := make(map[string][]byte, len(r))
	for _, root := range r {
		data[root.Since.UTC().Format(timeFormat)] = []byte(base64.StdEncoding.EncodeToString(root.Seed[:]))
	}
	return data
}

// Decode reverses Encode. An error never contains a seed.
func Decode(data map[string][]byte) (Roots, error) {
	var roots Roots
	for key, value := range data {
		since, err := time.Parse(timeFormat, key)
		if err != nil {
			return nil, fmt.Errorf("key %q is not a time like %s", key, timeFormat)
		}
		seed, err := base64.StdEncoding.DecodeString(string(value))
		if err != nil || len(seed) != SeedSize {
			return nil, fmt.Errorf("the value of key %q is not %d bytes in base64", key, SeedSize)
		}
		roots = append(roots, Root{Seed: [SeedSize]byte(seed), Since: since})
	}
	slices.SortFunc(roots, func(a, b Root) int { return a.Since.Compare(b.Since) })
	return roots, nil
}
