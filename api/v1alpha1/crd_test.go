package v1alpha1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// field is the part of the schema of a field that the contract fixes. Zero values other than that of Type mean that the
// schema does not set the property.
type field struct {
	Type     string
	Items    string // the type of an array's items, or of a map's values
	Nullable bool
	Default  string // JSON
	Enum     string // JSON
	Pattern  string // where the contract has an enum with null among its values
	Required string // JSON, the required fields of an object
	ListType string
	Preserve bool // x-kubernetes-preserve-unknown-fields
	Ours     bool // in addition to the contract
}

// contract holds the tables of the contract (contract: API group and CRDs).
var contract = map[string]struct {
	scope  string
	names  apiextensionsv1.CustomResourceDefinitionNames
	status bool
	fields map[string]field
}{
	"listenerclasses": {
		scope: "Cluster",
		names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "listenerclasses", Singular: "listenerclass", Kind: "ListenerClass"},
		fields: map[string]field{
			".":                                                       {Type: "object", Required: `["spec"]`},
			".spec":                                                   {Type: "object", Required: `["serviceType"]`},
			".spec.serviceType":                                       {Type: "string", Enum: `["NodePort","LoadBalancer","ClusterIP"]`},
			".spec.ingress":                                           {Type: "object", Required: `["className","hostTemplate"]`, Ours: true},
			".spec.ingress.className":                                 {Type: "string", Ours: true},
			".spec.ingress.hostTemplate":                              {Type: "string", Ours: true},
			".spec.ingress.path":                                      {Type: "string", Default: `"/"`, Ours: true},
			".spec.ingress.tls":                                       {Type: "object", Ours: true},
			".spec.ingress.tls.secretName":                            {Type: "string", Ours: true},
			".spec.ingress.annotations":                               {Type: "object", Items: "string", Ours: true},
			".spec.ingress.ports":                                     {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.gateway":                                           {Type: "object", Required: `["kind","parentRefs"]`, Ours: true},
			".spec.gateway.kind":                                      {Type: "string", Enum: `["TLSRoute","HTTPRoute","TCPRoute","UDPRoute"]`, Ours: true},
			".spec.gateway.parentRefs":                                {Type: "array", Items: "object", ListType: "atomic", Ours: true},
			".spec.gateway.parentRefs[]":                              {Type: "object", Required: `["name","namespace"]`, Ours: true},
			".spec.gateway.parentRefs[].namespace":                    {Type: "string", Ours: true},
			".spec.gateway.parentRefs[].name":                         {Type: "string", Ours: true},
			".spec.gateway.parentRefs[].sectionName":                  {Type: "string", Ours: true},
			".spec.gateway.parentRefs[].port":                         {Type: "integer", Ours: true},
			".spec.gateway.hostTemplate":                              {Type: "string", Ours: true},
			".spec.gateway.portRange":                                 {Type: "string", Ours: true},
			".spec.advertise":                                         {Type: "object", Ours: true},
			".spec.advertise.addressTemplate":                         {Type: "string", Ours: true},
			".spec.advertise.portTemplate":                            {Type: "string", Ours: true},
			".spec.hostPort":                                          {Type: "object", Ours: true},
			".spec.pod":                                               {Type: "object", Ours: true},
			".spec.loadBalancerAllocateNodePorts":                     {Type: "boolean", Default: `true`},
			".spec.loadBalancerClass":                                 {Type: "string", Nullable: true},
			".spec.serviceAnnotations":                                {Type: "object", Items: "string", Default: `{}`},
			".spec.serviceExternalTrafficPolicy":                      {Type: "string", Nullable: true, Pattern: `^(Cluster|Local)$`},
			".spec.preferredAddressType":                              {Type: "string", Default: `"HostnameConservative"`, Enum: `["Hostname","IP","HostnameConservative"]`},
			".spec.pinnedNodePorts":                                   {Type: "boolean", Default: `false`},
			".spec.serviceOverrides":                                  {Type: "object", Preserve: true, Default: `{"apiVersion":"v1","kind":"Service","metadata":{}}`},
			".spec.listenerOverrides":                                 {Type: "object", Ours: true},
			".spec.listenerOverrides.allowed":                         {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.allowedNamespaces":                                 {Type: "object", Ours: true},
			".spec.allowedNamespaces.names":                           {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.allowedNamespaces.selector":                        {Type: "object", Ours: true},
			".spec.allowedNamespaces.selector.matchExpressions":       {Type: "array", Items: "object", ListType: "atomic", Ours: true},
			".spec.allowedNamespaces.selector.matchExpressions[]":     {Type: "object", Required: `["key","operator"]`, Ours: true},
			".spec.allowedNamespaces.selector.matchExpressions[].key": {Type: "string", Ours: true},
			".spec.allowedNamespaces.selector.matchExpressions[].operator": {Type: "string", Ours: true},
			".spec.allowedNamespaces.selector.matchExpressions[].values":   {Type: "array", Items: "string", ListType: "atomic", Ours: true},
			".spec.allowedNamespaces.selector.matchLabels":                 {Type: "object", Items: "string", Ours: true},
			".spec.allowedClients":                            {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.ports":                                     {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.nodePorts":                                 {Type: "object", Ours: true},
			".spec.nodePorts.maxPortsPerNamespace":            {Type: "integer", Ours: true},
			".spec.nodePorts.range":                           {Type: "string", Ours: true},
			".spec.clusterIPs":                                {Type: "object", Required: `["cidrs"]`, Ours: true},
			".spec.clusterIPs.cidrs":                          {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.nodePorts.target":                          {Type: "string", Enum: `["Same"]`, Ours: true},
			".spec.onAddressChange":                           {Type: "string", Enum: `["Rewrite","Restart"]`, Ours: true},
			".spec.certificates":                              {Type: "object", Required: `["issuerRef"]`, Ours: true},
			".spec.certificates.issuerRef":                    {Type: "object", Required: `["name"]`, Ours: true},
			".spec.certificates.issuerRef.group":              {Type: "string", Default: `"cert-manager.io"`, Ours: true},
			".spec.certificates.issuerRef.kind":               {Type: "string", Default: `"Issuer"`, Ours: true},
			".spec.certificates.issuerRef.name":               {Type: "string", Ours: true},
			".spec.certificates.usages":                       {Type: "array", Items: "string", ListType: "set", Default: `["server"]`, Ours: true},
			".spec.hostname":                                  {Type: "object", Required: `["template"]`, Ours: true},
			".spec.hostname.template":                         {Type: "string", Ours: true},
			".spec.hostname.records":                          {Type: "string", Default: `"Annotation"`, Enum: `["Annotation","DNSEndpoint","None"]`, Ours: true},
			".spec.hostname.ttlSeconds":                       {Type: "integer", Ours: true},
			".spec.serviceAnnotationTemplates":                {Type: "object", Items: "string", Ours: true},
			".spec.loadBalancer":                              {Type: "object", Required: `["sharing"]`, Ours: true},
			".spec.loadBalancer.sharing":                      {Type: "object", Required: `["portRange"]`, Ours: true},
			".spec.loadBalancer.sharing.maxPortsPerNamespace": {Type: "integer", Ours: true},
			".spec.loadBalancer.sharing.portRange":            {Type: "string", Ours: true},
			".spec.nodeAddresses":                             {Type: "object", Ours: true},
			".spec.nodeAddresses.types":                       {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.nodeAddresses.cidrs":                       {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.ipFamilies":                                {Type: "array", Items: "string", ListType: "atomic", Ours: true},
			".spec.ipFamilyPolicy":                            {Type: "string", Enum: `["SingleStack","PreferDualStack","RequireDualStack"]`, Ours: true},
			".spec.inlineVolumes":                             {Type: "string", Enum: `["Allowed","Forbidden"]`, Ours: true},
			".spec.maxPorts":                                  {Type: "integer", Ours: true},
			".spec.notReadyAddressPolicy":                     {Type: "string", Enum: `["AsRequested","PerPodOnly"]`, Ours: true},
			".spec.pinning":                                   {Type: "object", Required: `["policy"]`, Ours: true},
			".spec.pinning.policy":                            {Type: "string", Enum: `["Required","Preferred"]`, Ours: true},
			".spec.keepFor":                                   {Type: "string", Ours: true},
			".spec.pinning.releaseAfter":                      {Type: "string", Ours: true},
			".spec.route":                                     {Type: "object", Ours: true},
			".spec.route.termination": {
				Type: "string", Default: `"passthrough"`, Enum: `["passthrough","edge","reencrypt","none"]`, Ours: true,
			},
			".spec.route.insecureEdgeTerminationPolicy": {Type: "string", Enum: `["None","Allow","Redirect"]`, Ours: true},
			".spec.route.hostTemplate":                  {Type: "string", Ours: true},
			".spec.route.subdomainTemplate":             {Type: "string", Ours: true},
			".spec.route.labels":                        {Type: "object", Items: "string", Ours: true},
			".spec.route.annotations":                   {Type: "object", Items: "string", Ours: true},
			".spec.route.certificateSecretName":         {Type: "string", Ours: true},
			".spec.route.destinationCACertificate":      {Type: "string", Ours: true},
			".spec.route.wildcardPolicy":                {Type: "string", Enum: `["None","Subdomain"]`, Ours: true},
			".spec.route.ports":                         {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.route.routers":                       {Type: "array", Items: "string", ListType: "set", Ours: true},
		},
	},
	"listeners": {
		scope:  "Namespaced",
		names:  apiextensionsv1.CustomResourceDefinitionNames{Plural: "listeners", Singular: "listener", Kind: "Listener"},
		status: true,
		fields: map[string]field{
			".":                                        {Type: "object", Required: `["spec"]`},
			".spec":                                    {Type: "object"},
			".spec.className":                          {Type: "string", Nullable: true},
			".spec.extraPodSelectorLabels":             {Type: "object", Items: "string", Default: `{}`},
			".spec.ports":                              {Type: "array", Items: "object", Nullable: true, ListType: "atomic"},
			".spec.ports[]":                            {Type: "object", Required: `["name","port"]`},
			".spec.ports[].name":                       {Type: "string"},
			".spec.ports[].port":                       {Type: "integer"},
			".spec.ports[].protocol":                   {Type: "string", Nullable: true},
			".spec.publishNotReadyAddresses":           {Type: "boolean", Nullable: true, Default: `true`},
			".spec.allowedClients":                     {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.objectOverrides":                    {Type: "array", Items: "object", Default: `[]`},
			".spec.objectOverrides[]":                  {Type: "object", Preserve: true},
			".status":                                  {Type: "object", Nullable: true},
			".status.serviceName":                      {Type: "string", Nullable: true},
			".status.targets":                          {Type: "array", Items: "object", ListType: "atomic", Ours: true},
			".status.targets[]":                        {Type: "object", Required: `["address","addressType","advertised","ports"]`, Ours: true},
			".status.targets[].address":                {Type: "string", Ours: true},
			".status.targets[].addressType":            {Type: "string", Enum: `["Hostname","IP"]`, Ours: true},
			".status.targets[].ports":                  {Type: "object", Items: "integer", Ours: true},
			".status.targets[].nodeName":               {Type: "string", Ours: true},
			".status.targets[].advertised":             {Type: "object", Required: `["address","addressType","ports"]`, Ours: true},
			".status.targets[].advertised.address":     {Type: "string", Ours: true},
			".status.targets[].advertised.addressType": {Type: "string", Enum: `["Hostname","IP"]`, Ours: true},
			".status.targets[].advertised.ports":       {Type: "object", Items: "integer", Ours: true},
			".status.ingressAddresses":                 {Type: "array", Items: "object", Nullable: true, ListType: "atomic"},
			".status.ingressAddresses[]":               {Type: "object", Required: `["address","addressType","ports"]`},
			".status.ingressAddresses[].address":       {Type: "string"},
			".status.ingressAddresses[].addressType":   {Type: "string", Enum: `["Hostname","IP"]`},
			".status.ingressAddresses[].ports":         {Type: "object", Items: "integer"},
			".status.nodePorts":                        {Type: "object", Items: "integer", Nullable: true},
			".status.endpoints":                        {Type: "object", Items: "string", Ours: true},
			".status.lastNodePorts":                    {Type: "object", Items: "integer", Ours: true},
			".status.sharedPorts":                      {Type: "object", Items: "integer", Ours: true},
			".status.unusedNodes":                      {Type: "array", Items: "string", ListType: "atomic", Ours: true},
			".status.unusedSince":                      {Type: "string", Ours: true},
			".status.ipFamilies":                       {Type: "array", Items: "string", ListType: "atomic", Ours: true},
			".status.keptClassName":                    {Type: "string", Ours: true},
			".status.summary":                          {Type: "object", Ours: true},
			".status.summary.address":                  {Type: "string", Ours: true},
			".status.summary.reason":                   {Type: "string", Ours: true},
			".status.summary.nodes":                    {Type: "string", Ours: true},
			".status.summary.waitingFor":               {Type: "string", Ours: true},
			".status.waitingFor":                       {Type: "object", Required: `["kind","since"]`, Ours: true},
			".status.waitingFor.kind": {
				Type: "string", Ours: true,
				Enum: `["NodePort","SharedPort","ClusterIP","Host","AdvertisedAddress","GatewayListener","GatewayPort"]`,
			},
			".status.waitingFor.value":          {Type: "string", Ours: true},
			".status.waitingFor.holder":         {Type: "string", Ours: true},
			".status.waitingFor.namespaceLimit": {Type: "boolean", Ours: true},
			".status.waitingFor.since":          {Type: "string", Ours: true},
			".status.observedGeneration":        {Type: "integer", Ours: true},
			".status.conditions":                {Type: "array", Items: "object", ListType: "map", Ours: true},
		},
	},
	"podlisteners": {
		scope: "Namespaced",
		names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "podlisteners", Singular: "podlisteners", Kind: "PodListeners"},
		fields: map[string]field{
			".":                                    {Type: "object", Required: `["spec"]`},
			".spec":                                {Type: "object", Required: `["listeners"]`},
			".spec.nodeName":                       {Type: "string", Ours: true},
			".spec.summary":                        {Type: "string", Ours: true},
			".spec.startAddresses":                 {Type: "object", Items: "array", Ours: true},
			".spec.listeners":                      {Type: "object", Items: "object"},
			".spec.restartOnChange":                {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.copies":                         {Type: "array", Items: "string", ListType: "set", Ours: true},
			".spec.listeners{}":                    {Type: "object", Required: `["scope"]`},
			".spec.listeners{}.scope":              {Type: "string", Enum: `["Node","Cluster"]`},
			".spec.listeners{}.ingressAddresses":   {Type: "array", Items: "object", Nullable: true, ListType: "atomic"},
			".spec.listeners{}.ingressAddresses[]": {Type: "object", Required: `["address","addressType","ports"]`},
			".spec.listeners{}.ingressAddresses[].address":     {Type: "string"},
			".spec.listeners{}.ingressAddresses[].addressType": {Type: "string", Enum: `["Hostname","IP"]`},
			".spec.listeners{}.ingressAddresses[].ports":       {Type: "object", Items: "integer"},
			".spec.listeners{}.persistentVolumeName":           {Type: "string", Ours: true},
			".spec.listeners{}.listenerName":                   {Type: "string", Ours: true},
		},
	},
}

func TestCRDsMatchTheContract(t *testing.T) {
	for plural, want := range contract {
		t.Run(plural, func(t *testing.T) {
			crd := readCRD(t, plural)
			crd.Spec.Names.ListKind, crd.Spec.Names.ShortNames, crd.Spec.Names.Categories = "", nil, nil
			check.Equal(t, "names", want.names, crd.Spec.Names)
			if string(crd.Spec.Scope) != want.scope || crd.Spec.Group != "listeners.stackable.tech" {
				t.Errorf("got scope %s of group %s", crd.Spec.Scope, crd.Spec.Group)
			}
			if len(crd.Spec.Versions) != 1 {
				t.Fatalf("got %d versions, want one", len(crd.Spec.Versions))
			}
			version := crd.Spec.Versions[0]
			if version.Name != "v1alpha1" || !version.Served || !version.Storage {
				t.Errorf("got version %s, served %t, stored %t", version.Name, version.Served, version.Storage)
			}
			if got := version.Subresources != nil && version.Subresources.Status != nil; got != want.status {
				t.Errorf("status subresource: got %t, want %t", got, want.status)
			}
			got := map[string]field{}
			collect(got, "", version.Schema.OpenAPIV3Schema)
			for path, f := range got {
				f.Ours = want.fields[path].Ours
				got[path] = f
			}
			check.Equal(t, "fields", want.fields, got)
		})
	}
}

// Short names, columns and selectable fields are not part of the contract, but users rely on them.
func TestCRDsHaveShortNamesColumnsAndSelectableFields(t *testing.T) {
	for plural, want := range map[string]struct {
		short   string
		columns map[string]string
		selects []apiextensionsv1.SelectableField
	}{
		"listenerclasses": {short: "lsnclass", columns: map[string]string{
			"Service Type": ".spec.serviceType", "Pinned": ".spec.pinnedNodePorts", "Pinning": ".spec.pinning.policy", "Address Type": ".spec.preferredAddressType",
			"Age": ".metadata.creationTimestamp",
		}},
		"listeners": {short: "lsn", columns: map[string]string{
			"Address": ".status.summary.address", "Ready": `.status.conditions[?(@.type=="Ready")].status`, "Reason": ".status.summary.reason",
			"Class": ".spec.className", "Age": ".metadata.creationTimestamp",
			"Pod": `.metadata.labels['statefulset\.kubernetes\.io/pod-name']`, "Nodes": ".status.summary.nodes",
			"Waiting For": ".status.summary.waitingFor",
		}},
		"podlisteners": {
			short: "podlsn",
			columns: map[string]string{
				"Pod": ".metadata.ownerReferences[0].name", "Node": ".spec.nodeName", "Addresses": ".spec.summary",
				"Age": ".metadata.creationTimestamp",
			},
			selects: []apiextensionsv1.SelectableField{{JSONPath: ".spec.nodeName"}},
		},
	} {
		t.Run(plural, func(t *testing.T) {
			crd := readCRD(t, plural)
			check.Equal(t, "short names", []string{want.short}, crd.Spec.Names.ShortNames)
			check.Equal(t, "categories", []string{"listener-operator"}, crd.Spec.Names.Categories)
			columns := map[string]string{}
			for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
				columns[c.Name] = c.JSONPath
			}
			check.Equal(t, "columns", want.columns, columns)
			check.Equal(t, "selectable fields", want.selects, crd.Spec.Versions[0].SelectableFields)
		})
	}
}

func readCRD(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "listeners.stackable.tech_"+plural+".yaml"))
	check.Must(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	check.Must(t, yaml.UnmarshalStrict(raw, crd))
	return crd
}

// collect adds the field at path and those below it, except those of metav1.Condition.
func collect(fields map[string]field, path string, s *apiextensionsv1.JSONSchemaProps) {
	key := path
	if key == "" {
		key = "."
	}
	fields[key] = describe(s)
	if path == ".status.conditions" {
		return
	}
	for name, property := range s.Properties {
		if path == "" && name != "spec" && name != "status" {
			continue
		}
		collect(fields, path+"."+name, &property)
	}
	if s.Items != nil && s.Items.Schema.Type == "object" {
		collect(fields, path+"[]", s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema.Type == "object" {
		collect(fields, path+"{}", s.AdditionalProperties.Schema)
	}
}

func describe(s *apiextensionsv1.JSONSchemaProps) field {
	f := field{
		Type:     s.Type,
		Nullable: s.Nullable,
		Required: encode(s.Required),
		Enum:     encode(s.Enum),
		Pattern:  s.Pattern,
		Preserve: s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields,
	}
	if s.Default != nil {
		f.Default = compact(s.Default.Raw)
	}
	if s.XListType != nil {
		f.ListType = *s.XListType
	}
	switch {
	case s.Items != nil:
		f.Items = s.Items.Schema.Type
	case s.AdditionalProperties != nil:
		f.Items = s.AdditionalProperties.Schema.Type
	}
	return f
}

func encode[T any](list []T) string {
	if len(list) == 0 {
		return ""
	}
	raw, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// compact sorts the keys of a JSON value and removes white space.
func compact(raw []byte) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(sorted)
}
