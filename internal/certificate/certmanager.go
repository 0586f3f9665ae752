package certificate

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// SubjectNames returns the DNS names and IP addresses that a Certificate of cert-manager is for.
func SubjectNames(certManager *unstructured.Unstructured) []string {
	dnsNames, _, _ := unstructured.NestedStringSlice(certManager.Object, "spec", "dnsNames")
	ips, _, _ := unstructured.NestedStringSlice(certManager.Object, "spec", "ipAddresses")
	return append(dnsNames, ips...)
}
