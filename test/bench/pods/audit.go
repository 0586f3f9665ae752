package pods

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/bench/result"
)

// auditLog is the part of the API server's audit log that was written since its creation.
type auditLog struct {
	path   string
	offset int64
}

// auditFromNow returns the audit log from now on.
func (b *Bench) auditFromNow() (*auditLog, error) {
	info, err := os.Stat(b.cluster.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("finding the audit log: %w", err)
	}
	return &auditLog{b.cluster.AuditLog(), info.Size()}, nil
}

// writes returns the requests that create or change objects, except for those that only authorize something.
func (l *auditLog) writes() ([]auditv1.Event, error) { return l.requests(isWrite) }

// refusals returns the requests of kubelets that the node authorizer refused.
func (l *auditLog) refusals() ([]auditv1.Event, error) { return l.requests(isRefusal) }

// requests returns the finished requests that match.
func (l *auditLog) requests(match func(*auditv1.Event) bool) ([]auditv1.Event, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(l.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	var events []auditv1.Event
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil // a line without an end is still being written
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("parsing the audit log: %w", err)
		}
		if event.ObjectRef != nil && event.Stage == auditv1.StageResponseComplete && match(&event) {
			events = append(events, event)
		}
	}
}

// isWrite reports whether a request creates or changes an object, or would do so if it were not refused.
func isWrite(e *auditv1.Event) bool {
	return e.ObjectRef.Subresource != "token" &&
		slices.Contains([]string{"create", "update", "patch"}, e.Verb) && !strings.HasSuffix(e.ObjectRef.Resource, "reviews")
}

// isRefusal reports whether the node authorizer refused a request for what a kubelet mounts into a Pod.
func isRefusal(e *auditv1.Event) bool {
	return strings.HasPrefix(e.User.Username, nodeUser) && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden &&
		slices.Contains([]string{"configmaps", "persistentvolumeclaims"}, e.ObjectRef.Resource)
}

// nodeUser is what the user names of kubelets begin with; the name of the node follows.
const nodeUser = "system:node:"

// component returns which program sent a request.
func component(e *auditv1.Event) string {
	const accounts = "system:serviceaccount:"
	switch user := e.User.Username; {
	case user == accounts+names.Operator+":"+names.Operator:
		return "operator"
	case user == accounts+names.Operator+":"+names.NodeAgent:
		return "node agent"
	case strings.HasPrefix(user, nodeUser):
		return "kubelet"
	case user == "system:kube-scheduler":
		return "kube-scheduler"
	case user == "system:kube-controller-manager", strings.HasPrefix(user, accounts+"kube-system:"):
		return "kube-controller-manager"
	default:
		return "the creator of the Pod"
	}
}

// resourceOf returns the resource of a request, with a slash and the subresource if there is one.
func resourceOf(e *auditv1.Event) string {
	if e.ObjectRef.Subresource != "" {
		return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
	}
	return e.ObjectRef.Resource
}

// countWrites counts the writes for the objects of a variant in some periods. PersistentVolumes are not namespaced; no
// others are written in these periods.
func countWrites(events []auditv1.Event, v variant, pods int, periods []period) result.Writes {
	counts := map[result.Write]int{}
	for i := range events {
		e := &events[i]
		ours := e.ObjectRef.Namespace == v.namespace() || e.ObjectRef.Resource == "persistentvolumes"
		during := slices.ContainsFunc(periods, func(p period) bool { return p.contains(e.RequestReceivedTimestamp.Time) })
		if !ours || !during {
			continue
		}
		w := result.Write{Component: component(e), Verb: e.Verb, Resource: resourceOf(e)}
		if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusConflict {
			w.Verb += " refused"
		}
		counts[w]++
	}
	writes := result.Writes{Variant: v.name, Pods: pods}
	for w, count := range counts {
		w.Count = count
		writes.Counts = append(writes.Counts, w)
	}
	slices.SortFunc(writes.Counts, func(a, b result.Write) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return writes
}
