package requests

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func Expected(err error) bool {
	return all(err, func(err error) bool { return apierrors.IsConflict(err) || IsTerminating(err) })
}

// IsTerminating reports whether the API server has rejected a new object because its namespace is being deleted.
func IsTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// ExceededQuota returns what the API server says about an object that a ResourceQuota does not permit, which names the
// quota, or "" if err is any other error or nil.
func ExceededQuota(err error) string {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(rejected) || !strings.Contains(rejected.ErrStatus.Message, "exceeded quota") {
		return ""
	}
	return rejected.ErrStatus.Message
}

// all reports whether is holds for each of the errors that err joins.
func all(err error, is func(error) bool) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return is(err)
	}
	for _, e := range joined.Unwrap() {
		if !all(e, is) {
			return false
		}
	}
	return true
}
