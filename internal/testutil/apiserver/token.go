package apiserver

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WithToken returns the configuration of a client that has nothing but a token of a ServiceAccount, bound to a Pod of
// it, as the kubelet mounts it into the Pod. The ServiceAccount and the Pod are created if they do not exist.
func WithToken(t testing.TB, admin *rest.Config, namespace, account string) *rest.Config {
	t.Helper()
	c, err := client.New(admin, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal("creating a client: ", err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	for _, object := range []client.Object{serviceAccount, pod} {
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if err := c.SubResource("token").Create(t.Context(), serviceAccount, request); err != nil {
		t.Fatalf("requesting a token of ServiceAccount %s/%s: %v", namespace, account, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = request.Status.Token
	config.QPS = -1
	return config
}
