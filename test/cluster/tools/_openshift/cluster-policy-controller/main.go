// Command cluster-policy-controller runs OpenShift's controllers of that name which need no other API of OpenShift than
// that of security context constraints: they assign user IDs to namespaces, and label them with a Pod security
// standard.
//
// The directory's name begins with an underscore, so that the go command ignores it in this module: package tools
// compiles it in a checkout of MicroShift, with the dependencies that are there.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	policycontroller "github.com/openshift/cluster-policy-controller/pkg/cmd/cluster-policy-controller"
	"github.com/openshift/library-go/pkg/controller/controllercmd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// namespace has the controllers' events, as on the platform.
const namespace = "openshift-kube-controller-manager"

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "file with the client configuration")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config := &unstructured.Unstructured{Object: map[string]any{
		// Quotas across namespaces have an API of their own, and those within one are Kubernetes'.
		"controllers": []any{"*", "-openshift.io/resourcequota", "-openshift.io/cluster-quota-reconciliation"},
	}}
	err := controllercmd.NewController("cluster-policy-controller", policycontroller.RunClusterPolicyController, clock.RealClock{}).
		WithKubeConfigFile(*kubeconfig, nil).
		WithComponentNamespace(namespace).
		// Without an owner it would look for its own Pod.
		WithComponentOwnerReference(&corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace}).
		Run(ctx, config)
	if err != nil {
		klog.ErrorS(err, "The controllers have ended")
		os.Exit(1)
	}
}
