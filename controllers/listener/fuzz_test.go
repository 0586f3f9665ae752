package listener

import (
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// FuzzReconcile looks for specs of Listeners and classes that cause a panic, or a message that controls a terminal.
func FuzzReconcile(f *testing.F) {
	for _, listener := range []string{
		`{"className":"some-class","ports":[{"name":"http","port":80}]}`,
		`{"className":"some-class","ports":[{"name":"http","port":80,"protocol":null}],"extraPodSelectorLabels":{"a":"b"},"publishNotReadyAddresses":null}`,
		`{"className":"some-class","ports":[{"name":"a","port":1},{"name":"b","port":2,"protocol":"UDP"}],"objectOverrides":[{"apiVersion":"v1","kind":"Service",` +
			`"metadata":{"name":"web","namespace":"shop","labels":{"a":"b"}},"spec":{"ports":[{"port":{}},{"port":{}}]}}]}`,
		`{"className":"\u001b[2J","ports":[{"name":"http","port":80}]}`,
		`{"className":"some-class","ports":[{"name":"a","port":1}],"objectOverrides":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"\u001b[2J":1}}]}`,
		`{"className":"some-class","ports":[{"name":"a","port":1}],"objectOverrides":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},` +
			`"spec":{"ports":[{"port":1,"protocol":{}}],"selector":{"$patch":"delete"}}}]}`,
	} {
		for _, class := range []string{
			`{"serviceType":"NodePort","nodePorts":{"range":"30000-30010"},"pinning":{"policy":"Required"}}`,
			`{"serviceType":"LoadBalancer","loadBalancer":{"sharing":{"portRange":"9000-9001"}},"hostname":{"template":"{listener}.{namespace}.example.com"}}`,
			`{"serviceType":"ClusterIP","route":{"hostTemplate":"{port}.{listener}.{namespace}.example.com"},"serviceOverrides":{"spec":{"ports":[{"port":1,"name":"x"}]}}}`,
			`{"serviceType":"ClusterIP","ingress":{"className":"nginx","hostTemplate":"{pod}.{listener}.{namespace}.example.com","path":"/{port}"}}`,
			`{"serviceType":"ClusterIP","gateway":{"kind":"TCPRoute","parentRefs":[{"namespace":"infra","name":"edge"}]},"ports":["a"]}`,
			`{"serviceType":"ClusterIP","pod":{},"hostname":{"template":"{podName}.{namespace}.example.com"}}`,
			`{"serviceType":"ClusterIP","hostPort":{},"listenerOverrides":{"allowed":["spec.ports"]},"maxPorts":1}`,
		} {
			f.Add([]byte(listener), []byte(class), []byte(`{"a":"b"}`))
		}
	}
	f.Fuzz(func(t *testing.T, listener, class, labels []byte) {
		s := newState(nodePort)
		s.listener.Spec, s.class.Spec, s.service = listenersv1alpha1.ListenerSpec{}, listenersv1alpha1.ListenerClassSpec{}, nil
		for raw, into := range map[*[]byte]any{&listener: &s.listener.Spec, &class: &s.class.Spec, &labels: &s.listener.Labels} {
			if err := kjson.UnmarshalCaseSensitivePreserveInts(*raw, into); err != nil {
				return // the API server would not store it
			}
		}
		s.with(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}, newNode("node-1", "192.0.2.1"),
			newVolume("pv-1", lastMountedOn("node-1")), newHostPortPod("a", "node-1", 80), newMount("a", "node-1", "pv-1"),
		)
		c := fakeclient.New(t, interceptor.Funcs{}, s.objects()...)
		recorder := events.NewFakeRecorder(1000)
		r := newReconciler(s.backends, c, recorder)
		for range 2 { // the second time, it has a Service and a status
			current := &listenersv1alpha1.Listener{}
			check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(s.listener), current))
			if _, err := r.Reconcile(t.Context(), current); err != nil {
				t.Skip(err) // the fake API server rejects what the real one validates
			}
		}
		expectPrintable(t, c, recorder)
	})
}

// expectPrintable expects that a terminal shows the conditions of the Listener, and all events, as they are.
func expectPrintable(t *testing.T, c client.Client, recorder *events.FakeRecorder) {
	t.Helper()
	l := &listenersv1alpha1.Listener{}
	check.Must(t, c.Get(t.Context(), key, l))
	var texts []string
	if l.Status != nil {
		for _, condition := range l.Status.Conditions {
			texts = append(texts, condition.Message)
		}
	}
	close(recorder.Events)
	for event := range recorder.Events {
		texts = append(texts, event)
	}
	for _, text := range texts {
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a terminal does not show %q as it is", text)
		}
	}
}
