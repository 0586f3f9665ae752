package size

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/bench/memory"
	"github.com/listener-operator/listener-operator/test/bench/result"
)

const (
	// startTimeout is how long the API server may take to start, and the operator to serve its metrics.
	startTimeout = 2 * time.Minute
	// workTimeout is how long it may work.
	workTimeout = 40 * time.Minute
	// scrapePeriod is how often its metrics are read, as by Prometheus, and how long it must do nothing to count as
	// idle. The measurement does not include this time.
	scrapePeriod = 15 * time.Second
	// busy is the CPU time in a second above which it does something, in seconds.
	busy = 0.1
)

// measure runs the operator until it is idle, and stops it.
func (s *server) measure(ctx context.Context, program string) (r result.Run, err error) {
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := s.writeKubeconfig(kubeconfig); err != nil {
		return result.Run{}, err
	}
	services, err := s.existing(ctx, corev1.SchemeGroupVersion.WithKind("Service"))
	if err != nil {
		return result.Run{}, err
	}
	r.New = s.listeners + 1 - len(services) // there is also the Service of the API server
	_, before, err := s.requests(0)
	if err != nil {
		return result.Run{}, err
	}
	metrics, health, err := freeAddresses()
	if err != nil {
		return result.Run{}, err
	}
	log, err := os.Create(filepath.Join(s.dir, "operator.log"))
	if err != nil {
		return result.Run{}, fmt.Errorf("creating the operator's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, program, "--kubeconfig="+kubeconfig, "--metrics-bind-address="+metrics, "--health-probe-bind-address="+health,
		"--leader-elect=false")
	cmd.Env = append(os.Environ(), "OPERATOR_NAMESPACE="+names.Operator, "RELATED_IMAGE_NODE_AGENT=listener-operator:bench",
		"POD_NAME=bench", "POD_UID=bench")
	cmd.Stdout, cmd.Stderr = log, log
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return result.Run{}, fmt.Errorf("starting %s: %w", program, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- err
		cancel(fmt.Errorf("the operator has ended: %w", err))
	}()
	idle, processor, err := s.awaitIdle(ctx, cmd.Process.Pid, "https://"+metrics+"/metrics")
	if err != nil {
		output, _ := os.ReadFile(log.Name())
		return result.Run{}, errors.Join(fmt.Errorf("waiting for the operator to be idle: %w", err), context.Cause(ctx), cmd.Process.Kill(),
			fmt.Errorf("the end of its log:\n%s", tail(output)))
	}
	r.Seconds, r.Processor = idle.Sub(started).Seconds(), processor
	if r.Memory, err = memory.Of(cmd.Process.Pid); err != nil {
		return result.Run{}, err
	}
	if err := errors.Join(cmd.Process.Signal(unix.SIGTERM), <-ended); err != nil {
		return result.Run{}, fmt.Errorf("stopping the operator: %w", err)
	}
	r.Requests, _, err = s.requests(before)
	return r, err
}

// writeKubeconfig writes a kubeconfig with the operator's token.
func (s *server) writeKubeconfig(path string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData}
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{Token: s.token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "operator"}
	config.CurrentContext = "bench"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the operator's kubeconfig: %w", err)
	}
	return nil
}

// freeAddresses returns two addresses with free ports.
func freeAddresses() (string, string, error) {
	var addresses [2]string
	for i := range addresses {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
		if err != nil {
			return "", "", fmt.Errorf("looking for a free port: %w", err)
		}
		defer func() { _ = listener.Close() }()
		addresses[i] = listener.Addr().String()
	}
	return addresses[0], addresses[1], nil
}

// awaitIdle waits until the operator has reconciled every Listener and PodListeners object and is idle. It returns
// since when, and the CPU time that it had used until then, in seconds.
func (s *server) awaitIdle(ctx context.Context, pid int, url string) (since time.Time, processor float64, err error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the certificate is self-signed
	defer transport.CloseIdleConnections()
	server := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return time.Time{}, 0, fmt.Errorf("finding the operator's process: %w", err)
	}
	used, began := usage{}, time.Now()
	for {
		scraped := time.Now()
		if err := used.measure(ctx, process, scrapePeriod); err != nil {
			return time.Time{}, 0, err
		}
		now, err := s.work(ctx, server, url)
		switch {
		case err == nil && used.last.Before(scraped) && now.done(s.listeners):
			return used.last, used.untilLast, nil
		case err != nil && time.Since(began) > startTimeout:
			return time.Time{}, 0, err
		case time.Since(began) > workTimeout:
			return time.Time{}, 0, fmt.Errorf("it has reconciled %.0f Listeners and %.0f PodListeners, and has %.0f left in its queues", now.listeners, now.podListeners, now.open)
		}
	}
}

// usage is how much CPU time a process has used, in seconds.
type usage struct {
	all float64
	// last is when it last did something, and untilLast what it had used then.
	last      time.Time
	untilLast float64
}

// measure measures for a period.
func (u *usage) measure(ctx context.Context, process procfs.Proc, period time.Duration) error {
	for began := time.Now(); time.Since(began) < period; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		stat, err := process.Stat()
		if err != nil {
			return fmt.Errorf("reading the operator's CPU time: %w", err)
		}
		if stat.CPUTime()-u.all > busy {
			u.last, u.untilLast = time.Now(), stat.CPUTime()
		}
		u.all = stat.CPUTime()
	}
	return nil
}

// work is what the operator's metrics report: the numbers of reconciliations, and of objects that are queued or being
// reconciled.
type work struct{ listeners, podListeners, open float64 }

// done reports whether this number of Listeners is reconciled, and nothing is left to do.
func (w work) done(listeners int) bool {
	return w.listeners >= float64(listeners) && w.podListeners >= float64(listeners) && w.open == 0
}

func (s *server) work(ctx context.Context, server *http.Client, url string) (work, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return work{}, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := server.Do(request)
	if err != nil {
		return work{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return work{}, fmt.Errorf("reading the operator's metrics: status %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return work{}, fmt.Errorf("parsing the operator's metrics: %w", err)
	}
	var w work
	for _, m := range families["controller_runtime_reconcile_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			switch {
			case l.GetName() != "controller":
			case l.GetValue() == "listener":
				w.listeners += m.GetCounter().GetValue()
			case l.GetValue() == "podlisteners":
				w.podListeners += m.GetCounter().GetValue()
			}
		}
	}
	for _, name := range []string{"workqueue_depth", "controller_runtime_active_workers"} {
		for _, m := range families[name].GetMetric() {
			w.open += m.GetGauge().GetValue()
		}
	}
	return w, nil
}

// requests counts the operator's requests in the audit log by verb, and those for events as "events". It ignores the
// first skip entries, and the requests by which the operator authorizes the bench to read its metrics. It also returns
// the number of all entries.
func (s *server) requests(skip int) (counts map[string]int, entries int, err error) {
	file, err := os.Open(s.auditLog())
	if err != nil {
		return nil, 0, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	counts = map[string]int{}
	for decoder := json.NewDecoder(file); ; entries++ {
		var event auditv1.Event
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return counts, entries, nil
		} else if err != nil {
			return nil, 0, fmt.Errorf("reading the audit log: %w", err)
		}
		switch ref := event.ObjectRef; {
		case entries < skip, ref == nil, ref.Resource == "tokenreviews", ref.Resource == "subjectaccessreviews":
		case ref.Resource == "events":
			counts["events"]++
		default:
			counts[event.Verb]++
		}
	}
}

// tail returns the last lines of a log.
func tail(log []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], []byte("\n"))
}
