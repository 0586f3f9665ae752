package injection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// largest is a little less than the API server takes in one request.
const largest = 2_900_000

// many is how many elements of a list Kubernetes itself takes in less than a second: its work is quadratic.
const many = 3000

// repeated returns a text of about n bytes.
func repeated(text string, n int) string { return strings.Repeat(text, n/len(text)) }

// growing are Pods that ask for a volume and are as large as the API server takes, each in another field, and some that
// are as large as the policy reads.
func growing() map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for _, key := range []string{"inject", "inject-listener", "inject-volume", "inject-path", "inject-containers", "ports", "keep", "certificate", "other"} {
		pods[key] = annotated("external", key, repeated(", /a", largest))
	}
	pods["annotations"] = annotated("external")
	for i := range many {
		pods["annotations"].Annotations[fmt.Sprintf("listener-operator.dev/x%d", i)] = ""
	}
	volume := func(spec *corev1.PodSpec, i int) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	pods["labels"] = annotated("external")
	pods["labels"].Labels = map[string]string{}
	for i := range many {
		pods["labels"].Labels[fmt.Sprintf("x%d", i)] = ""
	}
	grow := func(name string, n int, add func(*corev1.PodSpec, int)) {
		pods[name] = annotated("external", "inject-containers", "web "+repeated("a ", 1000), "inject-path", "/"+repeated("a/", 1000))
		volume(&pods[name].Spec, 0)
		for i := range n {
			add(&pods[name].Spec, i)
		}
	}
	mount := func(n int, path string) func(*corev1.PodSpec, int) {
		return func(spec *corev1.PodSpec, i int) {
			c := &spec.Containers[i%n]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v0", MountPath: path + fmt.Sprint(i)})
		}
	}
	container := func(spec *corev1.PodSpec, i int) {
		spec.Containers = append(spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "c"})
	}
	grow("containers", many, container)
	grow("init containers", many, func(spec *corev1.PodSpec, i int) {
		spec.InitContainers = append(spec.InitContainers, corev1.Container{Name: fmt.Sprint("i", i), Image: "c"})
	})
	grow("volumes", many, func(spec *corev1.PodSpec, i int) { volume(spec, i+1) })
	grow("mounts", many, mount(2, "/m"))
	grow("long mounts", 512, mount(2, "/"+repeated("m/", largest/600)))
	grow("a long mount", 1, mount(1, "/"+repeated("m/", largest)))
	grow("all that is read", 60, container)
	for i := range 256 {
		mount(62, "/"+repeated("m/", 250))(&pods["all that is read"].Spec, i)
	}
	for i := range 255 {
		volume(&pods["all that is read"].Spec, i+1)
	}
	grow("environment that is read", 4000, func(spec *corev1.PodSpec, i int) {
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("v", i)})
	})
	grow("environment", 5000, func(spec *corev1.PodSpec, i int) {
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("v", i)})
	})
	return pods
}

// Without a bound, 50 KB of commas took seconds for each dry run, which counts against no quota.
func TestALargePodTakesNoLongerBecauseOfItsAnnotations(t *testing.T) {
	w := newWorld(t)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "without-"}}
	w.Expect(w.Create(t.Context(), other)).To(Succeed())
	config := apiserver.Config(t)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	server, err := rest.RESTClientFor(config)
	w.Expect(err).NotTo(HaveOccurred())
	create := func(namespace string, body []byte) func() {
		request := server.Post().Namespace(namespace).Resource("pods").Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json")
		return func() { _ = request.Body(body).Do(context.Background()) } // which may refuse it, at the same cost
	}
	for name, pod := range growing() {
		t.Run(name, func(t *testing.T) {
			asks, err := json.Marshal(pod)
			check.Must(t, err)
			plain := []byte(strings.ReplaceAll(string(asks), "listener-operator.dev/", "nobody-operator.dev/xx"))
			namespace := other.Name
			if strings.HasSuffix(name, "that is read") { // a policy that changes Pods costs each of them something
				namespace = w.Namespace
			}
			with, without, twice := apiserver.ComputesTwice(t, create(w.Namespace, asks), create(namespace, plain))
			t.Logf("%d bytes, %v without annotations, %v with", len(asks), without, with)
			if twice {
				t.Errorf("%v without annotations, %v with", without, with)
			}
		})
	}
}
