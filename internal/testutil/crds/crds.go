// Package crds installs CustomResourceDefinitions (CRDs) of other projects on the API server of a test: OpenShift, the
// Prometheus operator, the Operator Lifecycle Manager, the Gateway API, cert-manager and external-dns. They are read
// from the projects' own Go modules, in the versions that go.mod pins; none is copied here.
//
// Only tests may import it.
package crds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

type CRD string

const (
	Routes                     CRD = "routes.route.openshift.io"
	SecurityContextConstraints CRD = "securitycontextconstraints.security.openshift.io"
	ClusterVersions            CRD = "clusterversions.config.openshift.io"
	APIServers                 CRD = "apiservers.config.openshift.io"
	ConsoleYAMLSamples         CRD = "consoleyamlsamples.console.openshift.io"
	ConsoleQuickStarts         CRD = "consolequickstarts.console.openshift.io"
	ServiceMonitors            CRD = "servicemonitors.monitoring.coreos.com"
	PrometheusRules            CRD = "prometheusrules.monitoring.coreos.com"
	OperatorConditions         CRD = "operatorconditions.operators.coreos.com"
	Subscriptions              CRD = "subscriptions.operators.coreos.com"
	ClusterServiceVersions     CRD = "clusterserviceversions.operators.coreos.com"
	OperatorGroups             CRD = "operatorgroups.operators.coreos.com"
	CatalogSources             CRD = "catalogsources.operators.coreos.com"
	Operators                  CRD = "operators.operators.coreos.com"
	InstallPlans               CRD = "installplans.operators.coreos.com"
	ClusterCatalogs            CRD = "clustercatalogs.olm.operatorframework.io"
	ClusterExtensions          CRD = "clusterextensions.olm.operatorframework.io"
	ImageDigestMirrorSets      CRD = "imagedigestmirrorsets.config.openshift.io"
	Gateways                   CRD = "gateways.gateway.networking.k8s.io"
	ListenerSets               CRD = "listenersets.gateway.networking.k8s.io"
	TLSRoutes                  CRD = "tlsroutes.gateway.networking.k8s.io"
	HTTPRoutes                 CRD = "httproutes.gateway.networking.k8s.io"
	TCPRoutes                  CRD = "tcproutes.gateway.networking.k8s.io"
	UDPRoutes                  CRD = "udproutes.gateway.networking.k8s.io"
	Certificates               CRD = "certificates.cert-manager.io"
	CertificateRequests        CRD = "certificaterequests.cert-manager.io"
	Issuers                    CRD = "issuers.cert-manager.io"
	ClusterIssuers             CRD = "clusterissuers.cert-manager.io"
	DNSEndpoints               CRD = "dnsendpoints.externaldns.k8s.io"
)

// timeout is how long to wait for the API server. It seldom takes more than a moment.
const timeout = 2 * time.Minute

// source is a directory of a Go module with the CRDs of an API group.
type source struct {
	// modfile is the go.mod, relative to the root of the checkout, that pins the module's version.
	modfile   string
	module    string
	directory string
}

func sources() map[string]source {
	const (
		own         = "go.mod"
		openshift   = "github.com/openshift/api"
		olm         = "github.com/operator-framework/api"
		olmv1       = "github.com/operator-framework/operator-controller"
		certManager = "github.com/cert-manager/cert-manager"
		externalDNS = "sigs.k8s.io/external-dns"
		prometheus  = "github.com/prometheus-operator/prometheus-operator"
	)
	return map[string]source{
		"route.openshift.io":       {own, openshift, "route/v1/zz_generated.crd-manifests"},
		"security.openshift.io":    {own, openshift, "security/v1/zz_generated.crd-manifests"},
		"config.openshift.io":      {own, openshift, "config/v1/zz_generated.crd-manifests"},
		"console.openshift.io":     {own, openshift, "console/v1/zz_generated.crd-manifests"},
		"operators.coreos.com":     {own, olm, "crds"},
		"olm.operatorframework.io": {"hack/tools/olmv1/go.mod", olmv1, "helm/olmv1/base/*/crd/standard"},
		"monitoring.coreos.com":    {"hack/tools/crds/go.mod", prometheus, "example/prometheus-operator-crd"},
		"externaldns.k8s.io":       {"hack/tools/external-dns/go.mod", externalDNS, "config/crd/standard"},
		"cert-manager.io":          {"hack/tools/cert-manager/go.mod", certManager, "deploy/crds"},
		// With the kinds that are not standard yet in this release.
		"gateway.networking.k8s.io": {own, "sigs.k8s.io/gateway-api", "config/crd/experimental"},
	}
}

func All() []CRD {
	return append(Administrators(), Routes, SecurityContextConstraints, ClusterVersions, APIServers, ConsoleYAMLSamples,
		ConsoleQuickStarts, ServiceMonitors,
		PrometheusRules, OperatorConditions, Gateways, ListenerSets, TLSRoutes, HTTPRoutes, TCPRoutes, UDPRoutes,
		Certificates, CertificateRequests, Issuers, ClusterIssuers, DNSEndpoints)
}

// Administrators returns the CRDs by which administrators install operators, and which the operator does not know.
func Administrators() []CRD {
	return []CRD{CatalogSources, ClusterCatalogs, ClusterExtensions, ClusterServiceVersions, ImageDigestMirrorSets,
		InstallPlans, OperatorGroups, Operators, Subscriptions}
}

// Install installs CRDs, and returns when the API server serves their resources, so that clients discover them. They
// stay until Remove, because several tests share an API server. Those that an earlier test has installed are served
// already, and are not read again, which takes long with the race detector.
func Install(t testing.TB, c client.Client, names ...CRD) {
	t.Helper()
	names = slices.DeleteFunc(slices.Clone(names), func(name CRD) bool {
		crd := &metav1.PartialObjectMetadata{}
		crd.SetGroupVersionKind(empty(name).GroupVersionKind())
		err := c.Get(t.Context(), client.ObjectKey{Name: string(name)}, crd)
		if client.IgnoreNotFound(err) != nil {
			t.Fatalf("finding out whether %s exists: %v", name, err)
		}
		return err == nil
	})
	for _, name := range names {
		if err := c.Create(t.Context(), Read(t, name)); err != nil {
			t.Fatalf("installing %s: %v", name, err)
		}
	}
	for _, name := range names {
		await(t, c, name, func(u *unstructured.Unstructured, err error) error {
			var crd apiextensionsv1.CustomResourceDefinition
			if err := errors.Join(err, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object,
				&crd)); err != nil {
				return err
			}
			for _, v := range crd.Spec.Versions { // clients discover it when it is established, or a moment later
				if v.Served {
					_,
						err = c.RESTMapper().RESTMapping(schema.GroupKind{Group: crd.Spec.Group,
						Kind: crd.Spec.Names.Kind}, v.Name)
				}
				if err != nil {
					break
				}
			}
			return err
		})
	}
}

// Remove removes CRDs with all their objects, one after the other, and returns when they no longer exist. The removal
// of one makes the API server drop its caches of the others in the group, which delays their removal: it cannot list
// the objects of a resource whose cache it fills. It tries again with exponential back-off, but also when the CRD
// changes, which an annotation does.
func Remove(t testing.TB, c client.Client, names ...CRD) {
	t.Helper()
	for _, name := range names {
		if err := client.IgnoreNotFound(c.Delete(t.Context(), empty(name))); err != nil {
			t.Fatalf("removing %s: %v", name, err)
		}
		changed := time.Now()
		await(t, c, name, func(crd *unstructured.Unstructured, err error) error {
			if err == nil && time.Since(changed) > time.Second {
				changed = time.Now()
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"test/touched":%q}}}`,
					changed.Format(time.RFC3339Nano))
				err = c.Patch(t.Context(), empty(name), client.RawPatch(types.MergePatchType, []byte(patch)))
			}
			if err != nil {
				return client.IgnoreNotFound(err)
			}
			return fmt.Errorf("it exists: %v", crd.Object["status"])
		})
	}
}

func Read(t testing.TB, name CRD) *unstructured.Unstructured {
	t.Helper()
	plural, group, _ := strings.Cut(string(name), ".")
	from := sources()[group]
	pattern := filepath.Join(module(t, from), filepath.FromSlash(from.directory), "*"+plural)
	for _, suffix := range []string{".yaml", ".crd.yaml", "-Default.crd.yaml", "." + group + ".yaml"} {
		files, err := filepath.Glob(pattern + suffix)
		check.Must(t, err)
		for _, file := range files { // the name of one kind may be the end of another's
			raw, err := os.ReadFile(file)
			check.Must(t, err)
			crd := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(raw, crd); err != nil {
				t.Fatalf("parsing %s: %v", file, err)
			}
			if crd.GetName() == string(name) {
				return crd
			}
		}
	}
	t.Fatalf("no file matches %s and defines %s", pattern, name)
	return nil
}

// modules are the directories of modules, which the go command takes a second to find.
var modules sync.Map

func module(t testing.TB, from source) string {
	t.Helper()
	if directory, found := modules.Load(from.module); found {
		return directory.(string)
	}
	root, err := checkout.Root()
	check.Must(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", from.module)
	cmd.Dir = filepath.Join(root, filepath.Dir(from.modfile))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("downloading module %s as %s pins it: %v", from.module, from.modfile, err)
	}
	var downloaded struct{ Dir string }
	check.Must(t, json.Unmarshal(out, &downloaded))
	modules.Store(from.module, downloaded.Dir)
	return downloaded.Dir
}

func empty(name CRD) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName(string(name))
	return crd
}

// await returns when done returns nil for the result of reading a CRD.
func await(t testing.TB, c client.Client, name CRD, done func(*unstructured.Unstructured, error) error) {
	t.Helper()
	crd := empty(name)
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true,
		func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd)
			if ctx.Err() != nil {
				return false, ctx.Err() // last says what was wrong until now
			}
			last = done(crd, err)
			return last == nil, nil
		}); err != nil {
		t.Fatalf("waiting for %s (%v): %v", name, err, last)
	}
}
