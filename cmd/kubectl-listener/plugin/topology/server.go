// Package topology has the command `kubectl listener map`, a page with a picture of nodes, Pods, Listeners and their
// addresses. The page is served to the user alone, and only reads. What is wrong has the words of package walk.
package topology

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/connect"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

const outputSVG = "svg"

func NewCommand(e *command.Environment) *cobra.Command {
	var address, output string
	var allNamespaces bool
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Show nodes, Pods, Listeners and addresses as a picture that follows the cluster",
		Long: `Show nodes, Pods, Listeners and addresses as a picture that follows the cluster.

The command serves a page to the browsers of this machine until it is interrupted, and prints the address of the page.
The page reads with your permissions and changes nothing. Its address contains a secret, without which it cannot be
opened. It marks what is wrong in the words of kubectl listener why. Select a Pod or a Listener to see its path, the
files in its volumes, and whether its addresses can be reached from here.

With --output svg, the command writes the picture as it is now, and ends.`,
		Example: `  # The Listeners of a namespace
  kubectl listener map --namespace shop

  # All namespaces, at a port of your choice
  kubectl listener map --all-namespaces --address 127.0.0.1:8080

  # A picture for a document
  kubectl listener map --namespace shop --output svg > shop.svg`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != outputSVG {
				return fmt.Errorf("--output is %q, and must be svg", output)
			}
			at, err := loopback(address)
			if err != nil {
				return err
			}
			namespace := ""
			if !allNamespaces {
				if namespace, err = e.Namespace(); err != nil {
					return err
				}
			}
			c, err := e.Client()
			if err != nil {
				return err
			}
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			s := &server{source: source.Watch(ctx, c, namespace), backends: e.Backends, prefix: "/" + rand.Text() + "/"}
			if err := s.observe(ctx); err != nil {
				return err
			}
			if output == "" {
				return s.run(ctx, at, e.Out)
			}
			g := s.graph.Load()
			if _, err := e.Out.Write(g.lay("", false).svg()); err != nil {
				return err
			}
			if g.problems() > 0 {
				return command.ErrProblem
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Write the picture and end: svg. Defaults to serving a page.")
	cmd.Flags().StringVar(&address, "address", "127.0.0.1:0",
		"Loopback address and port to serve the page at. Port 0 is any free port.")
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "Show the Listeners of all namespaces.")
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{outputSVG}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// loopback returns an address to listen at, which nobody outside this machine can reach.
func loopback(address string) (string, error) {
	at, err := netip.ParseAddrPort(strings.Replace(address, "localhost:", "127.0.0.1:", 1))
	if err != nil || !at.Addr().IsLoopback() {
		return "", fmt.Errorf("--address is %q, and must be a loopback address such as 127.0.0.1:8080: the page "+
			"reads with your permissions, and others could reach it at any other address", address)
	}
	return at.String(), nil
}

type server struct {
	source   *source.Source
	backends backends.List
	// prefix is the path of the page, with a secret: other users of this machine can connect, too.
	prefix string
	graph  atomic.Pointer[graph]
}

func (s *server) run(ctx context.Context, address string, out io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serving the page: %w", err)
	}
	host := listener.Addr().String()
	h := &http.Server{Handler: s.handler(host), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { _ = h.Close() })
	go s.follow(ctx)
	fmt.Fprintf(out, "%s: http://%s%s\nThe page follows the cluster until you interrupt this command.\n",
		s.graph.Load().title(), host, s.prefix)
	if err := h.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	return nil
}

// follow observes the cluster after each change. It spends no more than half of the time on that.
func (s *server) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.source.Changed:
		}
		started := time.Now()
		if err := s.observe(ctx); err != nil && ctx.Err() == nil {
			g := *s.graph.Load()
			g.notes, g.outdated = []string{command.Printable(err.Error())}, make(chan struct{})
			s.publish(&g)
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(100*time.Millisecond, time.Since(started))): // meanwhile, changes accumulate
		}
	}
}

func (s *server) observe(ctx context.Context) error {
	g, err := observe(ctx, s.source, s.backends, s.source.Namespace)
	if err != nil {
		return err
	}
	forbidden, interrupted := s.source.Unreadable()
	if len(forbidden) > 0 {
		g.notes = append(g.notes, "You may not list and watch: "+strings.Join(forbidden, ", ")+".")
	}
	if interrupted != nil {
		g.notes = append(g.notes, "The API server does not respond, so the picture may be outdated: "+
			command.Printable(interrupted.Error()))
	}
	s.publish(g)
	return nil
}

func (s *server) publish(g *graph) {
	if old := s.graph.Swap(g); old != nil {
		close(old.outdated)
	}
}

// handler serves the page to those who know its path, and to no page of another origin. A request has to name host:
// an attacker may resolve another name to this machine.
func (s *server) handler(host string) http.Handler {
	files, _ := fs.Sub(page, "page") // which exists
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /events", s.events)
	lay := func(r *http.Request) *picture {
		return s.graph.Load().lay(r.FormValue("q"), r.FormValue("wrong") != "")
	}
	mux.HandleFunc("GET /picture", func(w http.ResponseWriter, r *http.Request) { respond(w, lay(r)) })
	mux.HandleFunc("GET /map.svg", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = w.Write(lay(r).svg())
	})
	mux.HandleFunc("GET /details", s.details)
	mux.HandleFunc("GET /connect", s.connect)
	_, port, _ := net.SplitHostPort(host) // which is the address of a listener
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri " +
				"'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		// A link to the page may be followed from anywhere, because whoever shows it knows the secret.
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		switch {
		case r.Host != host && r.Host != "localhost:"+port,
			origin != "" && origin != "http://"+r.Host,
			site != "" && site != "same-origin" && site != "none" && r.Header.Get("Sec-Fetch-Dest") != "document",
			len(r.URL.Path) < len(s.prefix) ||
				subtle.ConstantTimeCompare([]byte(r.URL.Path[:len(s.prefix)]), []byte(s.prefix)) != 1:
			http.Error(w, "Open the address that kubectl listener map has printed.", http.StatusForbidden)
		default:
			http.StripPrefix(strings.TrimSuffix(s.prefix, "/"), mux).ServeHTTP(w, r)
		}
	})
}

func (s *server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		g := s.graph.Load()
		if _, err := io.WriteString(w, "data: changed\n\n"); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-g.outdated:
		}
	}
}

type said struct {
	State  check.State `json:"state"`
	Mark   string      `json:"mark"`
	Object string      `json:"object"`
	Text   string      `json:"text"`
	Remedy string      `json:"remedy,omitempty"`
}

func say(findings ...check.Finding) []said {
	all := []said{}
	for _, f := range findings {
		all = append(all, said{f.State, command.Mark(f.State), command.Printable(f.Object()),
			command.Printable(f.Text()), command.Printable(f.Remedy)})
	}
	return all
}

type files struct {
	Volume string      `json:"volume"`
	Files  [][2]string `json:"files"` // path and content
}

// details sends what is known about an object: what `why` prints, and the files of its volumes.
func (s *server) details(w http.ResponseWriter, r *http.Request) {
	found := s.graph.Load().byID[r.FormValue("id")]
	if found == nil {
		http.Error(w, "It does not exist any more.", http.StatusNotFound)
		return
	}
	response := struct {
		Title    string  `json:"title"`
		Findings []said  `json:"findings"`
		Problem  []said  `json:"problem"`
		Volumes  []files `json:"volumes"`
		Connects bool    `json:"connects"`
	}{found.kind + " " + command.Printable(found.key.Name), say(command.Once(found.report, "see above")...), say(),
		[]files{}, found.object != nil}
	if found.report.Problem != nil {
		response.Problem = say(*found.report.Problem)
	}
	for _, volume := range slices.Sorted(maps.Keys(found.volumes)) {
		response.Volumes = append(response.Volumes,
			files{command.Printable(volume), filesOf(found.volumes[volume].IngressAddresses)})
	}
	respond(w, response)
}

func (s *server) connect(w http.ResponseWriter, r *http.Request) {
	found := s.graph.Load().byID[r.FormValue("id")]
	if found == nil || found.object == nil {
		http.Error(w, "It does not exist any more.", http.StatusNotFound)
		return
	}
	x := &check.Examination{Client: s.source, Backends: s.backends}
	connect.Try(r.Context(), x, found.object, connect.Options{Timeout: connect.DefaultTimeout})
	if x.Err != nil {
		respond(w,
			say(check.Finding{Kind: found.kind, Name: found.key.Name, State: check.Unknown, Message: x.Err.Error()}))
		return
	}
	respond(w, say(x.Findings...))
}

func respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the page asks again
}
