// Command cluster creates and deletes Kubernetes clusters of several nodes on one Linux machine. It is a thin layer on
// the package of the same name, which Go code uses directly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
	"github.com/listener-operator/listener-operator/test/cluster/olm"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

const usage = `usage: cluster VERB [--name NAME] [FLAGS] [ARGUMENTS], in any order before COMMAND

  up [--nodes N]       create a cluster, or start what does not run; --microshift DIR gives a new one OpenShift's API
                       server, built from a checkout of github.com/openshift/microshift
  down                 delete the cluster and everything that belongs to it
  status               list its components and their logs
  kubeconfig           print the path of its kubeconfig
  kubectl COMMAND      run kubectl on it
  client COMMAND       run a command outside the cluster, on the same network
  node N COMMAND       run a command on a node
  load-image           load an image into every node: --tar FILE, or --ref NAME:TAG with
                       --file PATH=SOURCE (repeatable; a file, or a directory such as a root file
                       system), --entrypoint, --user, --label NAME=VALUE
  stop-node N          stop a node as a power cut does
  start-node N         start a node (a number that is not in use joins as a new node)
  delete-node N        delete a node and its disks
  stop-kubelet N       stop only a node's kubelet
  start-kubelet N      start a node's kubelet
  olm                  install the Operator Lifecycle Manager
  olmv1                install its second generation, with ClusterExtensions
  load-balancer        install the load balancer MetalLB, for Services with spec.loadBalancerClass
                       metallb.example/l2, with a pool of addresses that the client reaches
  build-tools [SET…]   build the programs of all tool sets, or of the given ones, and print their directories
`

func main() {
	// `go -C test run` starts it in test/, but users give paths from the repository's root.
	if root, err := checkout.Root(); err == nil {
		_ = os.Chdir(root)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	var exit exitCode
	switch {
	case errors.As(err, &exit):
		os.Exit(int(exit))
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// exitCode is the exit code of a command of the user, which has printed why it failed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// verb is a command of the program. It gets its arguments without the flags.
type verb func(ctx context.Context, c command, args []string) error

// command contains the values of the flags.
type command struct {
	name           string
	nodes          int
	microShift     string
	tar, ref       string
	image          image.Spec
	stdout, stderr io.Writer
}

var verbs = map[string]verb{
	"up":            up,
	"down":          down,
	"status":        onCluster(status),
	"kubeconfig":    onCluster(kubeconfig),
	"kubectl":       onCluster(kubectl),
	"client":        onCluster(client),
	"node":          onCluster(node),
	"load-image":    onCluster(loadImage),
	"olm":           onCluster(installOLM),
	"olmv1":         onCluster(installOLMv1),
	"load-balancer": onCluster(installLoadBalancer),
	"build-tools":   buildTools,
	"stop-node":     onNode((*cluster.Cluster).StopNode),
	"start-node":    onNode((*cluster.Cluster).StartNode),
	"delete-node":   onNode((*cluster.Cluster).DeleteNode),
	"stop-kubelet":  onNode((*cluster.Cluster).StopKubelet),
	"start-kubelet": onNode((*cluster.Cluster).StartKubelet),
}

// beforeCommand maps the verbs that take a command to the number of arguments before it. The command has flags of its
// own.
var beforeCommand = map[string]int{"kubectl": 0, "client": 0, "node": 1}

// run runs the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 || verbs[args[0]] == nil {
		fmt.Fprint(stderr, usage)
		return flag.ErrHelp
	}
	c := command{stdout: stdout, stderr: stderr}
	arguments, err := c.parse(args[0], args[1:])
	if err != nil {
		return err
	}
	return verbs[args[0]](ctx, c, arguments)
}

// parse sets the values of the flags of a verb, which may follow its arguments, and returns the arguments.
func (c *command) parse(verb string, args []string) (arguments []string, err error) {
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	flags.SetOutput(c.stderr)
	flags.Usage = func() { fmt.Fprint(c.stderr, usage) }
	flags.StringVar(&c.name, "name", cluster.DefaultName, "name of the cluster")
	switch verb {
	case "up":
		flags.IntVar(&c.nodes, "nodes", 0, "number of nodes (default 3 for a new cluster)")
		flags.StringVar(&c.microShift, "microshift", "", "checkout of github.com/openshift/microshift")
	case "load-image":
		c.imageFlags(flags)
	}
	before, takesCommand := beforeCommand[verb]
	for {
		if err := flags.Parse(args); err != nil { // stops at an argument
			return nil, flag.ErrHelp
		}
		args = flags.Args()
		if len(args) == 0 || takesCommand && len(arguments) == before {
			return append(arguments, args...), nil
		}
		arguments, args = append(arguments, args[0]), args[1:]
	}
}

// imageFlags adds the flags that describe an image.
func (c *command) imageFlags(flags *flag.FlagSet) {
	c.image = image.Spec{Files: map[string]image.File{}, Labels: map[string]string{}}
	flags.StringVar(&c.tar, "tar", "", "archive of images to load")
	flags.StringVar(&c.ref, "ref", "", "name of the image to build")
	flags.StringVar(&c.image.User, "user", "", "user that the image runs as")
	flags.Func("entrypoint", "program of the image and its arguments, separated by blanks", func(s string) error {
		c.image.Entrypoint = strings.Fields(s)
		return nil
	})
	flags.Func("file", "PATH=SOURCE: a file of the image", func(s string) error {
		path, source, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want PATH=SOURCE")
		}
		c.image.Files[path] = image.File{Source: source}
		return nil
	})
	flags.Func("label", "NAME=VALUE: a label of the image", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		c.image.Labels[name] = value
		return nil
	})
}

func up(ctx context.Context, c command, _ []string) error {
	_, err := cluster.Up(ctx, cluster.Options{Name: c.name, Nodes: c.nodes, MicroShift: c.microShift, Progress: c.stderr})
	return err
}

func down(ctx context.Context, c command, _ []string) error {
	return cluster.Down(ctx, c.name, c.stderr)
}

func status(ctx context.Context, k *cluster.Cluster, c command, _ []string) error {
	components, err := k.Status()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tCOMPONENT\tPID\tSTATE\tLOG")
	for _, component := range components {
		pid, state := "-", "stopped"
		if component.PID != 0 {
			pid, state = strconv.Itoa(component.PID), "running"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", component.Machine, component.Name, pid, state, component.Log)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	if err := k.Ready(ctx); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	fmt.Fprintf(c.stdout, "cluster %s is ready\n", c.name)
	return nil
}

func kubeconfig(_ context.Context, k *cluster.Cluster, c command, _ []string) error {
	fmt.Fprintln(c.stdout, k.Kubeconfig())
	return nil
}

func kubectl(ctx context.Context, k *cluster.Cluster, _ command, args []string) error {
	args = append([]string{"--kubeconfig=" + k.Kubeconfig()}, args...)
	return attach(exec.CommandContext(ctx, k.Kubectl(), args...))
}

func client(ctx context.Context, k *cluster.Cluster, _ command, args []string) error {
	if len(args) == 0 {
		return errors.New("client: want a command")
	}
	return attach(k.ClientCommand(ctx, args[0], args[1:]...))
}

func node(ctx context.Context, k *cluster.Cluster, _ command, args []string) error {
	if len(args) < 2 {
		return errors.New("node: want a node's number and a command")
	}
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("parsing the node's number: %w", err)
	}
	return attach(k.NodeCommand(ctx, number, args[1], args[2:]...))
}

// attach runs a command on this program's own input and output.
func attach(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitCode(exit.ExitCode())
	}
	return err
}

func loadImage(ctx context.Context, k *cluster.Cluster, c command, _ []string) error {
	if (c.tar == "") == (c.ref == "") {
		return errors.New("load-image: want either --tar or --ref")
	}
	if c.tar != "" {
		return k.LoadArchive(ctx, c.tar)
	}
	return k.LoadImage(ctx, c.ref, c.image)
}

func installOLM(ctx context.Context, k *cluster.Cluster, c command, _ []string) error {
	return olm.Install(ctx, k, c.stderr)
}

func installOLMv1(ctx context.Context, k *cluster.Cluster, c command, _ []string) error {
	return olm.InstallV1(ctx, k, c.stderr)
}

func installLoadBalancer(ctx context.Context, k *cluster.Cluster, c command, _ []string) error {
	if err := metallb.Install(ctx, k, c.stderr); err != nil {
		return err
	}
	return metallb.SetPool(ctx, k, "all", nil, k.FreeIP(1)+"-"+k.FreeIP(cluster.MaxFree), k.FreeIPv6(1)+"-"+k.FreeIPv6(cluster.MaxFree))
}

func buildTools(ctx context.Context, c command, names []string) error {
	if len(names) == 0 {
		names = tools.Names()
	}
	for _, name := range names {
		dir, err := tools.Ensure(ctx, name)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.stdout, dir)
	}
	return nil
}

// onNode returns a verb that calls a method with a node's number.
func onNode(do func(*cluster.Cluster, context.Context, int) error) verb {
	return onCluster(func(ctx context.Context, k *cluster.Cluster, _ command, args []string) error {
		if len(args) != 1 {
			return errors.New("want a node's number")
		}
		number, err := strconv.Atoi(args[0])
		if err != nil {
			return fmt.Errorf("parsing the node's number: %w", err)
		}
		return do(k, ctx, number)
	})
}

// onCluster returns a verb that opens the cluster, which has to exist.
func onCluster(do func(context.Context, *cluster.Cluster, command, []string) error) verb {
	return func(ctx context.Context, c command, args []string) error {
		k, err := cluster.Open(c.name)
		if err != nil {
			return err
		}
		return do(ctx, k, c, args)
	}
}
