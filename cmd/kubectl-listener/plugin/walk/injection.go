package walk

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/parser"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/library"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/config/injection"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

const (
	kindInjection   = "MutatingAdmissionPolicy"
	remedyInjection = "Apply injection.yaml of the operator's release: docs/volumes.md#by-an-annotation"
)

// requested returns the annotation by which a Pod asks for a volume, or "".
func requested(pod *corev1.Pod) string {
	for _, key := range []string{names.AnnotationInject, names.AnnotationInjectListener} {
		if strings.TrimSpace(pod.Annotations[key]) != "" {
			return key
		}
	}
	return ""
}

// awaitsInjection reports whether a Pod has no volume in spite of the annotation that asks for it.
func awaitsInjection(pod *corev1.Pod) bool {
	name := cmp.Or(strings.TrimSpace(pod.Annotations[names.AnnotationInjectVolume]), names.InjectedVolume)
	added := func(v corev1.Volume) bool { return v.Name == name && claim.IsInline(&v) }
	return requested(pod) != "" && !slices.ContainsFunc(pod.Spec.Volumes, added)
}

// withoutInjection reports why a Pod has no volume in spite of its annotation. f is about the Pod.
func (w *Walk) withoutInjection(ctx context.Context, f check.Finding, pod *corev1.Pod) {
	listed := keys.List(pod.Annotations[names.AnnotationInjectContainers])
	isListed := func(c corev1.Container) bool { return slices.Contains(listed, c.Name) }
	if len(listed) > 0 && !slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), isListed) {
		const problem = "the annotation " + names.AnnotationInjectContainers +
			" names no container of the Pod, so the Pod gets no volume"
		w.Add(f.FailedBy(reasons.NotInjected, problem).Aside())
		return
	}
	because, err := w.notInjected(ctx, pod)
	if err != nil {
		because = "the policy cannot be evaluated: " + err.Error()
	}
	w.Add(f.FailedBy(reasons.NotInjected, "the annotation "+requested(pod)+" was not acted on, because "+because))
}

const notEnabled = "an administrator has not set spec.injection of ListenerOperator/cluster to Enabled"

func (w *Walk) notInjected(ctx context.Context, pod *corev1.Pod) (because string, err error) {
	namespace, config := tenancy.Namespace(), &operatorv1alpha1.ListenerOperator{}
	mutating, binding := &admissionregistrationv1.MutatingAdmissionPolicy{},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	validating := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	for _, c := range []struct {
		kind, name string
		object     client.Object
		because    string // if it does not exist
	}{
		{"Namespace", pod.Namespace, namespace, ""},
		{kindInjection, names.InjectionPolicy, mutating, w.withoutPolicy()},
		{kindInjection + "Binding", names.InjectionPolicy, binding, w.withoutPolicy()},
		{"ValidatingAdmissionPolicy", names.InjectionPolicy, validating, w.withoutPolicy()},
		{"ListenerOperator", operatorv1alpha1.ListenerOperatorName, config, notEnabled},
	} {
		switch found := w.Read(ctx, check.Finding{Kind: c.kind, Name: c.name}, c.object); {
		case found == check.Forbidden:
			because = "you may not read why; ask an administrator to run this command"
		case found == check.Missing:
			return c.because, nil
		case c.object == namespace && namespace.Labels[names.LabelInjection] != "enabled":
			return fmt.Sprintf("the namespace does not opt in; an administrator lets it by: kubectl label namespace "+
				"%s %s=enabled --overwrite", pod.Namespace, names.LabelInjection), nil
		}
	}
	if because != "" {
		return because, nil
	}
	return falseCondition(pod, config, mutating.Spec, validating.Spec)
}

// becauseOf are the conditions of the policy, by their names, that the other policy refuses nothing for.
var becauseOf = map[string]string{
	"enabled":  notEnabled,
	"ordinary": "the kubelet runs a static Pod as its file says; give it an inline volume there",
	"absent": "the Pod has another volume of the name; name one that it does not have by the annotation " +
		names.AnnotationInjectVolume,
	"mounted": "each container that would mount it has something of its own at, above or below the path; " +
		"name another one by the annotation " + names.AnnotationInjectPath,
}

func falseCondition(
	pod *corev1.Pod, config *operatorv1alpha1.ListenerOperator,
	mutating admissionregistrationv1.MutatingAdmissionPolicySpec,
	validating admissionregistrationv1.ValidatingAdmissionPolicySpec,
) (string, error) {
	e := newEvaluator(pod, config)
	if firstFalse(e, validating.MatchConditions) == "" {
		firstFalse(e, validating.Variables)
		if refusal := e.refusal(validating.Validations); refusal != "" {
			return refusal, e.err
		}
	}
	name := firstFalse(e, mutating.MatchConditions)
	if name == "" {
		name = firstFalse(e, mutating.Variables)
	}
	if name == "" {
		return "the Pod is older than its annotation or what permits that: all conditions of the policy hold now", e.err
	}
	return cmp.Or(becauseOf[name], fmt.Sprintf("the condition %q of the policy is false", name)), e.err
}

func (w *Walk) withoutPolicy() string {
	kind := admissionregistrationv1.SchemeGroupVersion.WithKind(kindInjection)
	if _, served := Served(w.Client, &exposure.Kind{GroupVersionKind: kind}); !served {
		return "Kubernetes has no " + kindInjection + " before version 1.36; give the Pod an inline volume instead"
	}
	return fmt.Sprintf("the %s %s is not installed; an administrator applies injection.yaml of the operator's release",
		kindInjection, names.InjectionPolicy)
}

// injection follows the policies for annotated Pods, and their bindings, which only administrators may change. They may
// be missing unless injection is enabled.
func (w *Walk) injection(ctx context.Context, enabled bool) {
	objects, err := injection.Objects()
	w.Err = cmp.Or(w.Err, err)
	for _, want := range objects {
		f := check.Finding{Kind: want.GetObjectKind().GroupVersionKind().Kind, Name: want.GetName()}
		installed := reflect.New(reflect.TypeOf(want).Elem()).Interface().(client.Object)
		switch found := w.Read(ctx, f, installed); {
		case found == check.Missing && enabled:
			w.Add(f.Failed("", "does not exist, so annotations of Pods are not acted on, or not checked",
				remedyInjection))
		case found == check.Present && !equivalent(installed, want):
			w.Add(f.Failed("", "differs from the one of this version, and may change any new Pod",
				"Find out who has changed it. "+remedyInjection))
		case found == check.Present:
			w.Add(f.OK("is installed"))
		}
	}
}

// equivalent reports whether policies, or bindings, have the same spec, however their expressions are written:
// kustomize, for one, writes blank lines into them.
func equivalent(a, b client.Object) bool {
	specOfA, specOfB := specOf(a), specOf(b)
	if reflect.DeepEqual(specOfA, specOfB) {
		return true // without the parser, which takes long
	}
	rewrite(specOfA)
	rewrite(specOfB)
	return reflect.DeepEqual(specOfA, specOfB)
}

func specOf(policy client.Object) any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil {
		return err
	}
	return fields["spec"]
}

// rewrite replaces expressions of CEL by what the parser understands. It leaves alone what is none.
func rewrite(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			rewrite(element)
		}
	case map[string]any:
		for key, element := range value {
			if expression, ok := element.(string); ok && key == "expression" {
				value[key] = rewritten(expression)
			}
			rewrite(element)
		}
	}
}

func rewritten(expression string) string {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true))
	if err != nil {
		return expression
	}
	parsed, problems := p.Parse(common.NewTextSource(expression))
	if len(problems.GetErrors()) > 0 {
		return expression
	}
	text, err := parser.Unparse(parsed.Expr(), parsed.SourceInfo())
	if err != nil {
		return expression
	}
	return text
}

// evaluator evaluates expressions of admission policies about an object, as the API server did when it was created. It
// keeps the first error: after that, no expression is false.
type evaluator struct {
	env       *cel.Env
	values    map[string]any
	variables map[string]ref.Val
	err       error
}

func newEvaluator(object, params any) *evaluator {
	env, err := cel.NewEnv(
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true),
		ext.Strings(ext.StringsVersion(2)), ext.TwoVarComprehensions(), library.Regex(),
		library.Lists(library.ListsVersion(0)),
		cel.Variable("object", cel.DynType), cel.Variable("params", cel.DynType),
		cel.Variable("variables", cel.MapType(cel.StringType, cel.DynType)),
	)
	e := &evaluator{env: env, values: map[string]any{}, variables: map[string]ref.Val{}}
	e.values["variables"] = e.variables
	for name, o := range map[string]any{"object": object, "params": params} {
		content, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		e.values[name], err = content, cmp.Or(err, convertErr)
	}
	if err != nil {
		e.err = fmt.Errorf("preparing the evaluation of a policy: %w", err)
	}
	return e
}

// maxCost is the cost at which the API server stops, too.
const maxCost = 1_000_000

func (e *evaluator) eval(expression string) (value ref.Val) {
	if e.err != nil {
		return nil
	}
	var program cel.Program
	ast, issues := e.env.Compile(expression)
	if e.err = issues.Err(); e.err == nil {
		program, e.err = e.env.Program(ast, cel.CostLimit(maxCost))
	}
	if e.err != nil {
		e.err = fmt.Errorf("reading an expression: %w", e.err)
	} else if value, _, e.err = program.Eval(e.values); e.err != nil {
		e.err = fmt.Errorf("evaluating an expression: %w", e.err)
	}
	return value
}

// firstFalse evaluates conditions, or variables, which later expressions may use. It returns the name of the first that
// is false, or "".
func firstFalse[T admissionregistrationv1.MatchCondition | admissionregistrationv1.Variable](
	e *evaluator, all []T,
) (first string) {
	for _, named := range all {
		v := admissionregistrationv1.Variable(named)
		e.variables[v.Name] = e.eval(v.Expression)
		if e.variables[v.Name] == types.False && first == "" {
			first = v.Name
		}
	}
	return first
}

func (e *evaluator) refusal(validations []admissionregistrationv1.Validation) string {
	for _, v := range validations {
		if e.eval(v.Expression) == types.False {
			return v.Message
		}
	}
	return ""
}
