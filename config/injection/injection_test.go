package injection_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
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
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
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
	objects, err := injection.Objects()
	w.Expect(err).NotTo(HaveOccurred())
	for _, o := range append(objects, w.config) {
		w.Expect(w.Create(t.Context(), o)).To(Succeed())
		t.Cleanup(func() { w.Expect(w.Delete(context.Background(), o)).To(Succeed()) })
	}
	w.optIn("enabled")
	// API servers learn a parameter's kind half a minute after their start, and new policies within a moment.
	w.Eventually(func() []corev1.Volume {
		created, _ := w.dryRun(annotated("external"))
		return created.Spec.Volumes
	}).Should(HaveLen(1))
	w.Eventually(func() error {
		_, err := w.dryRun(annotated("external", "inject-path", "/"))
		return err
	}).ShouldNot(Succeed())
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
		"a list with blanks": {pod: annotated("external", "inject-containers", " init web,\tother,,"), want: map[string]string{"init": own, "web": own}},
		"a list of nothing":  {pod: annotated("external", "inject-containers", " , "), want: map[string]string{"init": own, "web": own, "proxy": own}},
		"an init container":  {pod: annotated("external", "inject-containers", "init"), want: map[string]string{"init": own}},
		"no such container":  {pod: annotated("external", "inject-containers", "other")},
		"empty values": {
			pod:  annotated("external", "inject-listener", "", "inject-volume", "", "inject-path", "", "inject-containers", "", "ports", "", "keep", "", "certificate", " "),
			want: map[string]string{"init": own, "web": own, "proxy": own},
		},
		"an empty class":             {pod: annotated(" ")},
		"another name":               {pod: annotated("external", "inject-volume", "address", "inject-containers", "web"), volume: "address", want: map[string]string{"web": "address:/listener:ro"}},
		"another path":               {pod: annotated("external", "inject-path", "/a/b", "inject-containers", "web"), want: map[string]string{"web": "listener:/a/b:ro"}},
		"a path in another spelling": {pod: annotated("external", "inject-path", " //a/./b..//.c/ ", "inject-containers", "web"), want: map[string]string{"web": "listener:/a/b../.c:ro"}},
		"all attributes": {
			pod:  annotated("external", "ports", "http", "keep", "true", "certificate", "web"),
			more: map[string]string{names.AnnotationPorts: "http", names.AttributeKeep: "true", names.LabelCertificate: "web"},
			want: map[string]string{"init": own, "web": own, "proxy": own},
		},
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
		"a path below another mount": {pod: annotated("external", "inject-containers", "web"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{data}
			mount(p, 0, "data", "/")
		}},
		"a path below a device": {pod: annotated("external", "inject-containers", "web", "inject-path", "/disk/listener"), change: func(p *corev1.Pod) {
			disk := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}
			p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: disk}}}
			p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/disk"}}
		}},
		"a path of the container's last words": {pod: annotated("external", "inject-containers", "web"), change: func(p *corev1.Pod) {
			p.Spec.Containers[0].TerminationMessagePath = "/listener/message"
		}},
		"a mount that nobody can compare": {pod: annotated("external", "inject-containers", "web"), change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{data}
			mount(p, 0, "data", "/data/../listener")
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
			check.Must(t, err)
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
			check.Equal(t, "mounts", want, mounts(got))
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
	listener, err := w.dryRun(annotated("", "inject-listener", "shared", "inject-containers", "web"))
	if diff := cmp.Diff([]corev1.Volume{objects.InlineVolume("listener", map[string]string{names.AnnotationListenerName: "shared"})}, listener.Spec.Volumes); err != nil || diff != "" {
		t.Errorf("error %v, volumes (-want +got):\n%s", err, diff)
	}
}

// A text of the API server about a volume or a mount that nobody has written would help nobody.
func TestWhatAnAnnotationCannotMeanIsRefused(t *testing.T) {
	w := newWorld(t)
	refused := func(about string, pod *corev1.Pod, texts ...string) {
		t.Helper()
		_, err := w.dryRun(pod)
		for _, text := range append(texts, names.InjectionPolicy) {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %v, want %q", about, err, text)
			}
		}
	}
	for _, path := range []string{
		"/", "//", "/./", "data", "./data", "/data/..", "/../data", "/da:ta", "/var/run/secrets", "/var//run/./secrets/", "/var/run/secrets/kubernetes.io/serviceaccount",
		"/run/secrets/x", "/var", "/run", "/var/run", "/proc/1", "/sys", "/dev/shm", "/etc", "/etc/hosts/",
	} {
		refused(path, annotated("external", "inject-path", path), names.AnnotationInjectPath)
	}
	for _, volume := range []string{"No_Name", "-x", strings.Repeat("x", 64), "a.b"} {
		refused(volume, annotated("external", "inject-volume", volume), names.AnnotationInjectVolume)
	}
	refused("both", annotated("external", "inject-listener", "web"), names.AnnotationInject, names.AnnotationInjectListener)
	for _, key := range []string{"inject", "inject-listener", "inject-volume", "inject-path", "inject-containers", "ports", "keep", "certificate"} {
		refused(key, annotated("external", key, strings.Repeat("/,", 513)), "longer than 1024 characters")
	}
	many := annotated("external")
	for i := range 64 {
		many.Spec.Containers = append(many.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "web:1"})
	}
	refused("many containers", many, "64 containers")
	w.config.Spec.Injection = operatorv1alpha1.InjectionDisabled
	w.Expect(w.Update(w.Context(), w.config)).To(Succeed())
	w.Eventually(func() error {
		_, err := w.dryRun(annotated("external", "inject-path", "/"))
		return err
	}).Should(Succeed(), "disabled")
}

// spellings are paths of which many lead to the same place, or above or below another.
var spellings = []string{
	"/listener", "listener", "/./listener/", "//listener", "/listener/a", "/x/../listener", "/listeners", "/data", "data/", "/data/./a", "/data/a/..", "/a/b", "/a//b/c", "/",
	"/var/run/app", "/run/app/", "/var/run/secrets", "/run/secrets/a", "/var", "/etc", "/dev/x", "/...", "/..a/b",
}

func kernel(spelling string) string {
	cleaned := path.Join("/", spelling)
	if rest, ok := strings.CutPrefix(cleaned, "/var/run/"); ok {
		cleaned = "/run/" + rest
	}
	return strings.TrimSuffix(cleaned, "/") + "/"
}

func related(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// randomPod returns a Pod with mounts of its own, and with annotations that may fit or not.
func randomPod(r *rand.Rand) *corev1.Pod {
	one := func(values ...string) string { return values[r.IntN(len(values))] }
	pod := annotated("external")
	for _, key := range []string{"inject", "inject-listener", "inject-volume", "inject-path", "inject-containers", "ports", "certificate"} {
		if r.IntN(3) == 0 {
			pod.Annotations["listener-operator.dev/"+key] = one(append(spellings, "", "web", "web,init", "proxy web", "data", "x")...)
		}
	}
	if r.IntN(2) == 0 {
		pod.Annotations[names.AnnotationInjectPath] = one(spellings...)
	}
	for _, name := range []string{"data", "logs"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, name := range []string{"data", "logs"} {
				if spelling := one(spellings...); r.IntN(2) == 0 && !slices.ContainsFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == spelling }) {
					containers[i].VolumeMounts = append(containers[i].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: spelling})
				}
			}
		}
	}
	return pod
}

// The API server calls the policy again after other mutations, and nobody knows what is in a Pod.
func TestWhateverAPodHasNothingIsHiddenAndASecondPassChangesNothing(t *testing.T) {
	w := newWorld(t)
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the Pods have to be the same in each run
	injected, refused := 0, 0
	for range 400 {
		pod := randomPod(r)
		got, err := w.dryRun(pod)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "listener-operator.dev/inject") {
				t.Fatalf("seed %d, annotations %v: %v", seed, pod.Annotations, err)
			}
			continue
		}
		again := pod.DeepCopy()
		again.Spec = *got.Spec.DeepCopy()
		if second, err := w.dryRun(again); err != nil || !equality.Semantic.DeepEqual(got.Spec, second.Spec) {
			t.Fatalf("seed %d, annotations %v: the second pass: error %v, spec (-first +second):\n%s", seed, pod.Annotations, err, cmp.Diff(got.Spec, second.Spec))
		}
		if !equality.Semantic.DeepEqual(pod.Spec.Volumes, got.Spec.Volumes[:len(pod.Spec.Volumes)]) {
			t.Fatalf("seed %d: the volumes are %v, and were %v", seed, got.Spec.Volumes, pod.Spec.Volumes)
		}
		if len(got.Spec.Volumes) > len(pod.Spec.Volumes) {
			injected++
		}
		own, all := append(pod.Spec.InitContainers, pod.Spec.Containers...), append(got.Spec.InitContainers, got.Spec.Containers...)
		for i := range own {
			before := len(own[i].VolumeMounts)
			if !equality.Semantic.DeepEqual(own[i].VolumeMounts, all[i].VolumeMounts[:before]) {
				t.Fatalf("seed %d: the mounts are %v, and were %v", seed, all[i].VolumeMounts, own[i].VolumeMounts)
			}
			for _, added := range all[i].VolumeMounts[before:] {
				for _, m := range append(own[i].VolumeMounts, corev1.VolumeMount{MountPath: "/run/secrets"}) {
					if related(kernel(added.MountPath), kernel(m.MountPath)) {
						t.Fatalf("seed %d: %s is mounted, and %s exists", seed, added.MountPath, m.MountPath)
					}
				}
			}
		}
	}
	if injected < 20 || refused < 20 {
		t.Errorf("of 400 Pods, %d got a volume, and %d were refused", injected, refused)
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

// Another policy adds the annotation, or something else, after this one has seen the Pod.
func TestAnotherPolicyMayAddTheAnnotation(t *testing.T) {
	w := newWorld(t)
	policy := func(name, expression string) {
		other := &admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + w.Namespace},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
					}}},
				},
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
					ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
				}},
			},
		}
		binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: other.Name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: other.Name},
		}
		for _, o := range []client.Object{other, binding} {
			w.Expect(w.Create(w.Context(), o)).To(Succeed())
			t.Cleanup(func() { w.Expect(w.Delete(context.Background(), o)).To(Succeed()) })
		}
	}
	created := func(pod *corev1.Pod) func() (*corev1.Pod, error) {
		return func() (*corev1.Pod, error) { return w.dryRun(pod) }
	}
	once := And(HaveField("Spec.Volumes", HaveLen(1)), WithTransform(mounts, Equal(map[string]string{"web": "listener:/listener:ro"})))

	policy("later", `Object{metadata: Object.metadata{labels: {"later": object.metadata.?labels[?"later"].orValue("") == "" ? "once" : "twice"}}}`)
	w.Eventually(created(annotated("external", "inject-containers", "web"))).Should(And(HaveField("Labels", HaveKey("later")), once))

	for _, name := range []string{"a-platform", "zz-platform"} { // which the API server calls before, and after
		pod := annotated("", "inject-containers", "web")
		pod.Labels = map[string]string{"expose": name}
		policy(name, `object.metadata.?labels[?"expose"].orValue("") != "`+name+`" ? Object{} : `+
			`Object{metadata: Object.metadata{annotations: {"listener-operator.dev/inject": "external"}}}`)
		w.Eventually(created(pod)).Should(once, name)
	}
}

// kubectl listener doctor compares what is installed with the file.
func TestTheFileHasTheDefaultsOfTheAPIServer(t *testing.T) {
	w := newWorld(t)
	files, err := injection.Objects()
	w.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		installed := file.DeepCopyObject().(client.Object)
		w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(file), installed)).To(Succeed())
		installed.GetObjectKind().SetGroupVersionKind(file.GetObjectKind().GroupVersionKind())
		installed.SetUID("")
		installed.SetResourceVersion("")
		installed.SetGeneration(0)
		installed.SetCreationTimestamp(metav1.Time{})
		installed.SetManagedFields(nil)
		if policy, ok := installed.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
			policy.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
		}
		w.Expect(equality.Semantic.DeepEqual(file, installed)).To(BeTrue(), cmp.Diff(file, installed))
		w.Expect(file.GetName()).To(Equal(names.InjectionPolicy))
	}
}

// What one policy refuses is what the other one does not act on.
func TestBothPoliciesMeanTheSameByAName(t *testing.T) {
	files, err := injection.Objects()
	check.Must(t, err)
	mutating, validating := files[0].(*admissionregistrationv1.MutatingAdmissionPolicy).Spec, files[2].(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
	if !equality.Semantic.DeepEqual(mutating.MatchConstraints, validating.MatchConstraints) || !equality.Semantic.DeepEqual(mutating.ParamKind, validating.ParamKind) {
		t.Error("the policies are for different Pods")
	}
	expressions := map[string]string{}
	for _, c := range mutating.MatchConditions {
		expressions[c.Name] = c.Expression
	}
	for _, v := range mutating.Variables {
		expressions[v.Name] = v.Expression
	}
	same := 0
	for _, c := range validating.MatchConditions {
		if other, ok := expressions[c.Name]; ok && other != c.Expression {
			t.Errorf("%s is %q and %q", c.Name, c.Expression, other)
		}
	}
	for _, v := range validating.Variables {
		if same++; expressions[v.Name] != v.Expression {
			t.Errorf("%s is %q and %q", v.Name, v.Expression, expressions[v.Name])
		}
	}
	if same == 0 {
		t.Error("the policies have nothing in common")
	}
}

// What an inline volume can be asked for, an annotation can ask for.
func TestThePolicyHasEachKeyOfTheTable(t *testing.T) {
	files, err := injection.Objects()
	check.Must(t, err)
	policy := files[0].(*admissionregistrationv1.MutatingAdmissionPolicy).Spec
	values, listed := "", ""
	for _, v := range policy.Variables {
		switch v.Name {
		case "values":
			values, _, _ = strings.Cut(v.Expression, "]")
		case "listed":
			listed = v.Expression
		}
	}
	read := 0
	for _, key := range keys.Table() {
		short := strings.TrimPrefix(key.Name, names.Domain+"/")
		if slices.Contains(key.On, keys.Pod) && key.Meaning != "" { // of users
			if read++; !strings.Contains(values, "'"+short+"'") {
				t.Errorf("the policy does not read %s", key.Name)
			}
		}
		if slices.Contains(key.On, keys.Volume) && !strings.Contains(policy.Mutations[0].ApplyConfiguration.Expression, ", '"+key.Name+"']") {
			t.Errorf("no annotation becomes the attribute %s", key.Name)
		}
	}
	if strings.Count(values, "'") != 2*read {
		t.Errorf("the policy reads other keys: %s", values)
	}
	if !strings.Contains(listed, "(r'"+keys.Words+"')") {
		t.Errorf("the policy separates lists by %s", listed)
	}
}
