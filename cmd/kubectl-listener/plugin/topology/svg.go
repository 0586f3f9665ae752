package topology

import (
	"bytes"
	"fmt"
	"html"
)

// svg returns the picture as a file that needs no other one.
func (p *picture) svg() []byte {
	var b bytes.Buffer
	style, _ := page.ReadFile("page/picture.css") // which exists
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="picture file" width="%d" height="%d" viewBox="0 -%[3]d %[1]d %[2]d" role="img" aria-label="%[4]s: %[5]s">`+"\n",
		p.Width, p.Height+head, head, html.EscapeString(p.Title), html.EscapeString(p.Summary))
	fmt.Fprintf(&b, "<style>\n%s</style>\n"+`<rect class="ground" y="-%d" width="%d" height="%d"/>`+"\n", style, head, p.Width, p.Height+head)
	text := func(l line) {
		fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d">%s</text>`, l.Class, l.X, l.Y, html.EscapeString(l.Text))
	}
	text(line{"title", margin, margin - head + 2, p.Title})
	text(line{"summary", width - margin, margin - head + 2, p.Summary})
	for _, l := range p.Headings {
		text(l)
	}
	boxes := func(nodes bool) {
		for _, x := range p.Boxes {
			if (x.Kind == "Node") != nodes {
				continue
			}
			fmt.Fprintf(&b, "\n"+`<g class="box %s %s" transform="translate(%d %d)"><title>%s</title><rect width="%d" height="%d" rx="6"/>`,
				x.Kind, x.State, x.X, x.Y, html.EscapeString(x.Label), x.W, x.H)
			for _, l := range x.Lines {
				text(l)
			}
			b.WriteString("</g>")
		}
	}
	boxes(true)
	for _, e := range p.Edges {
		fmt.Fprintf(&b, "\n"+`<path class="edge" d="%s"`, e.Path)
		if e.Dashes != "" {
			fmt.Fprintf(&b, ` pathLength="%d" stroke-dasharray="%s"`, e.Length, e.Dashes)
		}
		b.WriteString("/>")
	}
	boxes(false)
	b.WriteString("\n</svg>\n")
	return b.Bytes()
}
