package audit

import (
	"errors"
	"io"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// rules returns what config/rbac allows the operator in the whole cluster.
func rules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	file, err := os.Open("../../config/rbac/operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		var role rbacv1.ClusterRole
		switch err := documents.Decode(&role); {
		case errors.Is(err, io.EOF):
			t.Fatal("config/rbac has no ClusterRole for the operator")
		case err != nil:
			t.Fatal(err)
		case role.Kind == "ClusterRole":
			return role.Rules
		}
	}
}

// userWith returns a client of a user with these rights alone, once they are in force.
func userWith(t *testing.T, namespace string, rights []Right) client.Client {
	t.Helper()
	admin := apiserver.Client(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "rights-"}}
	for _, r := range rights {
		rule := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		role.Rules = append(role.Rules, rule)
	}
	if err := admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}},
	}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	config := apiserver.Config(t)
	config.Impersonate.UserName = role.Name
	user, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() error {
		return user.List(t.Context(), &corev1.PodList{}, client.InNamespace(namespace))
	}, "30s", "20ms").Should(Succeed())
	return user
}

func TestARightThatIsNotSeenIsNeeded(t *testing.T) {
	group := listenersv1alpha1.GroupVersion.Group
	cases := map[Right]func(t *testing.T, namespace string, operator client.Client) error{
		{Group: group, Resource: "listeners", Verb: "delete"}: func(t *testing.T, namespace string, operator client.Client) error {
			t.Helper()
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-listener", UID: "pvc-uid"}}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "pv-uid"}}
			listeners := apply.New(operator, names.OwnerVolume)
			if err := listeners.Apply(t.Context(), claim.Listener(pvc, nil, "a-class", nil), nil); err != nil {
				t.Fatal(err)
			}
			return listeners.Apply(t.Context(), claim.Listener(pvc, pv, "a-class", nil), nil)
		},
		{Group: group, Resource: "listeners/finalizers", Verb: "update"}: func(t *testing.T, namespace string, operator client.Client) error {
			t.Helper()
			class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP}}
			listener := &listenersv1alpha1.Listener{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "listener-uid"},
				Spec: listenersv1alpha1.ListenerSpec{
					ClassName: ptr.To("a-class"), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}},
				},
			}
			service, err := exposure.Service(class, listener)
			if err != nil {
				t.Fatal(err)
			}
			desired, err := apply.Unstructured(service)
			if err != nil {
				t.Fatal(err)
			}
			return apply.New(operator, names.OwnerService).Apply(t.Context(), desired, nil)
		},
	}
	all, err := Expand(rules(t), "")
	if err != nil {
		t.Fatal(err)
	}
	for unseen, reason := range Unseen() {
		t.Run(unseen.String(), func(t *testing.T) {
			try, ok := cases[unseen]
			if !ok {
				t.Fatalf("no case shows that it is needed because %s", reason)
			}
			var others []Right
			for _, right := range all {
				if right != unseen {
					others = append(others, right)
				}
			}
			if len(others) == len(all) {
				t.Fatal("the operator does not have it")
			}
			namespace := apiserver.Namespace(t)
			if err := try(t, namespace, userWith(t, namespace, all)); err != nil {
				t.Errorf("with it: %v", err)
			}
			namespace = apiserver.Namespace(t)
			if err := try(t, namespace, userWith(t, namespace, others)); !apierrors.IsForbidden(err) {
				t.Errorf("without it, the error is %v, want forbidden", err)
			}
		})
	}
	for right := range cases {
		if Unseen()[right] == "" {
			t.Errorf("%s is not in the table", right)
		}
	}
}
