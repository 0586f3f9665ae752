package plugin_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

func TestMapWritesAPicture(t *testing.T) {
	s := newShop(t, apiserver.Config(t), "shop")
	s.addKafka(t)
	s.addWaiting(t)
	out, err := run(t, apiserver.Config(t), "map", "-n", "shop", "-o", "svg")
	if !errors.Is(err, command.ErrProblem) {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(out), new(struct{})); err != nil {
		t.Error(err)
	}
	problem := whyOf(t, "shop", "web-0").Problem
	for _, want := range []string{
		"203.0.113.7", "203.0.113.8", "203.0.113.9", "kafka.shop.example.com", ">broker 30092<", ">LoadBalancer<", ">shop-worker-3<", ">kafka-bootstrap<", ">kafka-2<",
		strings.ReplaceAll(problem.Reason+": "+problem.Message, `"`, "&#34;"),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if all, err := run(t, apiserver.Config(t), "map", "--all-namespaces", "-o", "svg"); !errors.Is(err, command.ErrProblem) || !strings.Contains(all, ">shop · shop-stable<") {
		t.Errorf("the picture of all namespaces lacks the namespaces: %v", err)
	}
	root, err := checkout.Root()
	check.Must(t, err)
	path := filepath.Join(root, "docs", "kubectl-listener-map.svg")
	if flag.Lookup("update").Value.String() == "true" { // as that of package golden
		check.Must(t, os.WriteFile(path, []byte(out), 0o600))
	}
	if published, err := os.ReadFile(path); err != nil || string(published) != out {
		t.Errorf("docs/kubectl-listener-map.svg is not the picture of this test; -update overwrites it (error %v)", err)
	}
}

// The command why has a warning, too.
func TestMapMarksAPodWhoseProgramSeesNoFiles(t *testing.T) {
	w := newWorld(t)
	pod := w.newPod("idle", "web")
	pod.Spec.Containers[0].VolumeMounts = nil
	w.remove(t, w.pod)
	w.createRunning(t, pod)
	out, err := run(t, apiserver.Config(t), "map", "-n", w.namespace, "-o", "svg")
	if err != nil || !strings.Contains(out, `class="box Pod Warning"`) || !strings.Contains(out, ">Volume listener: no container of Pod<") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// A browser shows the words of why.
func TestMapFollowsTheCluster(t *testing.T) {
	w := newWorld(t)
	page := browser(t)
	do(page, t, chromedp.Navigate(startMap(t, apiserver.Config(t), "-n", w.namespace)))
	label := fmt.Sprintf(`document.querySelector("[data-id='Listener/%s/web']")?.getAttribute("aria-label")`, w.namespace)
	await(page, t, `%s?.includes("203.0.113.7:31337")`, label)
	evaluate[chromedp.Void](page, t, `window.same = true`)

	w.notReady(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonForeignService))
	problem := whyOf(t, w.namespace, "listener/web").Problem
	await(page, t, `%s.endsWith(%q)`, label, ": "+problem.Reason+": "+problem.Message)
	await(page, t, `document.querySelector(".Listener.Failed .mark").textContent === "✗"`)
	await(page, t, `document.querySelector(".Pod.Failed").getAttribute("aria-label").endsWith(%q)`, problem.Reason+": "+problem.Message)

	w.pod.Status.Phase = corev1.PodSucceeded // then it mounts nothing
	w.updateStatus(t, w.pod)
	await(page, t, `!document.querySelector(".Pod")`)
	w.pod.Status.Phase = corev1.PodRunning
	w.updateStatus(t, w.pod)
	await(page, t, `document.querySelector(".Pod")`)
	w.remove(t, w.pod)
	await(page, t, `!document.querySelector(".Pod") && window.same`)
}

// A click selects the object, and so does the keyboard alone.
func TestMapShowsAPathAndItsFiles(t *testing.T) {
	w := newWorld(t)
	open, _ := listen(t)
	w.publish(t, at("127.0.0.1", map[string]int32{"http": open}))
	page := browser(t)
	do(page, t, chromedp.Navigate(startMap(t, apiserver.Config(t), "-n", w.namespace)))
	await(page, t, `document.querySelector(".Pod")?.getAttribute("aria-label").includes("runs on node")`)

	var want []string
	for _, f := range whyOf(t, w.namespace, "web-0").Findings {
		object := f.Kind
		for _, name := range []string{f.Namespace, f.Name} {
			if name != "" {
				object += map[bool]string{true: " ", false: "/"}[!strings.Contains(object, " ")] + name
			}
		}
		want = append(want, object+" "+f.Message)
	}
	shown := func() {
		t.Helper()
		await(page, t, `!document.getElementById("details").hidden && document.activeElement.id === "object" && document.getElementById("object").textContent === "Pod web-0"`)
		got := evaluate[[]string](page, t, `[...document.querySelectorAll("#path li")].map(li => li.children[1].textContent + " " + li.children[2].textContent)`)
		if !slices.Equal(got, want) {
			t.Errorf("the path is %q, want %q", got, want)
		}
		got = evaluate[[]string](page, t, `[...document.querySelectorAll("#volumes dl > *")].map(e => e.textContent)`)
		if files := []string{"default-address/address", "127.0.0.1", "default-address/ports/http", fmt.Sprint(open)}; !slices.Equal(got, files) {
			t.Errorf("the files are %q, want %q", got, files)
		}
		await(page, t, `document.querySelector("#connections .OK")?.textContent.includes("127.0.0.1:%d")`, open)
	}
	do(page, t, chromedp.Click(chromedp.CSS(".Pod rect")))
	shown()
	screenshot(page, t, "details")
	press(page, t, kb.Escape)
	await(page, t, `document.getElementById("details").hidden && document.activeElement.classList.contains("Pod")`)

	press(page, t, kb.ArrowLeft)
	await(page, t, `document.activeElement.classList.contains("Listener")`)
	press(page, t, kb.ArrowLeft+kb.ArrowLeft)
	await(page, t, `document.activeElement.classList.contains("Address")`)
	press(page, t, "/web-0")
	await(page, t, `document.activeElement.id === "query" && document.getElementById("map").dataset.query === "web-0"`)
	press(page, t, kb.ArrowDown+kb.End+kb.ArrowRight+kb.ArrowRight+kb.ArrowRight)
	await(page, t, `document.activeElement.classList.contains("Pod")`)
	press(page, t, kb.Enter)
	shown()
	if n := evaluate[int](page, t, `document.querySelectorAll("#map [tabindex='0']").length`); n != 1 {
		t.Errorf("%d boxes are in the order of the tabulator", n)
	}
}

// Every string of every object contains markup.
func TestMapShowsTextsOfTenantsAsText(t *testing.T) {
	w := newWorld(t)
	w.notReady(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonForeignService))
	const markup = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>]]>&"'`
	fields := sets.New("message", "reason", "address", "className", "nodeName", "phase")
	api := &hostileAPI{fields: sets.New[string](), watched: func() {}, text: markup, adds: func(_, path string) bool { return fields.Has(path[strings.LastIndex(path, ".")+1:]) }}
	config := api.serve(t)
	page := browser(t)
	address := startMap(t, config, "-n", w.namespace)
	do(page, t, chromedp.Navigate(address))
	await(page, t, `document.querySelector(".Listener.Failed .words")?.textContent.includes("<img")`)
	wholeTexts(page, t)
	screenshot(page, t, "markup")
	for _, id := range evaluate[[]string](page, t, `[...document.querySelectorAll(".box")].map(b => b.dataset.id)`) {
		evaluate[chromedp.Void](page, t, `document.querySelector("[data-id=" + CSS.escape(%q) + "]").dispatchEvent(new MouseEvent("click", {bubbles: true}))`, id)
		await(page, t, `!document.getElementById("details").hidden`)
	}
	if evaluate[bool](page, t, `window.hacked || document.images.length > 0 || document.scripts.length !== 1`) {
		t.Error("a text became markup")
	}
	do(page, t, chromedp.Navigate(address+"map.svg"))
	if evaluate[bool](page, t, `window.hacked || document.querySelectorAll("script, img, [onerror]").length > 0 || document.querySelectorAll(".box").length < 4`) {
		t.Error("a text of the SVG became markup")
	}
	out, _ := run(t, config, "map", "-n", w.namespace, "-o", "svg")
	if err := xml.Unmarshal([]byte(out), new(struct{})); err != nil || !strings.Contains(out, "&lt;img") {
		t.Errorf("the SVG is not well-formed, or lacks the text: %v", err)
	}
}

func TestMapRefusesOthers(t *testing.T) {
	w := newWorld(t)
	page := startMap(t, apiserver.Config(t), "-n", w.namespace)
	host, secret, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(page, "http://"), "/"), "/")
	_, port, _ := strings.Cut(host, ":")
	request := func(method, path string, header map[string]string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+path, nil)
		check.Must(t, err)
		for name, value := range header {
			r.Header.Set(name, value)
			if name == "Host" {
				r.Host = value
			}
		}
		response, err := http.DefaultClient.Do(r)
		check.Must(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	paths := []string{"", "picture", "details?id=Pod/" + w.namespace + "/web-0", "connect?id=Pod/" + w.namespace + "/web-0", "map.svg", "map.js", "events"}
	for _, path := range paths {
		for _, header := range []map[string]string{
			nil, {"Host": "localhost:" + port}, {"Origin": "http://" + host, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"},
		} {
			response := request(http.MethodGet, "/"+secret+"/"+path, header)
			if response.StatusCode != http.StatusOK {
				t.Errorf("%s with %v: %s", path, header, response.Status)
			}
			for name, want := range map[string]string{"Content-Security-Policy": "default-src 'self'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
				if !strings.HasPrefix(response.Header.Get(name), want) {
					t.Errorf("%s: %s is %q", path, name, response.Header.Get(name))
				}
			}
			if response.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s permits other origins", path)
			}
		}
		for _, header := range []map[string]string{
			{"Host": "attacker.example"}, {"Host": "attacker.example:" + port}, {"Host": "127.0.0.1"}, {"Origin": "http://attacker.example"}, {"Origin": "null"},
			{"Origin": "http://localhost:1"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
		} {
			if response := request(http.MethodGet, "/"+secret+"/"+path, header); response.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %v: %s", path, header, response.Status)
			}
		}
		for _, prefix := range []string{"/", "/wrong/", "/" + secret[1:] + "/", "/" + secret, "//" + secret + "/"} {
			if response := request(http.MethodGet, prefix+path, nil); response.StatusCode == http.StatusOK {
				t.Errorf("%s%s: %s", prefix, path, response.Status)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			if response := request(method, "/"+secret+"/"+path, nil); response.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %s", method, path, response.Status)
			}
		}
	}
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:80", "example.com:80", "localhost.example.com:80"} {
		_, err := run(t, apiserver.Config(t), "map", "-n", w.namespace, "--address", address)
		if err == nil || !strings.Contains(err.Error(), "must be a loopback address") {
			t.Errorf("--address %s: %v", address, err)
		}
	}
	for _, address := range []string{"localhost:0", "127.0.0.2:0"} {
		if page := startMap(t, apiserver.Config(t), "-n", w.namespace, "--address", address); !strings.HasPrefix(page, "http://127.0.0.") {
			t.Errorf("--address %s: %s", address, page)
		}
	}
}

// The user may only read a namespace.
func TestMapSaysWhatItMayNotRead(t *testing.T) {
	w := newWorld(t)
	config := w.user(t,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"listeners", "podlisteners"}, Verbs: []string{"list", "watch"}},
	)
	response, err := http.Get(startMap(t, config, "-n", w.namespace) + "picture")
	check.Must(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	check.Must(t, err)
	var picture struct {
		Notes []string
		Boxes []struct{ Kind, State, Label string }
	}
	check.Must(t, json.Unmarshal(content, &picture))
	if len(picture.Notes) != 1 || !strings.Contains(picture.Notes[0], "You may not list and watch: ") || !strings.Contains(picture.Notes[0], "Node") {
		t.Errorf("the notes are %q", picture.Notes)
	}
	states := map[string]string{}
	for _, b := range picture.Boxes {
		states[b.Kind] = b.State
	}
	if want := map[string]string{"Address": "", "Exposure": "Unknown", "Listener": "OK", "Pod": "OK", "Node": "Unknown"}; !maps.Equal(states, want) {
		t.Errorf("the boxes are %v, want %v", states, want)
	}
}

// TestMapIsLegibleInTheDark compares the contrast of texts with what WCAG 2.2 asks for.
func TestMapIsLegibleInTheDark(t *testing.T) {
	s := newShop(t, apiserver.Config(t), "dark")
	s.addKafka(t)
	s.addWaiting(t)
	page := browser(t)
	do(page, t, chromedp.Navigate(startMap(t, apiserver.Config(t), "-n", "dark")))
	await(page, t, `document.querySelectorAll(".Pod").length === 4`)
	seen := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		do(page, t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			return err
		}))
		screenshot(page, t, scheme)
		seen[scheme] = evaluate[string](page, t, `getComputedStyle(document.body).backgroundColor`)
		low := evaluate[[]string](page, t, `(() => {
			const luminance = c => { const [r, g, b] = c.match(/[\d.]+/g).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
			return [...document.querySelectorAll(".box text")].filter(e => {
				const [a, b] = [getComputedStyle(e).fill, getComputedStyle(e.parentNode.querySelector("rect")).fill].map(luminance).sort((x, y) => y - x);
				return (a + 0.05) / (b + 0.05) < 4.5;
			}).map(e => e.parentNode.getAttribute("class") + ": " + e.textContent);
		})()`)
		if len(low) > 0 {
			t.Errorf("%s: the contrast of %q is below 4.5", scheme, low)
		}
		wholeTexts(page, t)
	}
	if seen["light"] == seen["dark"] {
		t.Errorf("the background is %s in both", seen["dark"])
	}
}

// wholeTexts checks that all texts fit into their boxes.
func wholeTexts(page context.Context, t *testing.T) {
	t.Helper()
	overflowing := evaluate[[]string](page, t, `[...document.querySelectorAll(".box text")].filter(e => {
		const t = e.getBoundingClientRect(), r = e.parentNode.querySelector("rect").getBoundingClientRect();
		return t.right > r.right - 2 || t.bottom > r.bottom;
	}).map(e => e.textContent)`)
	if len(overflowing) > 0 {
		t.Errorf("%q do not fit into their boxes", overflowing)
	}
}

// TestMapOfThousandListenersIsFluid measures the time from a key to the frame that shows the result.
func TestMapOfThousandListenersIsFluid(t *testing.T) {
	if testing.Short() {
		t.Skip("creates 8,000 objects")
	}
	page := browser(t)
	const listeners = 1000
	config := apiserver.DualStackConfig(t) // which has no other test: the commands of later ones would read all objects
	s := newShop(t, config, "many")
	started := time.Now()
	s.addMany(t, listeners)
	t.Logf("created in %s", time.Since(started))
	started = time.Now()
	address := startMap(t, config, "-n", "many")
	t.Logf("the command is ready after %s", time.Since(started))
	do(page, t, chromedp.Navigate(address))
	await(page, t, `document.getElementById("summary").textContent.startsWith("%d Listeners, 1100 Pods, 0 problems")`, listeners)
	t.Logf("the page shows them after %s", time.Since(started))
	screenshot(page, t, "thousand")
	if n := evaluate[int](page, t, `document.querySelectorAll(".box").length`); n == 0 || n > 400 {
		t.Errorf("%d boxes are drawn", n)
	}
	evaluate[chromedp.Void](page, t, `(() => {
		window.times = [];
		let pressed;
		document.getElementById("query").addEventListener("keydown", () => { pressed = performance.now(); }, true);
		new MutationObserver(() => requestAnimationFrame(() => { const c = new MessageChannel(); c.port1.onmessage = () => times.push(performance.now() - pressed); c.port2.postMessage(0); }))
			.observe(document.getElementById("map"), { attributeFilter: ["data-query"] });
	})()`)
	press(page, t, "/")
	const query = "broker-0999 worker"
	for i := range query {
		press(page, t, query[i:i+1])
		await(page, t, `times.length === %d`, i+1)
	}
	for i := range query {
		press(page, t, kb.Backspace)
		await(page, t, `times.length === %d`, len(query)+i+1)
	}
	times := evaluate[[]float64](page, t, `times`)
	slices.Sort(times)
	t.Logf("from a key to the frame: median %.0f ms, 90%% %.0f ms, longest %.0f ms", times[len(times)/2], times[len(times)*9/10], times[len(times)-1])
	if median := times[len(times)/2]; median > 1000 { // many times what it takes, because the machine may have other work
		t.Errorf("the median is %.0f ms", median)
	}
	evaluate[chromedp.Void](page, t, `scrollTo(0, document.body.scrollHeight / 2)`)
	await(page, t, `document.querySelectorAll(".box").length > 20 && [...document.querySelectorAll(".Pod")].some(p => { const r = p.getBoundingClientRect(); return r.top > 0 && r.bottom < innerHeight; })`)
	screenshot(page, t, "thousand-scrolled")
}

// The API server does not respond. The map only sends requests that read.
func TestMapSaysThatItIsOutdated(t *testing.T) {
	w := newWorld(t)
	var down atomic.Bool
	server := proxy(t, apiserver.Config(t), func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		isDown := down.Load()
		if isDown {
			http.Error(w, "the proxy is down", http.StatusServiceUnavailable)
		}
		return isDown
	})
	page := browser(t)
	do(page, t, chromedp.Navigate(startMap(t, &rest.Config{Host: server.URL}, "-n", w.namespace)))
	await(page, t, `document.querySelector(".Pod.OK")`)
	down.Store(true)
	server.CloseClientConnections()
	await(page, t, `document.getElementById("notes").textContent.includes("the picture may be outdated")`)
	down.Store(false)
	await(page, t, `document.getElementById("notes").textContent === "" && document.querySelector(".Pod.OK")`)
}

// It does so even if it is not the Pod that does not respond.
func TestMapShowsWhatExposesAListener(t *testing.T) {
	w := newWorld(t)
	w.stopNode(t)
	w.unready(t)
	w.create(t, w.policy("deny"))
	out, err := run(t, apiserver.Config(t), "map", "-n", w.namespace, "-o", "svg")
	if want := "Exposed by NodePort: ListenerClass " + w.class.Name + ": serviceType NodePort"; !errors.Is(err, command.ErrProblem) || !strings.Contains(out, want) {
		t.Errorf("error %v, the picture lacks %q:\n%s", err, want, out)
	}
}
