// Package router plays the router of OpenShift for tests: it admits Routes by the platform's rules, says so in their
// status, and lets HAProxy, the proxy that the platform's router is built on, carry their traffic. Which part of the
// platform each piece stands for is in the README beside it.
//
// It must never be imported by anything but tests and test tools.
package router

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// retryAfter is when a pass that failed is tried again, if nothing changes before.
const retryAfter = time.Second

// Options are what a router is started with.
type Options struct {
	Identity
	Listen
	// Config is a configuration of a client of the API server with all rights.
	Config *rest.Config
	// Dir is the directory for HAProxy's files, which must be on a short path: there are sockets in it.
	Dir string
	// DefaultPair is a file with the certificate, and its key, of Routes that bring none of their own: on the platform,
	// one for all names of the domain.
	DefaultPair string
	// ServiceCA is a file with the authority that the platform signs the certificates of Services with. Servers of
	// Routes that encrypt anew and name no authority must have a certificate of it, for the name of their Service.
	ServiceCA string
	// Output gets what HAProxy prints. Nil discards it.
	Output io.Writer
	// Serving is called once, when the Routes that existed at the start are served. It may be nil.
	Serving func()
}

// NewScheme returns a scheme with the kinds that a router reads.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), routev1.Install(scheme))
}

// router is a router at work.
type router struct {
	options Options
	client  client.Client
	cache   cache.Cache
	haproxy haproxy
	// changed has an element if something has changed since the last pass began.
	changed chan struct{}
}

// Run serves Routes until ctx is done. Their status stays as it is then.
func Run(ctx context.Context, options Options) error {
	scheme, err := NewScheme()
	if err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	r := &router{options: options, changed: make(chan struct{}, 1), haproxy: haproxy{dir: options.Dir, output: options.Output}}
	if r.client, err = client.New(options.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if r.cache, err = cache.New(options.Config, cache.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a cache: %w", err)
	}
	if err := r.prepare(); err != nil {
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

// prepare puts the files into place that stay the same.
func (r *router) prepare() error {
	files := map[string]string{}
	for name, source := range map[string]string{defaultPair: r.options.DefaultPair, serviceCA: r.options.ServiceCA} {
		content, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("reading what becomes %s: %w", name, err)
		}
		files[name] = string(content)
	}
	return r.haproxy.write(files)
}

// watch lets every change of what admission or HAProxy depends on start a pass. The platform's router does not watch
// roles: it would find out later.
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
			AddFunc:    func(any) { r.wake() },
			UpdateFunc: func(any, any) { r.wake() },
			DeleteFunc: func(any) { r.wake() },
		}); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	if !r.cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("filling the caches: %w", context.Cause(ctx))
	}
	r.wake()
	return nil
}

// wake starts a pass, after the present one if there is one.
func (r *router) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// loop makes a pass after every change, until ctx is done or HAProxy has ended by itself.
func (r *router) loop(ctx context.Context) error {
	logger := logr.FromContextOrDiscard(ctx)
	serving := r.options.Serving
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.haproxy.ended:
			return r.haproxy.err
		case <-r.changed:
		}
		err := r.pass(ctx)
		switch {
		case err == nil && serving != nil:
			serving()
			serving = nil
		case err != nil && ctx.Err() == nil:
			logger.Error(err, "Retrying")
			time.AfterFunc(retryAfter, r.wake)
		}
	}
}

// pass makes HAProxy and the status of all Routes what they should be. A Route is admitted when it is already served;
// the platform's router says so a moment before.
func (r *router) pass(ctx context.Context) error {
	var routes routev1.RouteList
	var endpoints discoveryv1.EndpointSliceList
	if err := errors.Join(r.cache.List(ctx, &routes), r.cache.List(ctx, &endpoints)); err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	verdicts, err := r.admit(ctx, routes.Items)
	if err != nil {
		return err
	}
	files, err := render(r.options.Listen, verdicts, endpoints.Items)
	if err != nil {
		return err
	}
	if err := r.haproxy.apply(ctx, files); err != nil {
		return err
	}
	current := map[client.ObjectKey]*routev1.Route{}
	for i := range routes.Items {
		current[client.ObjectKeyFromObject(&routes.Items[i])] = &routes.Items[i]
	}
	var errs []error
	for _, v := range verdicts {
		err := report(ctx, r.client, r.options.Identity, current[client.ObjectKeyFromObject(v.route)], v)
		if apierrors.IsConflict(err) {
			continue // with the newer Route comes the next pass
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// admit decides on the Routes with the Secrets and the rights that there are.
func (r *router) admit(ctx context.Context, routes []routev1.Route) ([]verdict, error) {
	var errs []error
	verdicts := admit(r.options.Identity, routes, func(namespace, name string) (*corev1.Secret, []string) {
		missing, err := r.missingVerbs(ctx, namespace, name)
		errs = append(errs, err)
		var secret corev1.Secret
		if err := r.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			return nil, missing
		}
		return &secret, missing
	})
	return verdicts, errors.Join(errs...)
}

// missingVerbs returns what the platform's router may not do with a Secret: it needs rights that the Secret's owner has
// to grant.
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
			return nil, fmt.Errorf("asking whether the router may %s Secret %s/%s: %w", verb, namespace, secret, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}
