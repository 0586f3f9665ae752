package exposure

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// hashLength is how many characters of a hash a shortened name ends with.
const hashLength = 8

// Shorten returns a name, or if it is longer than limit its beginning with a hash of all of it: the same for the same
// name, and another for another one. The limit must be above 10 characters.
func Shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return hashed(name, name, limit)
}

// Label returns a name of a Kubernetes object as a part of a host name between two dots: without dots, and if it had
// any with a hash, so that it differs from that of any other name.
func Label(name string) string {
	if !strings.Contains(name, ".") {
		return name
	}
	return hashed(strings.ReplaceAll(name, ".", "-"), name, 63)
}

// hashed returns the beginning of what is shown with a hash of name, at most limit characters long.
func hashed(shown, name string, limit int) string {
	sum := sha256.Sum256([]byte(name))
	beginning := strings.TrimRight(shown[:min(len(shown), limit-hashLength-1)], "-.")
	return beginning + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
