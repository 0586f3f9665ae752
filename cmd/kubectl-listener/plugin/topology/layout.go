package topology

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
)

// picture is a graph as it is drawn. The page and the SVG draw the same boxes and edges.
type picture struct {
	Title    string `json:"title"`
	Width    int    `json:"width"`
	Height   int    `json:"height"`
	Headings []line `json:"headings"`
	Boxes    []*box `json:"boxes"`
	Edges    []edge `json:"edges"`
	// Summary counts what there is and what is wrong; Notes are the notes of the graph.
	Summary string   `json:"summary"`
	Notes   []string `json:"notes"`
	// namespaces states that the picture has several, which it names.
	namespaces bool
	// said are the objects that have boxes of their own for what is not right, which other boxes do not repeat.
	said map[check.Finding]*subject
	byID map[string]*box
}

type box struct {
	ID    string      `json:"id"`
	Kind  string      `json:"kind"`
	Opens string      `json:"opens"` // the object that a click shows, or ""
	State check.State `json:"state"`
	X     int         `json:"x"`
	Y     int         `json:"y"`
	W     int         `json:"w"`
	H     int         `json:"h"`
	Lines []line      `json:"lines"` // relative to the box
	Label string      `json:"label"` // all that the box says
}

type line struct {
	Class string `json:"class"`
	X     int    `json:"x"`
	Y     int    `json:"y"`
	Text  string `json:"text"`
}

// edge is a curve from the right side of a box to the left side of another one.
type edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	Path string `json:"path"`
	Y    int    `json:"y"`
	H    int    `json:"h"`
	// Length and Dashes are set if both boxes are not visible together: only the ends are drawn.
	Length int    `json:"length,omitempty"`
	Dashes string `json:"dashes,omitempty"`
}

const (
	margin     = 24
	lineHeight = 18
	padding    = 12  // between the border of a box and its text
	markWidth  = 18  // of a mark before a text
	gap        = 10  // between boxes
	top        = 8   // the first box
	far        = 700 // the height of a line of which only the ends are drawn
	stub       = 20  // the length of such an end
	width      = 798 + 292 + margin
	head       = 64 // the height of the title and of the titles of the columns
	maxWords   = 6  // the number of lines for what is not right
)

// column is where the boxes of a kind are, and how many letters of a name fit into a line. Of a note, there fit more.
type column struct {
	title         string
	x, w, letters int
}

var columns = map[string]column{
	"Address": {"ADDRESS", margin, 250, 24}, "Exposure": {"EXPOSED BY", 306, 136, 13},
	"Listener": {"LISTENER", 478, 268, 25},
	"Pod":      {"", 810, 268, 25}, "Node": {"PODS ON NODES", 798, 292, 27},
}

type placed struct {
	*subject
	pods []*subject
}

// lay lays out the part of a graph that a query matches: the Listeners, and the Pods that together with them have all
// words. If only is true, it is the part that is not right.
func (g *graph) lay(query string, only bool) *picture {
	p := &picture{
		Title: g.title(), Width: width, Edges: []edge{}, Boxes: []*box{}, Notes: g.notes,
		namespaces: g.namespace == "", said: map[check.Finding]*subject{}, byID: map[string]*box{},
	}
	for _, s := range slices.Backward(g.subjects()) {
		if s.kind != "Pod" {
			p.said[s.says] = s
		}
	}
	for _, c := range columns {
		p.Headings = append(p.Headings, line{"heading", c.x, -gap, c.title})
	}
	slices.SortFunc(p.Headings, func(a, b line) int { return cmp.Compare(a.X, b.X) })
	listeners, pods := g.selected(strings.Fields(strings.ToLower(query)), only)
	byNode := map[string][]*subject{}
	for _, pod := range pods {
		byNode[pod.node] = append(byNode[pod.node], pod)
	}
	homes := map[string][]placed{} // Listeners by the node beside which they are
	const none = "\xff"            // for Listeners without Pods
	for _, l := range listeners {
		home := none
		if len(l.pods) > 0 {
			home = l.pods[(len(l.pods)-1)/2].node
		}
		homes[home] = append(homes[home], l)
	}
	nodes := slices.SortedFunc(maps.Keys(byNode),
		func(a, b string) int { return cmp.Or(cmp.Compare(min(1, len(b)), min(1, len(a))), cmp.Compare(a, b)) })
	y := top
	for _, name := range append(nodes, none) {
		y = max(p.addPods(g.nodes[name], byNode[name], y), p.addListeners(homes[name], y))
	}
	for _, l := range listeners {
		for _, pod := range l.pods {
			p.connect(p.byID[l.id()], p.byID[pod.id()])
		}
	}
	p.Height = y - gap + 2
	p.Summary = fmt.Sprintf("%s, %s, %s", count(len(g.listeners), "Listener"), count(len(g.pods), "Pod"),
		count(g.problems(), "problem"))
	if len(listeners) < len(g.listeners) || len(pods) < len(g.pods) {
		p.Summary += fmt.Sprintf("; shown: %s, %s", count(len(listeners), "Listener"), count(len(pods), "Pod"))
	}
	return p
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// matches reports whether the texts of a path of objects contain all words, and if only is true, something is wrong.
func matches(words []string, only bool, path ...*subject) bool {
	var text strings.Builder
	wrong := false
	for _, s := range path {
		text.WriteString(s.text)
		wrong = wrong || s.says.State == check.Failed || s.says.State == check.Warning
	}
	return (wrong || !only) && !slices.ContainsFunc(words,
		func(w string) bool { return !strings.Contains(text.String(), w) })
}

// selected returns the Listeners, each with its Pods, and the Pods that match words in lower case.
func (g *graph) selected(words []string, only bool) ([]placed, []*subject) {
	byListener, shown := map[types.NamespacedName][]*subject{}, map[*subject]bool{}
	for _, p := range g.pods {
		for _, name := range p.listeners {
			key := types.NamespacedName{Namespace: p.key.Namespace, Name: name}
			byListener[key] = append(byListener[key], p)
		}
		shown[p] = matches(words, only, p, g.nodes[p.node])
	}
	var listeners []placed
	for _, l := range g.listeners {
		alone := matches(words, only, l)
		pods := slices.DeleteFunc(byListener[l.key], func(p *subject) bool {
			return !alone && !matches(words, only, l, p, g.nodes[p.node])
		})
		for _, p := range pods {
			shown[p] = true
		}
		if alone || len(pods) > 0 {
			listeners = append(listeners, placed{l, pods})
		}
	}
	return listeners, slices.DeleteFunc(slices.Clone(g.pods), func(p *subject) bool { return !shown[p] })
}

// addPods adds a node with its Pods below y, and returns where what follows begins.
func (p *picture) addPods(n *subject, pods []*subject, y int) int {
	if len(pods) == 0 {
		return y
	}
	around := p.add(n, cmp.Or(n.key.Name, "not on a node yet"), "", y)
	if n.key.Name == "" {
		around.Opens = ""
	}
	y += around.H
	for _, pod := range pods {
		y += p.add(pod, pod.key.Name, "mounts "+count(len(pod.listeners), "Listener"), y).H + gap
	}
	around.H = y + 2 - around.Y
	return y + 2*gap
}

// addListeners adds Listeners below y, each beside its Pods, and returns where what follows begins.
func (p *picture) addListeners(listeners []placed, y int) int {
	middle := func(l placed) int {
		if len(l.pods) == 0 {
			return 0
		}
		b := p.byID[l.pods[(len(l.pods)-1)/2].id()]
		return b.Y + b.H/2
	}
	slices.SortStableFunc(listeners, func(a, b placed) int {
		return cmp.Or(cmp.Compare(middle(a), middle(b)), cmp.Compare(len(a.pods), len(b.pods)))
	})
	for _, l := range listeners {
		b := p.add(l.subject, l.key.Name, cmp.Or(l.class, "no class"), y)
		exposure := p.add(&subject{kind: "Exposure", key: l.key, says: l.exposed}, l.exposure, "", y)
		exposure.Opens = b.ID
		var addresses []*box
		height := 0
		for i := range max(1, len(l.addresses)) {
			addresses = append(addresses, p.addAddress(l, i, y))
			height += addresses[i].H + gap
		}
		block := max(b.H, height-gap)
		y = max(y, middle(l)-block/2)
		b.Y, exposure.Y = y+(block-b.H)/2, y+(block-exposure.H)/2
		at := y + (block-height+gap)/2
		for _, a := range addresses {
			a.Y = at
			at += a.H + gap
			p.connect(a, exposure)
		}
		p.connect(exposure, b)
		y += block + gap
	}
	return y + gap
}

func (p *picture) addAddress(l placed, i, y int) *box {
	s := &subject{kind: "Address", key: types.NamespacedName{Namespace: l.key.Namespace,
		Name: fmt.Sprintf("%s/%d", l.key.Name, i)}}
	name, note := "no address", ""
	if len(l.addresses) > 0 {
		name, note = l.addresses[i].Address, portsOf(l.addresses[i])
	} else {
		s.says.State = check.Warning
	}
	b := p.add(s, name, note, y)
	b.Opens = l.id()
	return b
}

func portsOf(a listenersv1alpha1.IngressAddress) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
		all = append(all, fmt.Sprintf("%s %d", name, a.Ports[name]))
	}
	return strings.Join(all, ", ")
}

func (p *picture) add(s *subject, name, note string, at int) *box {
	c := columns[s.kind]
	b := &box{ID: s.id(), Opens: s.id(), Kind: s.kind, State: s.says.State, X: c.x, Y: at, W: c.w}
	if s.key.Namespace != "" && p.namespaces && (s.kind == "Pod" || s.kind == "Listener") {
		note = s.key.Namespace + " · " + note
	}
	name, note = command.Printable(name), command.Printable(note)
	indent, y := padding, 1
	add := func(class, text string) {
		y += lineHeight
		b.Lines = append(b.Lines, line{class, indent, y, text})
	}
	if s.says.State != "" {
		b.Lines = []line{{"mark", padding, lineHeight + 1, command.Mark(s.says.State)}}
		indent += markWidth
	}
	add("name", shorten(name, c.letters))
	b.Label = cmp.Or(map[string]string{"Exposure": "Exposed by"}[s.kind], s.kind) + " " + name
	if note != "" {
		for _, l := range wrap(note, c.letters+7, 2) {
			add("note", l)
		}
		b.Label += ", " + note
	}
	if words := command.Printable(s.about(s.says, s.says.Text())); words != "" {
		b.Label += ": " + words
	}
	if s.says.State != check.OK && s.kind != "Exposure" {
		for _, l := range wrap(command.Printable(p.brief(s)), c.letters+7, maxWords) {
			add("words", l)
		}
	}
	b.H = y + padding - 1
	p.Boxes, p.byID[b.ID] = append(p.Boxes, b), b
	return b
}

// brief returns what a box says about what is not right, or which box does, without a reason that repeats it.
func (p *picture) brief(s *subject) string {
	about, text := s.says, s.says.Text()
	if where := p.said[s.says]; where != nil && where.id() != s.id() {
		return "see " + where.kind + " " + where.key.Name
	}
	if r := reasons.Of(s.says.Reason); r.Meaning != "" {
		text = s.says.Message
	}
	if about.Namespace == s.key.Namespace {
		about.Namespace = ""
	}
	return s.about(about, text)
}

// about returns the text of a finding, with the object of the finding if that is another one.
func (s *subject) about(f check.Finding, text string) string {
	if text == "" || f.Name == s.key.Name && f.Kind == s.kind {
		return text
	}
	return f.Object() + ": " + text
}

func (p *picture) connect(from, to *box) {
	x1, y1, x2, y2 := from.X+from.W, from.Y+from.H/2, to.X, to.Y+to.H/2
	bend := (x2 - x1) / 2
	e := edge{
		From: from.ID, To: to.ID, Y: min(y1, y2), H: max(y1, y2) - min(y1, y2),
		Path: fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2),
	}
	if e.H > far { // beside the curves to what is near
		e.Path = fmt.Sprintf("M%d %dh%dV%dH%d", x1, y1+gap, bend, y2+gap, x2)
		e.Length = x2 - x1 + e.H
		e.Dashes = fmt.Sprintf("%d %d", stub, e.Length-2*stub)
	}
	p.Edges = append(p.Edges, e)
}

func fitting(text []rune, n int) int {
	tenths := 10 * n
	for i, r := range text {
		switch {
		case strings.ContainsRune("fijlrt.,:;'|!()[]/ -", r):
			tenths -= 6
		case r > 0x2000: // ideographs
			tenths -= 17
		case unicode.IsUpper(r) || strings.ContainsRune("mw<>=&@%_+~#", r):
			tenths -= 14
		default:
			tenths -= 10
		}
		if tenths < 0 {
			return i
		}
	}
	return len(text)
}

// shorten replaces the middle of a text that does not fit where n usual letters do. Names often differ at their ends.
func shorten(s string, n int) string {
	text := []rune(s)
	if fitting(text, n) == len(text) {
		return s
	}
	backward := slices.Clone(text)
	slices.Reverse(backward)
	return string(text[:fitting(text, n/2)]) + "…" + string(text[len(text)-fitting(backward, n/2-1):])
}

// wrap returns at most so many lines of a text, where n usual letters fit into a line. Words that fit are not cut.
func wrap(s string, n, most int) []string {
	var lines []string
	for s != "" {
		text := []rune(s)
		end := fitting(text, n)
		more := end < len(text) && len(lines) == most-1
		if more {
			end = fitting(text, n-2)
		}
		if end < len(text) && text[end] != ' ' {
			line := string(text[:end])
			if cut := cmp.Or(strings.LastIndexByte(line, ' ')+1, strings.LastIndexAny(line, "-./:")+1); cut > 0 {
				end = utf8.RuneCountInString(line[:cut])
			}
		}
		line := strings.TrimSpace(string(text[:end]))
		if more {
			return append(lines, line+" …")
		}
		lines, s = append(lines, line), strings.TrimSpace(string(text[end:]))
	}
	return lines
}

//go:embed page
var page embed.FS

//go:embed picture.svg.tmpl
var svgSource string

var svgTemplate = template.Must(template.New("svg").Parse(svgSource))

func (p *picture) svg() []byte {
	var b bytes.Buffer
	style, _ := page.ReadFile("page/picture.css") // which exists
	title, summary := line{"title", margin, margin - head + 2, p.Title},
		line{"summary", width - margin, margin - head + 2, p.Summary}
	texts := append([]line{title, summary}, p.Headings...)
	_ = svgTemplate.Execute(&b, struct { // into memory
		*picture
		Top, Height int
		Style       template.CSS
		Texts       []line
	}{p, -head, p.Height + head, template.CSS(style), texts}) //nolint:gosec // G203: our own
	return b.Bytes()
}
