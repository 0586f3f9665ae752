// Package crds installs CustomResourceDefinitions (CRDs) of other projects on the API server of a test: those of
// OpenShift, the Prometheus operator, the Operator Lifecycle Manager, the Gateway API and cert-manager. They are read
// from the projects' own Go modules, in the versions that go.mod pins; none is copied here.
//
// Only tests may import it.
package crds

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// CRD is the name of a CustomResourceDefinition.
type CRD string

// The CRDs that tests can install.
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
)

const (
	// timeout is how long to wait for the API server. It seldom takes more than a moment.
	timeout = 2 * time.Minute

	// removalInterval is how often Remove makes the API server look at a CRD that is being deleted.
	removalInterval = time.Second
)

// file is the location of a CRD.
type file struct {
	// modfile is the go.mod, relative to the root of the checkout, that pins the module's version.
	modfile string
	module  string
	path    string
}

const (
	ownModfile  = "go.mod"
	openshift   = "github.com/openshift/api"
	prometheus  = "github.com/prometheus-operator/prometheus-operator"
	olm         = "github.com/operator-framework/api"
	olmv1       = "github.com/operator-framework/operator-controller"
	gatewayAPI  = "sigs.k8s.io/gateway-api"
	certManager = "github.com/cert-manager/cert-manager"

	// experimental has the kinds that are not standard yet in this release of the Gateway API, too.
	experimental = "config/crd/experimental/gateway.networking.k8s.io_"
)

func files() map[CRD]file {
	const (
		toolsModfile       = "hack/tools/crds/go.mod"
		olmv1Modfile       = "hack/tools/olmv1/go.mod"
		certManagerModfile = "hack/tools/cert-manager/go.mod"
	)
	return map[CRD]file{
		Routes: {ownModfile, openshift, "route/v1/zz_generated.crd-manifests/routes.crd.yaml"},
		SecurityContextConstraints: {
			ownModfile, openshift, "security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml",
		},
		ClusterVersions: {
			ownModfile, openshift, "config/v1/zz_generated.crd-manifests/0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml",
		},
		APIServers: {
			ownModfile, openshift, "config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_apiservers-Default.crd.yaml",
		},
		ConsoleYAMLSamples: {ownModfile, openshift, "console/v1/zz_generated.crd-manifests/00_consoleyamlsamples.crd.yaml"},
		ConsoleQuickStarts: {ownModfile, openshift, "console/v1/zz_generated.crd-manifests/00_consolequickstarts.crd.yaml"},
		ServiceMonitors:    {toolsModfile, prometheus, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"},
		PrometheusRules:    {toolsModfile, prometheus, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
		OperatorConditions: {ownModfile, olm, "crds/operators.coreos.com_operatorconditions.yaml"},
		OperatorGroups:     {ownModfile, olm, "crds/operators.coreos.com_operatorgroups.yaml"},
		CatalogSources:     {ownModfile, olm, "crds/operators.coreos.com_catalogsources.yaml"},
		Operators:          {ownModfile, olm, "crds/operators.coreos.com_operators.yaml"},
		InstallPlans:       {ownModfile, olm, "crds/operators.coreos.com_installplans.yaml"},
		ImageDigestMirrorSets: {
			ownModfile, openshift, "config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_imagedigestmirrorsets.crd.yaml",
		},
		ClusterCatalogs:        {olmv1Modfile, olmv1, "helm/olmv1/base/catalogd/crd/standard/olm.operatorframework.io_clustercatalogs.yaml"},
		ClusterExtensions:      {olmv1Modfile, olmv1, "helm/olmv1/base/operator-controller/crd/standard/olm.operatorframework.io_clusterextensions.yaml"},
		Certificates:           {certManagerModfile, certManager, "deploy/crds/cert-manager.io_certificates.yaml"},
		CertificateRequests:    {certManagerModfile, certManager, "deploy/crds/cert-manager.io_certificaterequests.yaml"},
		Issuers:                {certManagerModfile, certManager, "deploy/crds/cert-manager.io_issuers.yaml"},
		ClusterIssuers:         {certManagerModfile, certManager, "deploy/crds/cert-manager.io_clusterissuers.yaml"},
		Subscriptions:          {ownModfile, olm, "crds/operators.coreos.com_subscriptions.yaml"},
		ClusterServiceVersions: {ownModfile, olm, "crds/operators.coreos.com_clusterserviceversions.yaml"},
		Gateways:               {ownModfile, gatewayAPI, experimental + "gateways.yaml"},
		ListenerSets:           {ownModfile, gatewayAPI, experimental + "listenersets.yaml"},
		TLSRoutes:              {ownModfile, gatewayAPI, experimental + "tlsroutes.yaml"},
		HTTPRoutes:             {ownModfile, gatewayAPI, experimental + "httproutes.yaml"},
		TCPRoutes:              {ownModfile, gatewayAPI, experimental + "tcproutes.yaml"},
		UDPRoutes:              {ownModfile, gatewayAPI, experimental + "udproutes.yaml"},
	}
}

// All returns the sorted names of all CRDs that tests can install.
func All() []CRD { return slices.Sorted(maps.Keys(files())) }

// Administrators returns the names of the CRDs whose objects administrators use to install operators, and that the
// operator does not know.
func Administrators() []CRD {
	return []CRD{CatalogSources, ClusterCatalogs, ClusterExtensions, ClusterServiceVersions, ImageDigestMirrorSets, InstallPlans, OperatorGroups, Operators, Subscriptions}
}

// Install installs CRDs, and returns when the API server serves their resources, so that clients discover them. They
// stay until Remove, because several tests share an API server.
func Install(t testing.TB, c client.Client, names ...CRD) {
	t.Helper()
	for _, name := range names {
		if err := c.Create(t.Context(), Read(t, name)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("installing %s: %v", name, err)
		}
	}
	for _, name := range names {
		await(t, c, name, func(crd *unstructured.Unstructured, err error) error {
			if err != nil {
				return err
			}
			return served(c.RESTMapper(), crd)
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
			if err != nil {
				return client.IgnoreNotFound(err)
			}
			if time.Since(changed) > removalInterval {
				changed = time.Now()
				if err := touch(t.Context(), c, name, changed); err != nil {
					return err
				}
			}
			return fmt.Errorf("it exists: %v", crd.Object["status"])
		})
	}
}

// Read returns a CRD as its project ships it.
func Read(t testing.TB, name CRD) *unstructured.Unstructured {
	t.Helper()
	f, ok := files()[name]
	if !ok {
		t.Fatalf("unknown CRD %s", name)
	}
	raw, err := os.ReadFile(filepath.Join(module(t, f), filepath.FromSlash(f.path)))
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		t.Fatalf("parsing %s: %v", f.path, err)
	}
	if crd.GetName() != string(name) {
		t.Fatalf("%s defines %s, not %s", f.path, crd.GetName(), name)
	}
	return crd
}

// module returns the directory of a module, and downloads the module first if necessary.
func module(t testing.TB, f file) string {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", f.module)
	cmd.Dir = filepath.Join(root, filepath.Dir(f.modfile))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("downloading module %s as %s pins it: %v", f.module, f.modfile, err)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		t.Fatal(err)
	}
	return downloaded.Dir
}

// touch writes a time into an annotation of a CRD.
func touch(ctx context.Context, c client.Client, name CRD, at time.Time) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"test/touched":%q}}}`, at.Format(time.RFC3339Nano))
	return client.IgnoreNotFound(c.Patch(ctx, empty(name), client.RawPatch(types.MergePatchType, []byte(patch))))
}

func empty(name CRD) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(string(name))
	return crd
}

// await returns when done returns nil for the result of reading a CRD.
func await(t testing.TB, c client.Client, name CRD, done func(*unstructured.Unstructured, error) error) {
	t.Helper()
	crd := empty(name)
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
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

// served returns an error unless a CRD is established, and clients discover its kind in each version, which may take a
// moment longer.
func served(mapper meta.RESTMapper, crd *unstructured.Unstructured) error {
	if !established(crd) {
		return fmt.Errorf("it is not established: %v", crd.Object["status"])
	}
	var kind schema.GroupKind
	kind.Group, _, _ = unstructured.NestedString(crd.Object, "spec", "group")
	kind.Kind, _, _ = unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		if _, err := mapper.RESTMapping(kind, fmt.Sprint(version["name"])); err != nil {
			return err
		}
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
