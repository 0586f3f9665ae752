package injection_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/config/injection"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// world has a namespace that opts in, and a configuration that enables the policy.
type world struct {
	*apiserver.World
	config *operatorv1alpha1.ListenerOperator
}

func newWorld(t *testing.T) *world {
	w := &world{World: apiserver.NewWorld(t), config: &operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}, Spec: operatorv1alpha1.ListenerOperatorSpec{Injection: operatorv1alpha1.InjectionEnabled},
	}}
	policy, binding, err := injection.Policy()
	w.Expect(err).NotTo(HaveOccurred())
	for _, o := range []client.Object{policy, binding, w.config} {
		w.Expect(w.Create(t.Context(), o)).To(Succeed())
		t.Cleanup(func() { w.Expect(w.Delete(context.Background(), o)).To(Succeed()) })
	}
	w.optIn("enabled")
	// API servers learn a parameter's kind half a minute after their start, and new policies within a moment.
	w.Eventually(func() []corev1.Volume {
		created, _ := w.dryRun(annotated("external"))
		return created.Spec.Volumes
	}).Should(HaveLen(1))
	return w
}

func (w *world) optIn(value string) {
	w.Helper()
	patch := `{"metadata":{"labels":{"` + names.LabelInjection + `":"` + value + `"}}}`
	w.Expect(w.Patch(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// dryRun returns a Pod as the API server would create it.
func (w *world) dryRun(pod *corev1.Pod) (*corev1.Pod, error) {
	created := pod.DeepCopy()
	created.Namespace = w.Namespace
	return created, w.Create(w.Context(), created, client.DryRunAll)
}

// annotated returns a Pod whose containers mount nothing. The pairs are suffixes of annotations and their values.
func annotated(class string, pairs ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{names.AnnotationInject: class}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool), InitContainers: []corev1.Container{{Name: "init", Image: "web:1"}},
			Containers: []corev1.Container{{Name: "web", Image: "web:1"}, {Name: "proxy", Image: "proxy:1"}},
		},
	}
	for pair := range slices.Chunk(pairs, 2) {
		pod.Annotations["listener-operator.dev/"+pair[0]] = pair[1]
	}
	return pod
}

// mounts returns the mounts of the containers of a Pod, by their names, as volume:path, with :ro if they are read-only.
func mounts(pod *corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		var texts []string
		for _, m := range c.VolumeMounts {
			text := m.Name + ":" + m.MountPath
			if m.ReadOnly {
				text += ":ro"
			}
			texts = append(texts, text)
		}
		if len(texts) > 0 {
			all[c.Name] = strings.Join(texts, " ")
		}
	}
	return all
}

func TestAnAnnotatedPodGetsTheVolumeAndItsMounts(t *testing.T) {
	w := newWorld(t)
	mount := func(pod *corev1.Pod, container int, volume, path string) {
		c := &pod.Spec.Containers[container]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path})
	}
	data := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	const own = "listener:/listener:ro"
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		change func(*corev1.Pod)
		volume string // defaults to "listener"
		more   map[string]string
		want   map[string]string // nil if the Pod stays as it is
	}{
		"all containers":     {pod: annotated("external"), want: map[string]string{"init": own, "web": own, "proxy": own}},
		"a list":             {pod: annotated("external", "inject-containers", "web, other"), want: map[string]string{"web": own}},
		"an init container":  {pod: annotated("external", "inject-containers", "init"), want: map[string]string{"init": own}},
		"no such container":  {pod: annotated("external", "inject-containers", "other")},
		"an empty list":      {pod: annotated("external", "inject-containers", ""), want: map[string]string{"init": own, "web": own, "proxy": own}},
		"another name":       {pod: annotated("external", "inject-volume", "address", "inject-containers", "web"), volume: "address", want: map[string]string{"web": "address:/listener:ro"}},
		"another path":       {pod: annotated("external", "inject-path", "/a/b", "inject-containers", "web"), want: map[string]string{"web": "listener:/a/b:ro"}},
		"ports and keep":     {pod: annotated("external", "ports", "http", "keep", "true"), more: map[string]string{names.AnnotationPorts: "http", names.AttributeKeep: "true"}, want: map[string]string{"init": own, "web": own, "proxy": own}},
		"a host network":     {pod: annotated("external", "inject-containers", "web"), change: func(p *corev1.Pod) { p.Spec.HostNetwork = true }, want: map[string]string{"web": own}},
		"a static Pod":       {pod: annotated("external"), change: func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey], p.Spec.NodeName = "x", "node" }},
		"without annotation": {pod: annotated("external"), change: func(p *corev1.Pod) { p.Annotations = nil }},
		"no init containers": {pod: annotated("external"), change: func(p *corev1.Pod) { p.Spec.InitContainers = nil }, want: map[string]string{"web": own, "proxy": own}},
		"other volumes": {pod: annotated("external"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{data}
			mount(p, 0, "data", "/data")
		}, want: map[string]string{"init": own, "web": "data:/data " + own, "proxy": own}},
		"a path that is taken": {pod: annotated("external"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{data}
			mount(p, 0, "data", "/listener/")
		}, want: map[string]string{"init": own, "web": "data:/listener/", "proxy": own}},
		"a path above another mount": {pod: annotated("external", "inject-containers", "web"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{data}
			mount(p, 0, "data", "/listener/data")
		}},
		"a path that begins alike": {pod: annotated("external", "inject-containers", "web"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{data}
			mount(p, 0, "data", "/listeners")
		}, want: map[string]string{"web": "data:/listeners " + own}},
		"a mount without a volume": {
			pod: annotated("external", "inject-containers", "other"), change: func(p *corev1.Pod) { mount(p, 0, "listener", "/elsewhere") },
			want: map[string]string{"web": "listener:/elsewhere"},
		},
		"a volume of the name": {pod: annotated("external"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{data}
			p.Spec.Volumes[0].Name = "listener"
		}},
		"the volume itself": {pod: annotated("external"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", map[string]string{names.AnnotationListenerName: "shared"})}
			mount(p, 1, "listener", "/elsewhere")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.pod)
			}
			got, err := w.dryRun(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			want, volumes := tc.want, tc.pod.Spec.Volumes
			if want == nil {
				want = mounts(tc.pod)
			} else {
				attributes := map[string]string{names.AnnotationListenerClass: "external"}
				maps.Copy(attributes, tc.more)
				if tc.volume == "" {
					tc.volume = "listener"
				}
				volumes = append(volumes, objects.InlineVolume(tc.volume, attributes))
			}
			if diff := cmp.Diff(want, mounts(got)); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			if !equality.Semantic.DeepEqual(volumes, got.Spec.Volumes) {
				t.Errorf("volumes (-want +got):\n%s", cmp.Diff(volumes, got.Spec.Volumes))
			}
			// What got everything is left alone.
			again := tc.pod.DeepCopy()
			again.Spec = *got.Spec.DeepCopy()
			if second, err := w.dryRun(again); err != nil || !equality.Semantic.DeepEqual(got.Spec, second.Spec) {
				t.Errorf("the second pass: error %v, spec (-first +second):\n%s", err, cmp.Diff(got.Spec, second.Spec))
			}
		})
	}
	// The API server says what is wrong with other values.
	for annotation, value := range map[string]string{"inject-volume": "No_Name", "inject-path": ""} {
		if _, err := w.dryRun(annotated("external", annotation, value)); err == nil || !strings.Contains(err.Error(), "Invalid value") && !strings.Contains(err.Error(), "Required value") {
			t.Errorf("%s %q: error %v", annotation, value, err)
		}
	}
}

func TestPodsStayAsTheyAreIfNobodyAsksForMore(t *testing.T) {
	w := newWorld(t)
	stays := func() string {
		w.Helper()
		created, err := w.dryRun(annotated("external"))
		if err != nil {
			return err.Error()
		}
		if len(created.Spec.Volumes) > 0 {
			return "has volumes"
		}
		return ""
	}
	for _, label := range []string{"", "disabled"} {
		w.optIn(label)
		w.Eventually(stays).Should(BeEmpty(), "namespace with label %q", label)
	}
	w.optIn("enabled")
	w.Eventually(stays).ShouldNot(BeEmpty())
	w.config.Spec.Injection = operatorv1alpha1.InjectionDisabled
	w.Expect(w.Update(w.Context(), w.config)).To(Succeed())
	w.Eventually(stays).Should(BeEmpty(), "disabled")
	w.config.Spec.Injection = operatorv1alpha1.InjectionEnabled
	w.Expect(w.Update(w.Context(), w.config)).To(Succeed())
	w.Eventually(stays).ShouldNot(BeEmpty())
	w.Expect(w.Delete(w.Context(), w.config)).To(Succeed())
	w.Eventually(stays).Should(BeEmpty(), "without configuration")
	w.config.ResourceVersion = ""
	w.Expect(w.Create(w.Context(), w.config)).To(Succeed()) // for the cleanup
}

// A policy that reads no parameter, and mutates later, makes the API server look at the Pod again.
func TestAnotherMutationAddsNothing(t *testing.T) {
	w := newWorld(t)
	other, _, err := injection.Policy()
	w.Expect(err).NotTo(HaveOccurred())
	other.Name, other.Spec.ParamKind, other.Spec.Variables = "later-"+w.Namespace, nil, nil
	other.Spec.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	other.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}}
	other.Spec.MatchConditions = nil
	other.Spec.Mutations[0].ApplyConfiguration.Expression = `Object{metadata: Object.metadata{labels: {"later": object.metadata.?labels[?"later"].orValue("") == "" ? "once" : "twice"}}}`
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: other.Name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: other.Name},
	}
	for _, o := range []client.Object{other, binding} {
		w.Expect(w.Create(w.Context(), o)).To(Succeed())
		t.Cleanup(func() { w.Expect(w.Delete(context.Background(), o)).To(Succeed()) })
	}
	var pod *corev1.Pod
	w.Eventually(func() map[string]string {
		pod, err = w.dryRun(annotated("external", "inject-containers", "web"))
		return pod.Labels
	}).Should(HaveKey("later"))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(mounts(pod)).To(Equal(map[string]string{"web": "listener:/listener:ro"}))
	w.Expect(pod.Spec.Volumes).To(HaveLen(1))
}

// kubectl listener doctor compares what is installed with the file.
func TestTheFileHasTheDefaultsOfTheAPIServer(t *testing.T) {
	w := newWorld(t)
	policy, binding, err := injection.Policy()
	w.Expect(err).NotTo(HaveOccurred())
	installed, bound := policy.DeepCopy(), binding.DeepCopy()
	for _, o := range []client.Object{installed, bound} {
		w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	}
	w.Expect(equality.Semantic.DeepEqual(policy.Spec, installed.Spec)).To(BeTrue(), cmp.Diff(policy.Spec, installed.Spec))
	w.Expect(equality.Semantic.DeepEqual(binding.Spec, bound.Spec)).To(BeTrue(), cmp.Diff(binding.Spec, bound.Spec))
	if policy.Name != names.InjectionPolicy || binding.Name != names.InjectionPolicy {
		t.Errorf("the names are %s and %s", policy.Name, binding.Name)
	}
}
