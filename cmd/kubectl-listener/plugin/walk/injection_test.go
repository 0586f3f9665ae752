package walk

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/config/injection"
	"github.com/listener-operator/listener-operator/internal/names"
)

func injectionPolicies(t *testing.T) (admissionregistrationv1.MutatingAdmissionPolicySpec, admissionregistrationv1.ValidatingAdmissionPolicySpec) {
	t.Helper()
	files, err := injection.Objects()
	if err != nil {
		t.Fatal(err)
	}
	return files[0].(*admissionregistrationv1.MutatingAdmissionPolicy).Spec, files[2].(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
}

// The command evaluates what the API server has evaluated, so it need not guess.
func TestTheFalseConditionOfThePolicyIsNamed(t *testing.T) {
	mutating, validating := injectionPolicies(t)
	data := func(path string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: path}}
		}
	}
	annotate := func(key, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations[key] = value }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		config operatorv1alpha1.Injection
		want   string
	}{
		"nothing":                 {want: "older than its annotation or what permits that"},
		"not enabled":             {config: operatorv1alpha1.InjectionDisabled, want: notEnabled},
		"a static Pod":            {change: annotate(corev1.MirrorPodAnnotationKey, "x"), want: "static Pod"},
		"another volume":          {change: func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "listener"}} }, want: "has another volume of the name"},
		"a path that is taken":    {change: data("/listener/"), want: "something of its own at, above or below"},
		"a path below another":    {change: data("/"), want: "something of its own at, above or below"},
		"a relative path":         {change: annotate(names.AnnotationInjectPath, "data"), want: names.AnnotationInjectPath + " must be an absolute path"},
		"a secret path":           {change: annotate(names.AnnotationInjectPath, "/var//run/secrets"), want: names.AnnotationInjectPath + " must be an absolute path"},
		"no name of a volume":     {change: annotate(names.AnnotationInjectVolume, "A"), want: names.AnnotationInjectVolume + " must be"},
		"both":                    {change: annotate(names.AnnotationInjectListener, "web"), want: "are both set"},
		"a long annotation":       {change: annotate(names.AnnotationPorts, strings.Repeat("a,", 1000)), want: "longer than 1024"},
		"a Pod that is too large": {change: func(p *corev1.Pod) { p.Spec.Volumes = make([]corev1.Volume, 300) }, want: "256 volumes"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationInject: "external"}}}
		pod.Spec.Containers = []corev1.Container{{Name: "web"}}
		config := &operatorv1alpha1.ListenerOperator{Spec: operatorv1alpha1.ListenerOperatorSpec{Injection: operatorv1alpha1.InjectionEnabled}}
		if tc.config != "" {
			config.Spec.Injection = tc.config
		}
		if tc.change != nil {
			tc.change(pod)
		}
		if got, err := falseCondition(pod, config, mutating, validating); err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, error %v, want %q", name, got, err, tc.want)
		}
	}
	changed := mutating.DeepCopy()
	changed.MatchConditions = append(changed.MatchConditions, admissionregistrationv1.MatchCondition{Name: "ours", Expression: "object.metadata.name == 'x'"})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationInject: "external"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
	pod.Name = "y"
	enabled := &operatorv1alpha1.ListenerOperator{Spec: operatorv1alpha1.ListenerOperatorSpec{Injection: operatorv1alpha1.InjectionEnabled}}
	if got, err := falseCondition(pod, enabled, *changed, validating); err != nil || got != `the condition "ours" of the policy is false` {
		t.Errorf("%q, error %v", got, err)
	}
}

func TestEachConditionOfThePolicyHasASentence(t *testing.T) {
	mutating, validating := injectionPolicies(t)
	said := map[string]bool{"requested": true} // or the Pod would not be asked about
	for name := range becauseOf {
		said[name] = true
	}
	for _, v := range validating.Variables {
		said[v.Name] = slices.ContainsFunc(validating.Validations, func(r admissionregistrationv1.Validation) bool {
			return strings.HasSuffix(r.Expression, "variables."+v.Name) && r.Message != ""
		})
	}
	for _, c := range mutating.MatchConditions {
		if !said[c.Name] {
			t.Errorf("the condition %s has no sentence", c.Name)
		}
	}
	mutation := mutating.Mutations[0].ApplyConfiguration.Expression
	conditions, _, _ := strings.Cut(mutation, "?")
	for _, v := range mutating.Variables {
		if strings.Contains(conditions, "variables."+v.Name) && !said[v.Name] {
			t.Errorf("the variable %s has no sentence", v.Name)
		}
	}
}

// expressions calls f for each expression of an object.
func expressions(value any, f func(expression string, set func(string))) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			expressions(element, f)
		}
	case map[string]any:
		for key, element := range value {
			if expression, ok := element.(string); ok && key == "expression" {
				f(expression, func(changed string) { value[key] = changed })
			}
			expressions(element, f)
		}
	}
}

// What `kubectl apply -k config/injection` installs differs from the file in the lines of expressions.
func TestAPolicyIsComparedByWhatItsExpressionsMean(t *testing.T) {
	files, err := injection.Objects()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]client.Object{}
	for _, file := range files {
		want[file.GetObjectKind().GroupVersionKind().Kind] = file
	}
	infos, err := resource.NewLocalBuilder().Unstructured().
		FilenameParam(false, &resource.FilenameOptions{Kustomize: "../../../../config/injection"}).Flatten().Do().Infos()
	if err != nil || len(infos) != len(files) {
		t.Fatalf("error %v, %d objects", err, len(infos))
	}
	compared, rewrites := 0, 0
	for _, info := range infos {
		installed := info.Object.(*unstructured.Unstructured)
		file := want[installed.GetKind()]
		equal := func() bool { return equivalent(installed.DeepCopy(), file) }
		if !equal() {
			t.Errorf("%s is not compared by what it means", installed.GetKind())
		}
		expressions(installed.Object, func(before string, set func(string)) {
			compared++
			if rewritten(before) != before {
				rewrites++
			}
			for _, changed := range []string{"!(" + before + ")", "true", before + " || (", "'" + before + " '"} {
				if set(changed); equal() {
					t.Errorf("%q counts as %q", changed, before)
				}
			}
			set(before)
		})
	}
	if compared < 20 || rewrites == 0 {
		t.Errorf("%d expressions, of which %d are written in another way", compared, rewrites)
	}
}
