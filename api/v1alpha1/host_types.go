package v1alpha1

// HostTemplate is a template of host names, with the placeholders {listener}, {port}, {namespace}, {className},
// {podName}, {podIndex} and {hash}, by which no two Listeners, or Listeners of two Pods, get the same host.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9.-]|[{](listener|port|namespace|className|podName|podIndex|hash)[}])+$')",message="may hold lower-case letters, digits, dots, hyphens, and the placeholders {listener}, {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}"
// +kubebuilder:validation:XValidation:rule="self.matches('[{]hash[}]([.]|$)') || self.matches('(^|[.])[^.{}]*[{]namespace[}][^.{}]*([.]|$)') && self.matches('(^|[.])[^.{}]*[{](listener|podName)[}][^.{}]*([.]|$)')",message="may give Listeners of different namespaces or Pods the same host; use {namespace}, and {listener} or {podName}, each as the only placeholder between two dots, as in {podName}.{namespace}, or end a part between two dots with {hash}, as in {podName}-{namespace}-{hash}"
type HostTemplate string

// HostnameRecords is how DNS learns where the names of Listeners lead: Annotation, DNSEndpoint or None.
//
// +kubebuilder:validation:Enum=Annotation;DNSEndpoint;None
type HostnameRecords string

const (
	// HostnameRecordsAnnotation has external-dns let the name lead to what the Service has, by its annotations.
	HostnameRecordsAnnotation HostnameRecords = "Annotation"
	// HostnameRecordsDNSEndpoint has external-dns write the records in a DNSEndpoint.
	HostnameRecordsDNSEndpoint HostnameRecords = "DNSEndpoint"
	// HostnameRecordsNone leaves the records to others, who read them from the status.
	HostnameRecordsNone HostnameRecords = "None"
)

// DefaultTTLSeconds is the default of ttlSeconds of a Hostname: clients find a Pod again a minute after it moved.
const DefaultTTLSeconds = 60

// Hostname publishes a name for each Listener of a class.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSeconds) || self.records != 'Annotation'",message="ttlSeconds needs records DNSEndpoint or None: with Annotation, set the annotation of external-dns for the TTL in serviceAnnotations"
// +kubebuilder:validation:XValidation:rule="!self.template.contains('{port}')",message="template may not contain {port}: a Listener has one name for all its ports"
type Hostname struct {
	// template is the template of the name, with the placeholders {listener}, {namespace}, {className}, {podName},
	// {podIndex} and {hash}, which stands for 16 digits that depend on the namespace and the name of the Listener.
	// {podName} and {podIndex} require a Listener of a PersistentVolumeClaim that belongs to a single Pod. No two
	// Listeners, or Listeners of two Pods, may get the same name: the template contains {namespace}, and {listener} or
	// {podName}, each as the only placeholder between two dots; or a part between two dots ends with {hash}. A DNS
	// label that gets too long is shortened and ends with a hash.
	Template HostTemplate `json:"template"`

	// records states how DNS learns where the name leads. Annotation: by annotations of the Service, external-dns lets
	// it lead to the addresses of the Service, which are published after the name. DNSEndpoint: in an object of this
	// kind for each Listener, external-dns finds the addresses of the Listener alone, such as those of the nodes that
	// its Pods are on. None: others write the records, for example those of kubectl listener get --output zone. With
	// DNSEndpoint and None, the name is published alone, and what it leads to is in targets of the status. Defaults to
	// Annotation.
	// +optional
	// +kubebuilder:default=Annotation
	Records HostnameRecords `json:"records,omitempty"`

	// ttlSeconds is how long clients may remember, in seconds, where the name leads. Requires records DNSEndpoint or
	// None. Defaults to 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TTLSeconds *int32 `json:"ttlSeconds,omitempty"`
}

// Annotated reports whether the name is published before the addresses of the Service, whose annotations it is in. A
// nil Hostname is none.
func (h *Hostname) Annotated() bool {
	return h != nil && (h.Records == "" || h.Records == HostnameRecordsAnnotation)
}

// AnnotationTemplate is a template of the value of an annotation, with the placeholders {listener}, {namespace},
// {className}, {podName}, {podIndex} and {hash}.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.matches('^([^{}]|[{](listener|namespace|className|podName|podIndex|hash)[}])*$')",message="may hold braces only in the placeholders {listener}, {namespace}, {className}, {podName}, {podIndex} and {hash}; use serviceAnnotations for text with other braces"
type AnnotationTemplate string
