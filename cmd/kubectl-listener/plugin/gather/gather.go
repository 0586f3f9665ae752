// Package gather has the command `kubectl listener gather`, which collects what helps to find the cause of a problem in
// another place. It must never read a Secret, and never write what may be one: each object goes through clean.
package gather

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/version"
)

func NewCommand(e *command.Environment) *cobra.Command {
	output, since, sinceTime := "listener-gather.tar.gz", time.Duration(0), time.Time{}
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Collect what others need to find the cause of a problem",
		Long: `Collect what others need to find the cause of a problem: the objects that concern the listener operator, Listeners and
their Pods, events about them, and the logs of the operator and the node agents.

The command reads no Secrets and no ConfigMaps. From what it reads, it removes what may be secret: the values of
environment variables, the commands of Pods other than the operator's, certificates of Routes, and the values of
annotations that neither the operator nor the plugin uses. Names of objects, hosts and IP addresses stay. Look at the
result before you send it.

The command reads the whole cluster or, if you may not, the namespace. It prints what it could not read, and fails only
if it could read nothing.

The result has the layout of oc adm must-gather. doctor --from and why --from read it.`,
		Example: `  # Write listener-gather.tar.gz
  kubectl listener gather

  # Write a directory, and examine it
  kubectl listener gather --output gathered
  kubectl listener doctor --from gathered`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since < 0 {
				return fmt.Errorf("--since %s: a duration must not be negative", since)
			}
			if since > 0 {
				sinceTime = time.Now().Add(-since)
			}
			return gather(cmd.Context(), e, output, sinceTime)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output,
		"Where to write: a new or empty directory, or a new archive if the name ends in .tar.gz.")
	cmd.Flags().DurationVar(&since, "since", 0,
		"Gather only lines of logs that are newer than this duration, such as 2h.")
	cmd.Flags().TimeVar(&sinceTime, "since-time", time.Time{}, []string{time.RFC3339},
		"Gather only lines of logs after this time, as in RFC 3339.")
	cmd.MarkFlagsMutuallyExclusive("since", "since-time")
	return cmd
}

type gatherer struct {
	*command.Environment
	client   client.Client
	api      *kubernetes.Clientset // for logs, and what the cluster serves
	logsFrom time.Time
	add      func(name string, content []byte) error
	// namespace is read if the user may not read all.
	namespace string
	index     source.Index
	// size is what was written, in bytes, and logs how much of it is logs.
	size, logs int

	// What was found in lists, on which later ones depend.
	operators sets.Set[string]    // namespaces of operators
	found     sets.Set[[3]string] // what lists remember: kinds, namespaces and names
	written   sets.Set[string]    // names of files
	uids      sets.Set[types.UID] // of all objects
	own       []*corev1.Pod       // Pods of operators and node agents
}

// gather gathers, and writes the result to a directory or an archive. Logs begin at a time, or if it is zero, anywhere.
func gather(ctx context.Context, e *command.Environment, output string, logsFrom time.Time) error {
	g := &gatherer{
		Environment: e, logsFrom: logsFrom,
		operators: sets.Set[string]{}, found: sets.Set[[3]string]{}, written: sets.Set[string]{},
		uids: sets.Set[types.UID]{},
	}
	if err := g.connect(); err != nil {
		return err
	}
	if err := g.to(output, func() error { return errors.Join(g.collect(ctx), ctx.Err()) }); err != nil {
		return err
	}
	for _, missing := range g.index.Missing {
		fmt.Fprintln(e.Out, command.Mark(check.Unknown), command.Printable(missing))
	}
	if g.index.Objects == 0 {
		return errors.New("nothing could be gathered")
	}
	fmt.Fprintf(e.Out, "Wrote %d objects to %s. Look at it before you send it: it contains no Secrets, but names and "+
		"addresses.\n", g.index.Objects, output)
	return nil
}

func (g *gatherer) connect() error {
	config, err := g.Config()
	if err != nil {
		return err
	}
	if g.api, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	if g.client, err = g.Client(); err != nil {
		return err
	}
	g.namespace, err = g.Namespace()
	return err
}

// collect collects everything. The error is of writing, or of a cluster that does not respond.
func (g *gatherer) collect(ctx context.Context) error {
	server, err := g.api.ServerVersion()
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	g.index.Plugin, g.index.Server = version.Version, server.GitVersion
	served := memory.NewMemCacheClientWithContext(g.api)
	_, _, incomplete := served.ServerGroupsAndResourcesWithContext(ctx)
	resources, err := restmapper.GetAPIGroupResourcesWithContext(ctx, served)
	if err != nil {
		return fmt.Errorf("reading what the cluster serves: %w", err)
	}
	g.miss("some of what the cluster serves", incomplete) // which restmapper ignores
	g.read(ctx)
	g.index.Time = metav1.Now()
	g.allLogs(ctx)
	return errors.Join(
		g.write("version", []byte("listener-operator\n"+version.Version+"\n")), // as oc adm must-gather expects it
		g.writeYAML(source.ResourcesFile, resources),
		g.writeYAML(source.IndexFile, &g.index), // at last, because only a complete result has one
	)
}

func (g *gatherer) miss(what string, err error) {
	if text := fmt.Sprintf("%s: %v", what, err); err != nil && !slices.Contains(g.index.Missing, text) {
		g.index.Missing = append(g.index.Missing, text)
	}
}

// Limits of what is read of the log of each container, and of all.
const (
	maxLines = 10_000
	maxLog   = 4 << 20
	maxLogs  = 256 << 20
)

// allLogs gathers the logs of operators and node agents: of each container, and of the one before it if it has
// restarted. Those that may say most are the first.
func (g *gatherer) allLogs(ctx context.Context) {
	slices.SortStableFunc(g.own, func(a, b *corev1.Pod) int { return cmp.Compare(rank(a), rank(b)) })
	left := 0
	for _, pod := range g.own {
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			logs := []string{"current"}
			if status.LastTerminationState.Terminated != nil {
				logs = append(logs, "previous")
			}
			for _, log := range logs {
				if g.logs >= maxLogs {
					left++
					continue
				}
				g.miss(fmt.Sprintf("log %s of container %s of Pod %s/%s", log, status.Name, pod.Namespace, pod.Name),
					g.log(ctx, pod, status.Name, log))
			}
		}
	}
	if left > 0 {
		g.miss(fmt.Sprintf("%d logs", left), fmt.Errorf("the others have more than %d bytes", maxLogs))
	}
	fmt.Fprintf(g.ErrOut, "%6d Pods with logs\n", len(g.own))
}

func rank(pod *corev1.Pod) int {
	switch {
	case pod.Spec.ServiceAccountName == names.Operator:
		return 0
	case !claim.PodReady(pod):
		return 1
	}
	return 2
}

func (g *gatherer) log(ctx context.Context, pod *corev1.Pod, container, log string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	o := &corev1.PodLogOptions{
		// LimitBytes would cut the end
		Container: container, Previous: log == "previous", Timestamps: true, TailLines: ptr.To(int64(maxLines)),
	}
	if !g.logsFrom.IsZero() {
		o.SinceTime = &metav1.Time{Time: g.logsFrom}
	}
	stream, err := g.api.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	content, complete, err := end(stream, maxLog)
	g.logs += len(content)
	if !complete {
		err = errors.Join(err, fmt.Errorf("its last %d lines have more than %d bytes, and their beginning is left out",
			maxLines, maxLog))
	}
	// As oc adm inspect has it.
	return errors.Join(err, g.write(path.Join("namespaces", pod.Namespace, "pods", pod.Name, container, container,
		"logs", log+".log"), content))
}

func (g *gatherer) writeYAML(name string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return g.write(name, content)
}

// to gathers into a directory or an archive, which is removed if it cannot be completed.
func (g *gatherer) to(output string, collect func() error) error {
	if !strings.HasSuffix(output, ".tar.gz") {
		return g.into(output, collect)
	}
	file, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: the user names it
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(file)
	archive := tar.NewWriter(zipped)
	g.add = func(name string, content []byte) error {
		err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: time.Now()})
		_, writeErr := archive.Write(content)
		return errors.Join(err, writeErr)
	}
	if err := errors.Join(collect(), archive.Close(), zipped.Close(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(output))
	}
	return nil
}

func (g *gatherer) into(dir string, collect func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	g.add = func(name string, content []byte) error {
		return errors.Join(root.MkdirAll(path.Dir(name), 0o700), root.WriteFile(name, content, 0o600))
	}
	return errors.Join(collect(), root.Close())
}

func (g *gatherer) write(name string, content []byte) error {
	if g.size+len(content) > source.MaxSize {
		return fmt.Errorf("the result would have more than %d bytes", source.MaxSize)
	}
	g.size += len(content)
	g.written.Insert(name)
	return g.add(name, content)
}

// end returns the end of a stream, of at most this number of bytes and from the beginning of a line, and whether that
// is everything. If reading fails, it is the end of what was read.
func end(stream io.Reader, most int) (content []byte, complete bool, err error) {
	complete = true
	keep := func(most int) {
		if left := len(content) - most; left > 0 {
			content, complete = content[:copy(content, content[left:])], false
		}
	}
	for buffer := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = stream.Read(buffer)
		if content = append(content, buffer[:n]...); len(content) > 2*most {
			keep(most) // containers decide how much they log
		}
	}
	keep(most)
	if line := bytes.IndexByte(content, '\n') + 1; !complete && line < len(content) {
		content = content[line:]
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return content, complete, err
}
