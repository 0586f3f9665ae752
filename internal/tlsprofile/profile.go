// Package tlsprofile follows the TLS security profile of an OpenShift cluster.
package tlsprofile

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/platform"
)

// clusterAPIServer is the name of the APIServer in which administrators of OpenShift select a TLS security profile.
const clusterAPIServer = "cluster"

// Profile is the TLS security profile of an OpenShift cluster, which all servers have to apply. On other clusters,
// and if none is selected, it is Intermediate. It is safe for concurrent use.
type Profile struct {
	spec atomic.Pointer[configv1.TLSProfileSpec]
}

// New returns the profile Intermediate. SetupWithManager lets it follow the profile of the cluster.
func New() *Profile {
	p := &Profile{}
	p.spec.Store(configv1.TLSProfiles[configv1.TLSProfileIntermediateType])
	return p
}

// Apply lets the configuration of a server follow the profile, for each new connection.
func (p *Profile) Apply(config *tls.Config) {
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		spec := p.spec.Load()
		current := config.Clone()
		current.MinVersion = cmp.Or(versions[spec.MinTLSVersion], tls.VersionTLS13) // the safest if the name is unknown
		current.CipherSuites = cipherSuites(spec.Ciphers)
		return current, nil
	}
}

// SetupWithManager registers a controller that follows the profile of the cluster.
func (p *Profile) SetupWithManager(mgr manager.Manager, apis *platform.APIs) error {
	scheme := runtime.NewScheme()
	if err := configv1.Install(scheme); err != nil {
		return fmt.Errorf("registering the kinds of %s: %w", configv1.GroupVersion, err)
	}
	servers, err := apis.View(platform.ViewOptions{
		Scheme: scheme, Object: &configv1.APIServer{},
		Cache:   cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, clusterAPIServer)},
		Handler: &handler.EnqueueRequestForObject{},
		Changed: func(context.Context) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: clusterAPIServer}}}
		},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("tlsprofile").
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}). // each replica serves metrics
		WatchesRawSource(servers).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, p.follow(ctx, servers)
		}))
	if err != nil {
		return fmt.Errorf("watching the cluster's TLS profile: %w", err)
	}
	return nil
}

func (p *Profile) follow(ctx context.Context, reader client.Reader) error {
	var server configv1.APIServer
	err := reader.Get(ctx, types.NamespacedName{Name: clusterAPIServer}, &server)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("reading the cluster's TLS profile: %w", err)
	}
	desired, err := profileSpec(server.Spec.TLSSecurityProfile)
	if err != nil {
		return reconcile.TerminalError(err)
	}
	if before := p.spec.Swap(desired); before.MinTLSVersion != desired.MinTLSVersion ||
		!slices.Equal(before.Ciphers, desired.Ciphers) {
		log.FromContext(ctx).Info("Applied the cluster's TLS profile", "minTLSVersion", desired.MinTLSVersion,
			"ciphers", desired.Ciphers)
	}
	return nil
}

func profileSpec(profile *configv1.TLSSecurityProfile) (*configv1.TLSProfileSpec, error) {
	selected := ptr.Deref(profile, configv1.TLSSecurityProfile{})
	spec, known := configv1.TLSProfiles[cmp.Or(selected.Type, configv1.TLSProfileIntermediateType)]
	switch {
	case known:
		return spec, nil
	case selected.Type == configv1.TLSProfileCustomType && selected.Custom != nil:
		return &selected.Custom.TLSProfileSpec, nil
	}
	return nil, fmt.Errorf("APIServer cluster: spec.tlsSecurityProfile has type %q, which is unknown, or has no "+
		"field for it", selected.Type)
}

var versions = map[configv1.TLSProtocolVersion]uint16{
	configv1.VersionTLS10: tls.VersionTLS10, configv1.VersionTLS11: tls.VersionTLS11,
	configv1.VersionTLS12: tls.VersionTLS12,
}

// cipherSuites returns the suites with these names in OpenSSL that Go implements, except those of TLS 1.3, which cannot
// be configured. It never returns nil, which would select Go's defaults.
func cipherSuites(names []string) []uint16 {
	suites := []uint16{}
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if slices.Contains(suite.SupportedVersions, tls.VersionTLS12) &&
			slices.Contains(names, openSSL.Replace(suite.Name)) {
			suites = append(suites, suite.ID)
		}
	}
	return suites
}

// openSSL turns the standard name of a cipher suite with AES or ChaCha20 into its name in OpenSSL.
var openSSL = strings.NewReplacer("TLS_RSA_WITH_", "", "TLS_", "", "_WITH_", "-", "AES_", "AES", "_CBC", "",
	"POLY1305_SHA256", "POLY1305", "_", "-")
