package gather

import (
	"io"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Walks list CertificateRequests of cert-manager.
func TestKindsWithoutGoTypeAreListedAndWritten(t *testing.T) {
	kind := names.KindCertificate.GroupVersion().WithKind("CertificateRequest")
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(kind)
	request.SetNamespace("shop")
	request.SetName("web-1")
	var written []string
	g := &gatherer{
		Environment: &command.Environment{IOStreams: genericiooptions.IOStreams{ErrOut: io.Discard}},
		add:         func(name string, _ []byte) error { written = append(written, name); return nil },
		written:     sets.New[string](), uids: sets.New[types.UID](),
	}
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithRESTMapper(mapper).WithObjects(request).Build()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind("CertificateRequestList"))
	if err := source.List(&recorder{Client: c, gatherer: g}).List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].GetName() != request.GetName() {
		t.Errorf("listed: %v", list.Items)
	}
	if !slices.Equal(written, []string{"namespaces/shop/cert-manager.io/certificaterequests/web-1.yaml"}) || len(g.index.Missing) > 0 {
		t.Errorf("written: %v, missing: %v", written, g.index.Missing)
	}
}

func TestOnlyValuesOfKnownAnnotationsAreKept(t *testing.T) {
	kept := slices.Clone(foreign)
	for _, key := range keys.Table() {
		kept = append(kept, key.Name)
	}
	annotations := map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "x"}
	for _, key := range slices.Concat(kept, []string{
		"listener-operator.dev/password", "listeners.stackable.tech/listener-clas", "listener-operator.dev", "example.com/ports", "plain",
	}) {
		annotations[key] = "a value"
	}
	cleanAnnotations(annotations)
	for key, value := range annotations {
		want := removed
		if slices.Contains(kept, key) {
			want = "a value"
		}
		if value != want {
			t.Errorf("%s: %q, want %q", key, value, want)
		}
	}
	if len(annotations) != len(kept)+5 {
		t.Errorf("there are %d annotations", len(annotations))
	}
}
