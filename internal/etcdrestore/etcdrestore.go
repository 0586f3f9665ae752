// Package etcdrestore detects that etcd was restored from a backup. Resource versions then go back, and the API server
// silently leaves new changes out of a watch until their versions have caught up with the one that it starts from.
//
// It must compare no resource versions but those of one resource, which are ordered (https://kep.k8s.io/5504).
package etcdrestore

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/transport"
)

// metadataOnly requests lists without the contents of objects.
const metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// Detect returns a wrapper for the requests of a client. Before each watch that starts from a resource version it reads
// the current one, by a list of one object. If that is the lower one, it calls report with what it found, and returns
// the error of an expired version, upon which informers list again. Restoring etcd ends all watches.
//
// The price is one small request for each start of a watch, which lasts for several minutes.
func Detect(report func(error)) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &detector{next: next, report: report} }
}

type detector struct {
	next   http.RoundTripper
	report func(error)
}

func (d *detector) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	version := query.Get("resourceVersion")
	if query.Get("watch") != "true" || version == "" || version == "0" {
		return d.next.RoundTrip(request)
	}
	response, err := d.next.RoundTrip(listOne(request))
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err // the client repeats the watch as if this was its answer
	}
	current, err := versionOf(response)
	if err != nil {
		return nil, fmt.Errorf("reading the resource version of %s: %w", request.URL.Path, err)
	}
	if order, err := resourceversion.CompareResourceVersion(current, version); err != nil || order >= 0 {
		return d.next.RoundTrip(request) // an API server with other versions than Kubernetes' cannot be checked
	}
	found := fmt.Errorf("the resource version of %s went back from %s to %s: etcd was restored from a backup",
		request.URL.Path, version, current)
	d.report(found)
	return nil, apierrors.NewResourceExpired(found.Error())
}

// listOne returns the request for a list of one object of what a request watches. It costs the API server the reading
// of one object, because it has no selector but a name, without which a client may be forbidden to list.
func listOne(watch *http.Request) *http.Request {
	list, query := watch.Clone(watch.Context()), url.Values{"limit": {"1"}}
	if name := watch.URL.Query().Get("fieldSelector"); strings.HasPrefix(name, "metadata.name=") {
		query.Set("fieldSelector", name)
	}
	list.URL.RawQuery = query.Encode()
	list.Header.Set("Accept", metadataOnly)
	return list
}

func versionOf(response *http.Response) (string, error) {
	var list metav1.PartialObjectMetadataList
	err := json.NewDecoder(response.Body).Decode(&list)
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection is used again
	_ = response.Body.Close()
	return list.ResourceVersion, err
}
