package report

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

// Colours that can be distinguished in print and by colour-blind readers. The plots have a white background, so that
// they can be read on a dark page.
var (
	blue   = color.NRGBA{R: 0, G: 90, B: 170, A: 255}
	orange = color.NRGBA{R: 210, G: 90, B: 0, A: 255}
	faint  = color.NRGBA{R: 0, G: 90, B: 170, A: 90}
	grid   = color.NRGBA{R: 220, G: 220, B: 220, A: 255}
)

// indent keeps the longest label, and margin the largest value, off the edge of a plot.
const (
	indent = "  "
	margin = 1.04
)

// newPlot returns an empty plot in the common style.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
		style.Font.Size = font.Points(10)
	}
	p.Title.TextStyle.Font.Size = font.Points(12)
	p.Title.Padding = vg.Points(8)
	return p
}

func save(p *plot.Plot, dir, name string, width, height vg.Length) error {
	if err := p.Save(width, height, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("writing plot %s: %w", name, err)
	}
	return nil
}

// distribution is a set of values with a name.
type distribution struct {
	name   string
	values []float64
}

// plotDistributions draws each value as a point, one row for each distribution, with marks at p50, p90 and p99.
func plotDistributions(dir, name, title, unit string, all []distribution) error {
	p := newPlot(title, unit, "")
	var labels []string
	for i := range all {
		d := all[len(all)-1-i] // the first one on top
		labels = append(labels, indent+d.name)
		points := make(plotter.XYs, len(d.values))
		for j, v := range d.values {
			points[j] = plotter.XY{X: v, Y: float64(i) + 0.28*math.Sin(float64(j)*2.4)} // spread, so that points do not hide each other
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("plotting %s: %w", d.name, err)
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: faint, Radius: vg.Points(2.2), Shape: draw.CircleGlyph{}}
		p.Add(scatter)
		for _, q := range []float64{0.5, 0.9, 0.99} {
			value := result.Quantile(d.values, q)
			mark, err := plotter.NewLine(plotter.XYs{{X: value, Y: float64(i) - 0.38}, {X: value, Y: float64(i) + 0.38}})
			if err != nil {
				return fmt.Errorf("plotting %s: %w", d.name, err)
			}
			mark.Color, mark.Width = orange, vg.Points(1.5)
			label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: value, Y: float64(i) + 0.38}}, Labels: []string{fmt.Sprintf("p%.0f", q*100)}})
			if err != nil {
				return fmt.Errorf("plotting %s: %w", d.name, err)
			}
			label.TextStyle[0].Font.Variant, label.TextStyle[0].Font.Size, label.TextStyle[0].Color = "Sans", font.Points(7), orange
			p.Add(mark, label)
		}
	}
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, p.X.Max*margin
	p.Y.Min, p.Y.Max = -0.6, float64(len(all))-0.3
	return save(p, dir, name, 22*vg.Centimeter, vg.Length(len(all))*1.4*vg.Centimeter+2.5*vg.Centimeter)
}

// plotTimelines draws each timeline as a line through its steps, in the order of the first one.
func plotTimelines(dir, name string, timelines []result.Timeline) error {
	p := newPlot("the start of a Pod with a fresh claim", "milliseconds since the creation of the Pod", "")
	steps := timelines[0].Steps
	position := map[string]float64{}
	var labels []string
	for i := range steps {
		what := steps[len(steps)-1-i].What
		position[what] = float64(i)
		labels = append(labels, indent+what)
	}
	colors := []color.Color{blue, orange}
	for i, t := range timelines {
		var points plotter.XYs
		for _, s := range t.Steps {
			if y, ok := position[s.What]; ok {
				points = append(points, plotter.XY{X: s.Milliseconds, Y: y})
			}
		}
		line, scatter, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("plotting a timeline: %w", err)
		}
		line.Color, scatter.Color = colors[i%len(colors)], colors[i%len(colors)]
		scatter.Shape, scatter.Radius = draw.CircleGlyph{}, vg.Points(2.5)
		p.Add(line, scatter)
		p.Legend.Add(fmt.Sprintf("%s: %.0f ms", t.Name, t.Steps[len(t.Steps)-1].Milliseconds), line)
	}
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = grid, grid
	p.Add(lines)
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, p.X.Max*margin
	p.Legend.Top = true
	return save(p, dir, name, 22*vg.Centimeter, vg.Length(len(labels))*0.6*vg.Centimeter+2.5*vg.Centimeter)
}

// plotGrowth draws a value that grows with the number of Listeners, for both starts of the operator.
func plotGrowth(dir, name, title, unit string, sizes []*result.Size, value func(result.Run) float64) error {
	p := newPlot(title, "Listeners", unit)
	series := []struct {
		name  string
		run   func(*result.Size) result.Run
		color color.Color
	}{
		{"with new Listeners", func(s *result.Size) result.Run { return s.New }, orange},
		{"again", func(s *result.Size) result.Run { return s.Again }, blue},
	}
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = grid, grid
	p.Add(lines)
	for _, s := range series {
		var points plotter.XYs
		for _, size := range sizes {
			points = append(points, plotter.XY{X: float64(size.Listeners), Y: value(s.run(size))})
		}
		line, scatter, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("plotting %s: %w", title, err)
		}
		line.Color, scatter.Color = s.color, s.color
		scatter.Shape, scatter.Radius = draw.CircleGlyph{}, vg.Points(2.5)
		p.Add(line, scatter)
		p.Legend.Add(s.name, line)
	}
	p.X.Min, p.Y.Min = 0, 0
	p.Legend.Top, p.Legend.Left = true, true
	return save(p, dir, name, 15*vg.Centimeter, 8*vg.Centimeter)
}

// plots writes all plots that have results.
func (r results) plots(dir string) error {
	var errs []error
	if r.starts != nil {
		var all []distribution
		for _, v := range r.starts.Variants {
			all = append(all, distribution{v.Name, v.Milliseconds})
		}
		errs = append(errs, plotDistributions(dir, "starts.svg", "one Pod, from creation to Running", "milliseconds", all))
		if len(r.starts.Timelines) > 0 {
			errs = append(errs, plotTimelines(dir, "timeline.svg", r.starts.Timelines))
		}
	}
	if r.bursts != nil {
		var all []distribution
		for _, v := range r.bursts.Variants {
			d := distribution{name: v.Name}
			for _, value := range v.All {
				d.values = append(d.values, value/1000)
			}
			all = append(all, d)
		}
		errs = append(errs, plotDistributions(dir, "bursts.svg", fmt.Sprintf("%d Pods at once on one node, from creation to Running", r.bursts.Pods), "seconds", all))
	}
	if len(r.sizes) > 0 {
		errs = append(errs,
			plotGrowth(dir, "memory.svg", "peak memory of the operator", "MiB", r.sizes, func(run result.Run) float64 { return float64(run.Peak) / (1 << 20) }),
			plotGrowth(dir, "idle.svg", "from the start of the operator until it is idle", "seconds", r.sizes, func(run result.Run) float64 { return run.Seconds }))
	}
	return errors.Join(errs...)
}
