// Package router emulates OpenShift's router for tests: it admits Routes by the platform's rules, reports that in their
// status, and serves them with HAProxy, which the platform's router also uses. The README lists which part of the
// platform each file emulates.
//
// Only tests and test tools may import it.
package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"github.com/go-logr/logr"
	routev1 "github.com/openshift/api/route/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryAfter is the delay before a failed reconciliation is retried.
const retryAfter = time.Second

// Options configure a router.
type Options struct {
	Identity
	Listen
	// Config is the configuration of a client of the API server with all permissions.
	Config *rest.Config
	// Dir is the directory for HAProxy's files. Its path must be short, because it contains sockets.
	Dir string
	// DefaultPair is a file with the certificate, and its key, for Routes without one. On the platform, it is valid for
	// all names of the domain.
	DefaultPair string
	// ServiceCA is a file with the authority that signs the platform's certificates for Services. Servers of Routes
	// that re-encrypt, and have no authority of their own, must have such a certificate for the name of their Service.
	ServiceCA string
	// ReloadInterval is the minimum time from one reload of HAProxy to the next. A Route that is admitted in between is
	// served that much later. On the platform, it is five seconds by default.
	ReloadInterval time.Duration
	// Output gets the output of HAProxy. Nil discards it.
	Output io.Writer
	// Serving is called once, when the Routes that existed at the start are served. It may be nil.
	Serving func()
}

// NewScheme returns a scheme with the types that a router reads.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), routev1.Install(scheme))
}

// router is a running router.
type router struct {
	options Options
	client  client.Client
	cache   cache.Cache
	haproxy haproxy
	// rejected are the Routes that were rejected for their Secrets.
	rejected rejections
	// reloaded is the time of the last reload.
	reloaded time.Time
	// changed has an element if something has changed since the last reconciliation started.
	changed chan struct{}
}

// Run serves Routes until ctx is done. It does not remove their status.
func Run(ctx context.Context, options Options) error {
	scheme, err := NewScheme()
	if err != nil {
		return fmt.Errorf("registering types: %w", err)
	}
	r := &router{options: options, changed: make(chan struct{}, 1), rejected: rejections{}, haproxy: haproxy{dir: options.Dir, output: options.Output}}
	if r.client, err = client.New(options.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	if r.cache, err = cache.New(options.Config, cache.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("creating a cache: %w", err)
	}
	if err := r.writeStaticFiles(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- r.cache.Start(ctx) }()
	if err := r.watch(ctx); err != nil {
		return err
	}
	defer r.haproxy.stop()
	if err := r.loop(ctx); err != nil {
		return err
	}
	return <-stopped
}

// writeStaticFiles writes the files that do not depend on Routes.
func (r *router) writeStaticFiles() error {
	files := map[string]string{}
	for name, source := range map[string]string{defaultPair: r.options.DefaultPair, serviceCA: r.options.ServiceCA} {
		content, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		files[name] = string(content)
	}
	return r.haproxy.write(files)
}

// watch reconciles after every change of an object that admission or HAProxy depends on. The platform's router does not
// watch roles, and detects their changes later.
func (r *router) watch(ctx context.Context) error {
	for _, kind := range []client.Object{
		&routev1.Route{}, &discoveryv1.EndpointSlice{}, &corev1.Secret{},
		&rbacv1.Role{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{},
	} {
		informer, err := r.cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { r.enqueue() },
			UpdateFunc: func(any, any) { r.enqueue() },
			DeleteFunc: func(any) { r.enqueue() },
		}); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	if !r.cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("waiting for the caches to sync: %w", context.Cause(ctx))
	}
	r.enqueue()
	return nil
}

// enqueue starts a reconciliation, after the current one if there is one.
func (r *router) enqueue() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// loop reconciles after every change, until ctx is done or HAProxy exits.
func (r *router) loop(ctx context.Context) error {
	logger := logr.FromContextOrDiscard(ctx)
	serving := r.options.Serving
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.haproxy.exited:
			return r.haproxy.err
		case <-r.changed:
		}
		err := r.reconcile(ctx)
		switch {
		case err == nil && serving != nil:
			serving()
			serving = nil
		case err != nil && ctx.Err() == nil:
			logger.Error(err, "Retrying")
			time.AfterFunc(retryAfter, r.enqueue)
		}
	}
}

// reconcile writes the status of all Routes, and then configures HAProxy: as on the platform, a Route is admitted
// before it is served.
func (r *router) reconcile(ctx context.Context) error {
	var routes routev1.RouteList
	var endpoints discoveryv1.EndpointSliceList
	if err := errors.Join(r.cache.List(ctx, &routes), r.cache.List(ctx, &endpoints)); err != nil {
		return fmt.Errorf("listing Routes and endpoints: %w", err)
	}
	decisions, err := r.admit(ctx, routes.Items)
	if err != nil {
		return err
	}
	files, err := render(r.options.Listen, decisions, endpoints.Items)
	if err != nil {
		return err
	}
	if err := r.writeDecisions(ctx, routes.Items, decisions); err != nil {
		return err
	}
	return r.reload(ctx, files)
}

// reload configures HAProxy, or starts another reconciliation when the next reload may be.
func (r *router) reload(ctx context.Context, files map[string]string) error {
	if wait := time.Until(r.reloaded.Add(r.options.ReloadInterval)); wait > 0 {
		time.AfterFunc(wait, r.enqueue)
		return nil
	}
	reloads := !maps.Equal(files, r.haproxy.files)
	if err := r.haproxy.apply(ctx, files); err != nil {
		return err
	}
	if reloads {
		r.reloaded = time.Now()
	}
	return nil
}

// writeDecisions writes the status of all Routes.
func (r *router) writeDecisions(ctx context.Context, routes []routev1.Route, decisions []decision) error {
	current := map[client.ObjectKey]*routev1.Route{}
	for i := range routes {
		current[client.ObjectKeyFromObject(&routes[i])] = &routes[i]
	}
	var errs []error
	for _, d := range decisions {
		err := writeDecision(ctx, r.client, r.options.Identity, current[client.ObjectKeyFromObject(d.route)], d)
		if apierrors.IsConflict(err) {
			continue // the Route has changed, which starts another reconciliation
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// admit decides which Routes are admitted, with the existing Secrets and permissions.
func (r *router) admit(ctx context.Context, routes []routev1.Route) ([]decision, error) {
	var errs []error
	decisions := admit(r.options.Identity, routes, func(namespace, name string) (*corev1.Secret, []string) {
		missing, err := r.missingVerbs(ctx, namespace, name)
		errs = append(errs, err)
		var secret corev1.Secret
		if err := r.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			return nil, missing
		}
		return &secret, missing
	})
	err := errors.Join(errs...)
	if err == nil {
		r.rejected.remember(decisions, routes)
	}
	return decisions, err
}

// missingVerbs returns the verbs for which the platform's router has no permission on a Secret. The owner of the Secret
// must grant them.
func (r *router) missingVerbs(ctx context.Context, namespace, secret string) ([]string, error) {
	var missing []string
	for _, verb := range []string{"get", "watch", "list"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:openshift-ingress:router",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:openshift-ingress", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Resource: "secrets", Name: secret,
			},
		}}
		if err := r.client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("checking whether the router may %s Secret %s/%s: %w", verb, namespace, secret, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}
