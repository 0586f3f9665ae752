package plugin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// The API server accepts it.
func TestBindingIsASecretOfTheServiceBindingSpecification(t *testing.T) {
	ports := map[string]int32{"client": 9092}
	for name, tc := range map[string]struct {
		addresses []listenersv1alpha1.IngressAddress
		labels    map[string]string
		args      []string
		want      map[string]string
		note      string // part of what is written beside the Secret, "" for nothing
	}{
		"the only address and port": {
			addresses: []listenersv1alpha1.IngressAddress{at("203.0.113.7", ports)}, args: []string{"--type", "kafka"},
			want: map[string]string{"type": "kafka", "host": "203.0.113.7", "port": "9092", "uri": "kafka://203.0.113.7:9092"},
		},
		"the type by the label": {
			addresses: []listenersv1alpha1.IngressAddress{at("kafka.example.com", ports)}, labels: map[string]string{"app.kubernetes.io/name": "kafka"},
			want: map[string]string{"type": "kafka", "host": "kafka.example.com", "port": "9092", "uri": "kafka://kafka.example.com:9092"},
		},
		"an IPv6 address": {
			addresses: []listenersv1alpha1.IngressAddress{at("2001:db8::7", ports), at("203.0.113.7", ports)}, args: []string{"--type", "redis"},
			want: map[string]string{"type": "redis", "host": "2001:db8::7", "port": "9092", "uri": "redis://[2001:db8::7]:9092"},
			note: "has 2 addresses with port client; the Secret has the first: [2001:db8::7]:9092",
		},
		"the first address with the port": {
			addresses: []listenersv1alpha1.IngressAddress{at("admin.example.com", map[string]int32{"admin": 443}), at("client.example.com", map[string]int32{"client": 443})},
			args:      []string{"--type", "https", "--port", "client"},
			want:      map[string]string{"type": "https", "host": "client.example.com", "port": "443", "uri": "https://client.example.com:443"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.listener.Labels, w.pod.Labels = tc.labels, labels.Merge(w.pod.Labels, tc.labels)
			w.update(t, w.listener)
			w.update(t, w.pod)
			w.publish(t, tc.addresses...)
			for _, object := range []string{"web", "listener/web", "pod/web-0", "web-0"} {
				streams, _, out, errOut := genericiooptions.NewTestIOStreams()
				printed, err := runWith(t, apiserver.Config(t), streams, out, append([]string{"binding", object, "-n", w.namespace}, tc.args...)...)
				if err != nil {
					t.Fatalf("%s: %v", object, err)
				}
				if got := errOut.String(); (got != "") != (tc.note != "") || !strings.Contains(got, tc.note) {
					t.Errorf("%s: the note is %q, want %q", object, got, tc.note)
				}
				secret := &corev1.Secret{}
				if err := yaml.UnmarshalStrict([]byte(printed), secret); err != nil {
					t.Fatalf("%s: %v\n%s", object, err, printed)
				}
				if diff := cmp.Diff(tc.want, secret.StringData); diff != "" || string(secret.Type) != "servicebinding.io/"+tc.want["type"] {
					t.Errorf("%s: type %s, entries (-want +got):\n%s", object, secret.Type, diff)
				}
				if want := object[strings.LastIndex(object, "/")+1:] + "-binding"; secret.Name != want || secret.Namespace != "" {
					t.Errorf("%s: the Secret is %s/%s, want %s in no namespace", object, secret.Namespace, secret.Name, want)
				}
				secret.Namespace = w.namespace
				if err := w.Create(t.Context(), secret, client.DryRunAll); err != nil {
					t.Errorf("%s: %v", object, err)
				}
			}
		})
	}
}

// Other servers have none.
func TestBindingHasTheAuthoritiesOfServersWithCertificates(t *testing.T) {
	w := newWorld(t)
	authorities := func(object string) (string, error) {
		out, err := run(t, apiserver.Config(t), "binding", object, "-n", w.namespace, "--type", "https")
		secret := &corev1.Secret{}
		if err == nil {
			err = yaml.UnmarshalStrict([]byte(out), secret)
		}
		return secret.StringData[names.CertificateAuthorityKey], err
	}
	s := newSecured(t, w)
	s.pod.Labels = w.pod.Labels
	if _, err := authorities("pod/secured"); err == nil || !strings.Contains(err.Error(), "has no certificate authority") {
		t.Errorf("without an authority: %v", err)
	}
	s.trust(t)
	for object, want := range map[string]string{"pod/secured": string(s.authority.PEM()), "pod/web-0": "", "listener/web": ""} {
		if got, err := authorities(object); err != nil || got != want {
			t.Errorf("%s: %q, %v", object, got, err)
		}
	}
	w.update(t, s.pod) // from now on, it mounts the Listener
	if got, err := authorities("listener/web"); err != nil || got != string(s.authority.PEM()) {
		t.Errorf("a Listener of such a Pod: %q, %v", got, err)
	}
}

// The user may read only the Listener.
func TestBindingSaysWhatItCouldNotRead(t *testing.T) {
	w := newWorld(t)
	config := w.user(t,
		rbacv1.PolicyRule{APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"listeners"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	)
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	printed, err := runWith(t, config, streams, out, "binding", "web", "-n", w.namespace, "--type", "kafka")
	if err != nil || !strings.Contains(printed, "kafka://203.0.113.7:31337") {
		t.Errorf("%q, %v", printed, err)
	}
	if !strings.Contains(errOut.String(), "so ca.crt is left out. If they serve certificates of the operator, add it: kubectl listener ca --namespace "+w.namespace) {
		t.Errorf("the note is %q", errOut)
	}
	if _, err := run(t, config, "binding", "pod/web-0", "-n", w.namespace, "--type", "kafka"); err == nil || !strings.Contains(err.Error(), "you may not read PodListeners") {
		t.Errorf("error %v", err)
	}
}

func TestBindingThatCannotBeMadeNamesObjectCauseAndRemedy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, *world)
		args   []string
		want   []string // parts of the message
	}{
		"no such object": {args: []string{"db", "--type", "kafka"}, want: []string{`has no listener, pod "db"`}},
		"no address": {
			change: func(t *testing.T, w *world) { w.publish(t) }, args: []string{"web", "--type", "kafka"},
			want: []string{"Listener ", "/web has no address; find out why: kubectl listener why listener/web --namespace "},
		},
		"a Pod without listener volumes": {
			change: func(t *testing.T, w *world) { w.create(t, w.newPod("other", w.claim.Name)) }, args: []string{"pod/other", "--type", "kafka"},
			want: []string{"Pod ", "/other has no address; find out why: kubectl listener why pod/other --namespace "},
		},
		"several listener volumes": {
			change: func(t *testing.T, w *world) {
				w.podListeners.Spec.Listeners["bootstrap"] = listenersv1alpha1.PodListener{
					Scope: listenersv1alpha1.ListenerScopeNode, ListenerName: "bootstrap", IngressAddresses: addresses(),
				}
				w.update(t, w.podListeners)
			},
			args: []string{"web-0", "--type", "kafka"}, want: []string{"/web-0 has 2 listener volumes; name the Listener of one of them instead: listener/bootstrap, listener/web"},
		},
		"no type":         {args: []string{"web"}, want: []string{"/web has no label app.kubernetes.io/name", "set --type"}},
		"an invalid type": {args: []string{"web", "--type", "Kafka"}, want: []string{`--type is "Kafka", and must be a lower-case letter`}},
		"a label that is no type": {
			change: func(t *testing.T, w *world) {
				w.listener.Labels = map[string]string{"app.kubernetes.io/name": "My_App"}
				w.update(t, w.listener)
			},
			args: []string{"web"}, want: []string{"the label app.kubernetes.io/name of Listener ", `is "My_App", which is no type; set --type`},
		},
		"no such port": {args: []string{"web", "--type", "kafka", "--port", "tls"}, want: []string{`/web has no port "tls", but http; set --port`}},
		"several ports": {
			change: func(t *testing.T, w *world) {
				w.publish(t, at("203.0.113.7", map[string]int32{"client": 1, "admin": 2}))
			},
			args: []string{"web", "--type", "kafka"}, want: []string{"/web has the ports admin, client; set --port to one of them"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.change != nil {
				tc.change(t, w)
			}
			out, err := run(t, apiserver.Config(t), append([]string{"binding", "-n", w.namespace}, tc.args...)...)
			if err == nil || out != "" {
				t.Fatalf("output %q, error %v", out, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error is %q, want %q", err, part)
				}
			}
		})
	}
}
