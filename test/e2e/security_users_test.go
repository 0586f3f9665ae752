//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Kubernetes' roles view, edit and admin contain the permissions of users.
func TestUsersOfANamespaceWriteListenersOnly(t *testing.T) {
	newScenario(t).checkPermissionsOfUsers()
}

// checkPermissionsOfUsers checks what users with the roles view, edit and admin in the scenario's namespace can do: all
// read Listeners and PodListeners, and those with edit and admin write Listeners. OLM permits editors to write all
// kinds of an operator; what they must not write is denied all the same.
func (s *scenario) checkPermissionsOfUsers() {
	s.Helper()
	for role, writes := range map[string]bool{"view": false, "edit": true, "admin": true} {
		c := s.asUser(role)
		if err := eventually(s.timeoutContext(), func(ctx context.Context) error { return s.userMay(ctx, c, writes) }); err != nil {
			s.Errorf("a user with the role %s: %v", role, err)
		}
	}
}

// asUser returns a client of a user who has a role in the scenario's namespace, and no other permission.
func (s *scenario) asUser(role string) client.Client {
	s.Helper()
	user := role + "-of-" + s.namespace
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	config, err := testbed.RESTConfig()
	s.must(err)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: api.Scheme()})
	s.must(err)
	return c
}

// userMay returns an error unless a user may read Listeners and PodListeners, write Listeners if writes is set, and
// write nothing else.
func (s *scenario) userMay(ctx context.Context, c client.Client, writes bool) error {
	inNamespace := metav1.ObjectMeta{Namespace: s.namespace, Name: "of-user"}
	errs := []error{
		c.List(ctx, &listenersv1alpha1.ListenerList{}, client.InNamespace(s.namespace)),
		c.List(ctx, &listenersv1alpha1.PodListenersList{}, client.InNamespace(s.namespace)),
	}
	err := c.Create(ctx, &listenersv1alpha1.Listener{ObjectMeta: inNamespace}, client.DryRunAll)
	if writes && err != nil || !writes && !apierrors.IsForbidden(err) {
		errs = append(errs, fmt.Errorf("creating a Listener: %w", err))
	}
	podListeners := listenersv1alpha1.NewPodListeners(client.ObjectKey{Namespace: s.namespace, Name: "of-user"}, "uid", "node")
	if err := c.Create(ctx, podListeners, client.DryRunAll); !apierrors.IsForbidden(err) && (err == nil || !strings.Contains(err.Error(), "only the listener operator")) {
		errs = append(errs, fmt.Errorf("creating a PodListeners: %w", err))
	}
	class := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: inNamespace.Name}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	}
	if err := c.Create(ctx, class, client.DryRunAll); !apierrors.IsForbidden(err) {
		errs = append(errs, fmt.Errorf("creating a ListenerClass: %w", err))
	}
	configuration := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"managementState": "Unmanaged"}}`))
	if err := c.Patch(ctx, configuration, patch, client.DryRunAll); !apierrors.IsForbidden(err) {
		errs = append(errs, fmt.Errorf("changing the configuration: %w", err))
	}
	return errors.Join(errs...)
}
