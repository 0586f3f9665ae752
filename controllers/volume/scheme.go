package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// The provisioner library registers the core types in the scheme of client-go, which has them, while other goroutines
// already read that scheme for their requests: a data race that can end the process. Registering them there again does
// nothing instead.
func init() {
	register := corev1.AddToScheme
	corev1.AddToScheme = func(scheme *runtime.Scheme) error {
		if scheme == clientgoscheme.Scheme {
			return nil
		}
		return register(scheme)
	}
}
