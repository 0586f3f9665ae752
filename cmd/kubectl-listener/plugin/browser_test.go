package plugin_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// browser returns a page of a new Chromium. The page has no errors and reaches no other server.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs Chromium: run `make chromium`")
	}
	all := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true))
	if os.Geteuid() == 0 {
		all = append(all, chromedp.NoSandbox)
	}
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), all...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	if err := chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			t.Errorf("the page throws %s", e.ExceptionDetails.Text)
		}
	}); err != nil {
		t.Fatal("starting Chromium: ", err)
	}
	return ctx
}

// do runs actions in a page.
func do(page context.Context, t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(page, apiserver.Timeout)
	defer cancel()
	check.Must(t, chromedp.Do(ctx, actions...))
}

// evaluate returns the value of an expression in a page, or of a promise.
func evaluate[T any](page context.Context, t *testing.T, expression string, args ...any) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(page, apiserver.Timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](fmt.Sprintf(expression, args...), chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(expression, args...), err)
	}
	return value
}

// await waits until an expression in a page is true.
func await(page context.Context, t *testing.T, expression string, args ...any) {
	t.Helper()
	evaluate[chromedp.Void](page, t, `new Promise(done => { const check = () => { (%s) ? done() : requestAnimationFrame(check); }; check(); })`, fmt.Sprintf(expression, args...))
}

// press presses keys one after the other.
func press(page context.Context, t *testing.T, keys string) {
	t.Helper()
	do(page, t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		for _, key := range keys {
			events := kb.Encode(key)
			events[0].Text = events[len(events)-2].Text // so that a page can prevent the character
			for _, e := range []*input.DispatchKeyEventParams{events[0], events[len(events)-1]} {
				if _, err := cdp.Call(ctx, target, input.DispatchKeyEvent, *e); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// screenshot writes what a page shows to the directory that the variable SCREENSHOTS names, if it is set.
func screenshot(page context.Context, t *testing.T, name string) {
	t.Helper()
	directory := os.Getenv("SCREENSHOTS")
	if directory == "" {
		return
	}
	content, err := chromedp.Run(page, chromedp.CaptureScreenshot())
	check.Must(t, err)
	check.Must(t, os.WriteFile(filepath.Join(directory, name+".png"), content, 0o600))
}

// startMap runs the command, and returns the address of its page.
func startMap(t *testing.T, config *rest.Config, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	command := plugin.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: writer, ErrOut: io.Discard}, backends.All())
	command.SetArgs(append([]string{"--kubeconfig", kubeconfig(t, config), "--cache-dir", t.TempDir(), "map"}, args...))
	var group sync.WaitGroup
	group.Go(func() {
		err := command.ExecuteContext(ctx)
		if err != nil {
			t.Error("map ends with ", err)
		}
		_ = writer.CloseWithError(io.EOF)
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	output := make([]byte, 1024)
	n, err := reader.Read(output)
	url := regexp.MustCompile(`http://\S+`).FindString(string(output[:n]))
	if url == "" {
		t.Fatalf("map writes %q, error %v", output[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	return url
}
