// Command serviceca publishes the authority of serving certificates to each namespace, in the ConfigMap that the
// controller manager of OpenShift creates. Pods mount it with their tokens there, and do not start without it.
//
// It issues no certificates.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	configMap = "openshift-service-ca.crt"
	key       = "service-ca.crt"
	// retryAfter is the delay before the namespaces are watched again.
	retryAfter = 100 * time.Millisecond
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the client configuration")
	authority := flag.String("authority", "", "file with the authority's certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *authority); err != nil {
		fmt.Fprintf(os.Stderr, "publishing the service CA: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, authority string) error {
	certificate, err := os.ReadFile(authority)
	if err != nil {
		return fmt.Errorf("reading the authority: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the client configuration: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	for ctx.Err() == nil {
		if err := publish(ctx, client, string(certificate)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
	return nil
}

// publish creates the ConfigMap in all namespaces, and in those that are created, until the watch ends.
func publish(ctx context.Context, client kubernetes.Interface, certificate string) error {
	changes, err := client.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{}) // begins with the existing ones
	if err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		namespace, ok := change.Object.(*corev1.Namespace)
		if !ok || namespace.Status.Phase == corev1.NamespaceTerminating {
			continue
		}
		_, err := client.CoreV1().ConfigMaps(namespace.Name).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: map[string]string{key: certificate},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("creating the ConfigMap in namespace %s: %w", namespace.Name, err)
		}
	}
	return nil
}
