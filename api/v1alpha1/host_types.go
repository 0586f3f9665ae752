package v1alpha1

// HostTemplate is a template of host names, with the placeholders {listener}, {port}, {namespace}, {className},
// {podName}, {podIndex} and {hash}, by which no two Listeners, or Listeners of two Pods, get the same host.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9.-]|[{](listener|port|namespace|className|podName|podIndex|hash)[}])+$')",message="may hold lower-case letters, digits, dots, hyphens, and the placeholders {listener}, {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}"
// +kubebuilder:validation:XValidation:rule="self.matches('[{]hash[}]([.]|$)') || self.matches('(^|[.])[^.{}]*[{]namespace[}][^.{}]*([.]|$)') && self.matches('(^|[.])[^.{}]*[{](listener|podName)[}][^.{}]*([.]|$)')",message="may give Listeners of different namespaces or Pods the same host; use {namespace}, and {listener} or {podName}, each as the only placeholder between two dots, as in {podName}.{namespace}, or end a part between two dots with {hash}, as in {podName}-{namespace}-{hash}"
type HostTemplate string

// Hostname publishes a name for each Listener of a class.
//
// +kubebuilder:validation:XValidation:rule="!self.template.contains('{port}')",message="template may not contain {port}: a Listener has one name for all its ports"
type Hostname struct {
	// template is the template of the name, with the placeholders {listener}, {namespace}, {className}, {podName},
	// {podIndex} and {hash}, which stands for 16 digits that depend on the namespace and the name of the Listener.
	// {podName} and {podIndex} require a Listener of a PersistentVolumeClaim that belongs to a single Pod. No two
	// Listeners, or Listeners of two Pods, may get the same name: the template contains {namespace}, and {listener} or
	// {podName}, each as the only placeholder between two dots; or a part between two dots ends with {hash}. A DNS
	// label that gets too long is shortened and ends with a hash.
	Template HostTemplate `json:"template"`
}

// AnnotationTemplate is a template of the value of an annotation, with the placeholders {listener}, {namespace},
// {className}, {podName}, {podIndex} and {hash}.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.matches('^([^{}]|[{](listener|namespace|className|podName|podIndex|hash)[}])*$')",message="may hold braces only in the placeholders {listener}, {namespace}, {className}, {podName}, {podIndex} and {hash}; use serviceAnnotations for text with other braces"
type AnnotationTemplate string
