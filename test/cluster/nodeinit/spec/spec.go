// Package spec defines the data that package cluster and nodeinit, the first process of a simulated machine, exchange.
package spec

// ReadyFD is the file descriptor to which nodeinit writes Ready when the machine is prepared, and which it then closes.
const ReadyFD = 3

// Ready is the message on ReadyFD.
const Ready = "ready"

// Machine describes how nodeinit prepares its namespaces.
type Machine struct {
	// Hostname is empty for a machine that keeps the host's name.
	Hostname string `json:"hostname,omitempty"`
	// Mounts are bind mounts. Nil means that the machine shares the host's mount namespace, which is not changed.
	Mounts []Mount `json:"mounts,omitempty"`
	// Sysctls are written in order.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
}

// Mount is a bind mount of the directory Source on the directory Target.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Sysctl is a value for a file under /proc/sys.
type Sysctl struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}
