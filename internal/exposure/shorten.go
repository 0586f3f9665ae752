package exposure

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// hashLength is the number of characters of the hash at the end of a shortened name.
const hashLength = 8

// Shorten returns the name if it has at most limit characters, or else its beginning followed by a hash of the whole
// name. The result depends on the name alone and differs between names. The limit must be greater than 10.
func Shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return hashed(name, name, limit)
}

// Label returns the name of a Kubernetes object as a DNS label: with hyphens in place of dots. If the name has dots,
// the label ends with a hash, so that it differs from the label of any other name.
func Label(name string) string {
	if !strings.Contains(name, ".") {
		return name
	}
	return hashed(strings.ReplaceAll(name, ".", "-"), name, 63)
}

// hashed returns the beginning of prefix followed by a hash of name, with at most limit characters.
func hashed(prefix, name string, limit int) string {
	sum := sha256.Sum256([]byte(name))
	beginning := strings.TrimRight(prefix[:min(len(prefix), limit-hashLength-1)], "-.")
	return beginning + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
