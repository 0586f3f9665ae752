package v1alpha1

// HostTemplate is a template of host names, with the placeholders {listener}, {port}, {namespace}, {className},
// {podName}, {podIndex} and {hash}, by which no two Listeners, or Listeners of two Pods, get the same host.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9.-]|[{](listener|port|namespace|className|podName|podIndex|hash)[}])+$')",message="may hold lower-case letters, digits, dots, hyphens, and the placeholders {listener}, {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}"
// +kubebuilder:validation:XValidation:rule="self.matches('[{]hash[}]([.]|$)') || self.matches('(^|[.])[^.{}]*[{]namespace[}][^.{}]*([.]|$)') && self.matches('(^|[.])[^.{}]*[{](listener|podName)[}][^.{}]*([.]|$)')",message="may give Listeners of different namespaces or Pods the same host; use {namespace}, and {listener} or {podName}, each as the only placeholder between two dots, as in {podName}.{namespace}, or end a part between two dots with {hash}, as in {podName}-{namespace}-{hash}"
type HostTemplate string
