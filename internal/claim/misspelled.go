package claim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/listener-operator/listener-operator/internal/names"
)

// DidYouMean returns a question about the first annotation of a claim whose key nearly is one of those of
// ParseSelector, or "". It begins with a separator, and continues the text of ErrNoSelector.
func DidYouMean(annotations map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if meant := nearest(key); meant != "" {
			return fmt.Sprintf("; it has the annotation %s: did you mean %s?", key, meant)
		}
	}
	return ""
}

// nearest returns the key that the author of a similar one probably meant, or "". A key is similar if its domain begins
// with "listener" or its name contains that word, in any spelling.
func nearest(key string) string {
	if key == names.AnnotationListenerClass || key == names.AnnotationListenerName {
		return ""
	}
	domain, name, found := strings.Cut(key, "/")
	if !found {
		domain, name = "", key
	}
	domain, name = strings.ToLower(domain), strings.ToLower(name)
	ours := strings.HasPrefix(domain, "listener")
	switch {
	case !ours && !strings.Contains(name, "listener"):
		return ""
	case strings.Contains(name, "class"):
		return names.AnnotationListenerClass
	case strings.Contains(name, "name"), strings.Contains(name, "listener"):
		return names.AnnotationListenerName
	default:
		return ""
	}
}
