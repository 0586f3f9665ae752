package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	routev1 "github.com/openshift/api/route/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/openshift"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// permissions returns the cluster-wide permissions of a ServiceAccount in config/rbac.
func permissions(t *testing.T, account string) []Permission {
	t.Helper()
	file, err := os.Open("../../config/rbac/" + strings.TrimPrefix(account, "listener-") + ".yaml")
	check.Must(t, err)
	defer func() { _ = file.Close() }()
	var all []Permission
	for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return all
		}
		check.Must(t, err)
		if role.Kind != "ClusterRole" {
			continue
		}
		expanded, err := Expand(role.Rules, "")
		check.Must(t, err)
		all = append(all, expanded...)
	}
}

// user is a client of a user with certain permissions.
type user struct {
	client.Client
	name string
}

// userWith creates a user with these permissions, and waits until they take effect.
func userWith(t *testing.T, permissions []Permission) user {
	t.Helper()
	admin := apiserver.Client(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "permissions-"}}
	for _, p := range permissions {
		rule := rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{p.Resource}, Verbs: []string{p.Verb}}
		if p.Name != "" {
			rule.ResourceNames = []string{p.Name}
		}
		role.Rules = append(role.Rules, rule)
	}
	probe := Permission{Resource: "probes", Verb: "get"}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{probe.Resource}, Verbs: []string{probe.Verb}})
	check.Must(t, admin.Create(t.Context(), role))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}},
	}
	check.Must(t, admin.Create(t.Context(), binding))
	config := apiserver.Config(t)
	config.Impersonate.UserName = role.Name
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	check.Must(t, err)
	u := user{Client: c, name: role.Name}
	NewWithT(t).Eventually(func() error { return u.review(t, probe) }, apiserver.Timeout, "20ms").Should(Succeed())
	return u
}

// review checks a permission like an admission plugin that calls the authorizer. It returns an error if the user lacks
// the permission.
func (u user) review(t *testing.T, permission Permission) error {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: permission.Group, Resource: permission.Resource, Verb: permission.Verb, Name: permission.Name,
		},
	}}
	check.Must(t, apiserver.Client(t).Create(t.Context(), review))
	if !review.Status.Allowed {
		return fmt.Errorf("no permission to %s", permission)
	}
	return nil
}

// route returns a Route with a host.
func route(namespace, host string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "route.openshift.io/v1", "kind": "Route",
		"metadata": map[string]any{"namespace": namespace, "name": "web"},
		"spec":     map[string]any{"host": host, "to": map[string]any{"kind": "Service", "name": "web"}},
	}}
}

// certificateRequest creates a request for a certificate as a kubelet does.
func certificateRequest(t *testing.T) *certificatesv1.PodCertificateRequest {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check.Must(t, err)
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	check.Must(t, err)
	request := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t), Name: "web"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: names.Signer, PodName: "web", PodUID: "pod-uid", ServiceAccountName: "default", ServiceAccountUID: "account-uid",
			NodeName: "node", NodeUID: "node-uid", MaxExpirationSeconds: ptr.To[int32](86400), StubPKCS10Request: stub,
		},
	}
	check.Must(t, apiserver.Client(t).Create(t.Context(), request))
	return request
}

func TestUnloggedPermissionsAreRequired(t *testing.T) {
	serveRoutes(t)
	listeners := listenersv1alpha1.GroupVersion.Group
	for account, cases := range map[string]map[Permission]func(*testing.T, user) error{
		names.Operator: {
			{Resource: "services", Verb: "delete"}: func(t *testing.T, operator user) error {
				t.Helper()
				restored := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t), Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				}
				check.Must(t, apiserver.Client(t).Create(t.Context(), restored))
				owned := apply.Object(corev1.SchemeGroupVersion.WithKind("Service"), client.ObjectKeyFromObject(restored))
				exposure.SetOwner(owned, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "listener-uid"}})
				_, err := apply.New(operator, names.FieldManagerService).Apply(t.Context(), owned, restored)
				return err
			},
			{Group: listeners, Resource: "listeners", Verb: "delete"}: func(t *testing.T, operator user) error {
				t.Helper()
				pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t), Name: "web-listener", UID: "pvc-uid"}}
				pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "pv-uid"}}
				applier := apply.New(operator, names.FieldManagerVolume)
				created := claim.OfClaim(pvc, nil).Listener("a-class", nil, nil)
				if _, err := applier.Apply(t.Context(), created, nil); err != nil {
					t.Fatal(err)
				}
				_, err := applier.Apply(t.Context(), claim.OfClaim(pvc, pv).Listener("a-class", nil, nil), created)
				return err
			},
			{Group: listeners, Resource: "listeners/finalizers", Verb: "update"}: func(t *testing.T, operator user) error {
				t.Helper()
				class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP}}
				listener := &listenersv1alpha1.Listener{
					ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t), Name: "web", UID: "listener-uid"},
					Spec: listenersv1alpha1.ListenerSpec{
						ClassName: ptr.To("a-class"), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}},
					},
				}
				service, refusal := (&exposure.Backend{}).Service(class, listener)
				if refusal != nil {
					t.Fatal(refusal)
				}
				desired, err := apply.Unstructured(service)
				check.Must(t, err)
				_, err = apply.New(operator, names.FieldManagerService).Apply(t.Context(), desired, nil)
				return err
			},
			{Group: "route.openshift.io", Resource: "routes/custom-host", Verb: "create"}: func(t *testing.T, operator user) error {
				t.Helper()
				_, err := apply.New(operator, names.FieldManagerService).Apply(t.Context(), route(apiserver.Namespace(t), "web.example.com"), nil)
				return err
			},
			{Group: "route.openshift.io", Resource: "routes/custom-host", Verb: "update"}: func(t *testing.T, operator user) error {
				t.Helper()
				applier, namespace := apply.New(operator, names.FieldManagerService), apiserver.Namespace(t)
				created := route(namespace, "web.example.com")
				if _, err := applier.Apply(t.Context(), created, nil); err != nil {
					t.Fatal(err)
				}
				_, err := applier.Apply(t.Context(), route(namespace, "shop.example.com"), created)
				return err
			},
			{Group: "listener-operator.dev", Resource: "nodeagentimages", Name: "listener-operator:latest", Verb: "use"}: func(t *testing.T, operator user) error {
				t.Helper()
				return operator.review(t, Permission{Group: "listener-operator.dev", Resource: "nodeagentimages", Name: "listener-operator:latest", Verb: "use"})
			},
			{Group: "listener-operator.dev", Resource: "listeneroperators", Verb: "get"}: func(t *testing.T, operator user) error {
				t.Helper()
				return operator.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
					ObjectMeta: metav1.ObjectMeta{Name: "parameter"},
					Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
						ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "listener-operator.dev/v1alpha1", Kind: "ListenerOperator"},
						MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
							RuleWithOperations: admissionregistrationv1.RuleWithOperations{
								Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
								Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
							},
						}}},
						Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
					},
				}, client.DryRunAll)
			},
			{Group: "certificates.k8s.io", Resource: "signers", Name: names.Signer, Verb: "attest"}: func(t *testing.T, operator user) error {
				t.Helper()
				authority, err := certificate.NewRoot(time.Now()).Authority("shop", "uid")
				check.Must(t, err)
				return operator.Create(t.Context(), &certificatesv1.ClusterTrustBundle{
					ObjectMeta: metav1.ObjectMeta{Name: names.TrustBundlePrefix + "shop"},
					Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: names.Signer, TrustBundle: string(authority.PEM())},
				}, client.DryRunAll)
			},
			{Group: "certificates.k8s.io", Resource: "signers", Name: names.Signer, Verb: "sign"}: func(t *testing.T, operator user) error {
				t.Helper()
				request := certificateRequest(t)
				denied := request.DeepCopy()
				denied.Status.Conditions = []metav1.Condition{{
					Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now(),
				}}
				return operator.Status().Patch(t.Context(), denied, client.MergeFrom(request))
			},
			{Group: "events.k8s.io", Resource: "events", Verb: "patch"}: func(t *testing.T, operator user) error {
				t.Helper()
				namespace := apiserver.Namespace(t)
				event := &eventsv1.Event{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, EventTime: metav1.NowMicro(), Type: corev1.EventTypeWarning,
					ReportingController: names.EventReporter, ReportingInstance: "test", Action: "Mount", Reason: listenersv1alpha1.ReasonWaitingForAddress,
					Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web"},
				}
				check.Must(t, operator.Create(t.Context(), event))
				series := client.RawPatch(types.StrategicMergePatchType, []byte(`{"series":{"count":2,"lastObservedTime":"2026-11-25T00:00:00.000000Z"}}`))
				return operator.Patch(t.Context(), event, series) // as the recorder does
			},
		},
		names.NodeAgent: {
			{Group: "security.openshift.io", Resource: "securitycontextconstraints", Name: names.NodeAgent, Verb: "use"}: func(t *testing.T, agent user) error {
				t.Helper()
				return agent.review(t, Permission{Group: "security.openshift.io", Resource: "securitycontextconstraints", Name: names.NodeAgent, Verb: "use"})
			},
		},
	} {
		for unlogged, reason := range Unlogged(account) {
			t.Run(account+" may "+unlogged.String(), func(t *testing.T) {
				try, ok := cases[unlogged]
				if !ok {
					t.Fatalf("no case shows that it is required because %s", reason)
				}
				all := permissions(t, account)
				others := slices.DeleteFunc(slices.Clone(all), func(p Permission) bool { return p == unlogged })
				if len(others) == len(all) {
					t.Fatal("the ServiceAccount lacks the permission")
				}
				if err := try(t, userWith(t, all)); err != nil {
					t.Errorf("with the permission: %v", err)
				}
				if err := try(t, userWith(t, others)); err == nil {
					t.Error("without the permission there is no error")
				}
			})
		}
		for permission := range cases {
			if Unlogged(account)[permission] == "" {
				t.Errorf("%s is not in Unlogged", permission)
			}
		}
	}
}

// serveRoutes installs the API of Routes as OpenShift serves it.
func serveRoutes(t *testing.T) {
	t.Helper()
	scheme := apiserver.Scheme()
	check.Must(t, routev1.Install(scheme))
	crds.Install(t, apiserver.Client(t), crds.Routes)
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	check.Must(t, err)
	check.Must(t, openshift.Install(t.Context(), c, "apps.example.com"))
}
