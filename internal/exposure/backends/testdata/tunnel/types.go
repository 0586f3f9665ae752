package tunnel

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Tunnel is the kind of the backend.
type Tunnel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitzero"`
}

// Spec is the host that a Tunnel leads to a Service.
type Spec struct {
	Host        string `json:"host"`
	ServiceName string `json:"serviceName"`
}

// Status is what the controller of Tunnels reports.
type Status struct {
	// Host is empty if it is the one of the Spec.
	Host string `json:"host,omitempty"`
	// Port is 0 as long as the Tunnel is not served.
	Port int32 `json:"port,omitempty"`
}

// TunnelList is a list of Tunnels.
type TunnelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Tunnel `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (t *Tunnel) DeepCopyObject() runtime.Object {
	c := *t
	t.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *TunnelList) DeepCopyObject() runtime.Object {
	c := &TunnelList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Tunnel))
	}
	return c
}
