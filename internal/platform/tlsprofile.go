package platform

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
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
)

// clusterAPIServer is the name of the only APIServer, in which OpenShift's administrators choose a TLS security
// profile.
const clusterAPIServer = "cluster"

// TLSProfile is the TLS security profile that OpenShift's administrators chose for the cluster, which servers have to
// follow. Elsewhere, and where none is chosen, it is Intermediate. It is safe for concurrent use.
type TLSProfile struct {
	spec atomic.Pointer[configv1.TLSProfileSpec]
}

// NewTLSProfile returns the profile Intermediate, which SetupWithManager makes follow the cluster's.
func NewTLSProfile() *TLSProfile {
	p := &TLSProfile{}
	p.spec.Store(configv1.TLSProfiles[configv1.TLSProfileIntermediateType])
	return p
}

// Apply makes a server's configuration follow the profile, with each new connection.
func (p *TLSProfile) Apply(config *tls.Config) {
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		spec := p.spec.Load()
		current := config.Clone()
		current.MinVersion = minVersion(spec.MinTLSVersion)
		current.CipherSuites = cipherSuites(spec.Ciphers)
		return current, nil
	}
}

// SetupWithManager reads the cluster's profile, and follows it while the manager runs.
func (p *TLSProfile) SetupWithManager(mgr manager.Manager, apis *APIs) error {
	scheme := runtime.NewScheme()
	if err := configv1.Install(scheme); err != nil {
		return fmt.Errorf("registering the kinds of %s: %w", configv1.GroupVersion, err)
	}
	servers, err := apis.Kind(KindOptions{
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
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}). // each replica serves
		WatchesRawSource(servers).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, p.follow(ctx, servers)
		}))
	if err != nil {
		return fmt.Errorf("watching the cluster's TLS profile: %w", err)
	}
	return nil
}

// follow takes over the profile of the cluster.
func (p *TLSProfile) follow(ctx context.Context, reader client.Reader) error {
	var server configv1.APIServer
	err := reader.Get(ctx, types.NamespacedName{Name: clusterAPIServer}, &server)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("reading the cluster's TLS profile: %w", err)
	}
	wanted, err := profileSpec(server.Spec.TLSSecurityProfile)
	if err != nil {
		return reconcile.TerminalError(err)
	}
	if before := p.spec.Swap(wanted); before.MinTLSVersion != wanted.MinTLSVersion || !slices.Equal(before.Ciphers, wanted.Ciphers) {
		log.FromContext(ctx).Info("Following the cluster's TLS profile", "minTLSVersion", wanted.MinTLSVersion, "ciphers", wanted.Ciphers)
	}
	return nil
}

// profileSpec returns what a profile means.
func profileSpec(profile *configv1.TLSSecurityProfile) (*configv1.TLSProfileSpec, error) {
	switch {
	case profile == nil || profile.Type == "":
		return configv1.TLSProfiles[configv1.TLSProfileIntermediateType], nil
	case profile.Type == configv1.TLSProfileCustomType && profile.Custom == nil:
		return nil, errors.New("APIServer cluster: spec.tlsSecurityProfile is of type Custom and has no field custom")
	case profile.Type == configv1.TLSProfileCustomType:
		return &profile.Custom.TLSProfileSpec, nil
	}
	spec, known := configv1.TLSProfiles[profile.Type]
	if !known {
		return nil, fmt.Errorf("APIServer cluster: spec.tlsSecurityProfile has the unknown type %q", profile.Type)
	}
	return spec, nil
}

// minVersion is the version that a profile names. What is not known is taken for the safest.
func minVersion(version configv1.TLSProtocolVersion) uint16 {
	switch version {
	case configv1.VersionTLS10:
		return tls.VersionTLS10
	case configv1.VersionTLS11:
		return tls.VersionTLS11
	case configv1.VersionTLS12:
		return tls.VersionTLS12
	default:
		return tls.VersionTLS13
	}
}

// cipherSuites returns those that Go knows, of TLS 1.2 and older: those of TLS 1.3 are not configurable. It is never
// nil, which would mean Go's own choice.
func cipherSuites(names []string) []uint16 {
	suites := []uint16{}
	for _, name := range names {
		if suite, known := openSSLCipherSuites()[name]; known {
			suites = append(suites, suite)
		}
	}
	return suites
}

// openSSLCipherSuites are the cipher suites by the names that OpenSSL has for them.
func openSSLCipherSuites() map[string]uint16 {
	return map[string]uint16{
		"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		"ECDHE-RSA-AES128-GCM-SHA256":   tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		"ECDHE-RSA-AES256-GCM-SHA384":   tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		"ECDHE-RSA-CHACHA20-POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"ECDHE-ECDSA-AES128-SHA256":     tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,
		"ECDHE-RSA-AES128-SHA256":       tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256,
		"ECDHE-ECDSA-AES128-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,
		"ECDHE-RSA-AES128-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
		"ECDHE-ECDSA-AES256-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
		"ECDHE-RSA-AES256-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,
		"AES128-GCM-SHA256":             tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
		"AES256-GCM-SHA384":             tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		"AES128-SHA256":                 tls.TLS_RSA_WITH_AES_128_CBC_SHA256,
		"AES128-SHA":                    tls.TLS_RSA_WITH_AES_128_CBC_SHA,
		"AES256-SHA":                    tls.TLS_RSA_WITH_AES_256_CBC_SHA,
	}
}
