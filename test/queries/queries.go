// Package queries evaluates queries of Prometheus, with Prometheus' own engine, on series that a test gives or has
// scraped.
package queries

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Store has series. The zero value is empty.
type Store struct {
	series map[string]*series
}

// series is a series with its samples in the order of time.
type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// sample is a value at a time, in milliseconds.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                    { return s.t }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.f }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// Add appends a value to a series, which is given as in a query, like up{job="x"}.
func (s *Store) Add(name string, at time.Time, value float64) error {
	lset, err := parser.NewParser(parser.Options{}).ParseMetric(name)
	if err != nil {
		return fmt.Errorf("parsing series %s: %w", name, err)
	}
	s.add(lset, at, value)
	return nil
}

func (s *Store) add(lset labels.Labels, at time.Time, value float64) {
	if s.series == nil {
		s.series = map[string]*series{}
	}
	key := lset.String()
	if s.series[key] == nil {
		s.series[key] = &series{labels: lset}
	}
	s.series[key].samples = append(s.series[key].samples, sample{at.UnixMilli(), value})
}

// Scrape adds the series in the text format, with more labels, which Prometheus adds to those of a target.
func (s *Store) Scrape(text io.Reader, at time.Time, target map[string]string) error {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(text)
	if err != nil {
		return fmt.Errorf("parsing metrics: %w", err)
	}
	all := make([]*dto.MetricFamily, 0, len(families))
	for _, f := range families {
		all = append(all, f)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(at.UnixNano())}, all...)
	if err != nil {
		return fmt.Errorf("reading samples: %w", err)
	}
	for _, one := range samples {
		b := labels.NewBuilder(labels.EmptyLabels())
		for name, value := range one.Metric {
			b.Set(string(name), string(value))
		}
		for name, value := range target {
			b.Set(name, value)
		}
		s.add(b.Labels(), at, float64(one.Value))
	}
	return nil
}

// Query evaluates a query at a time.
func (s *Store) Query(ctx context.Context, query string, at time.Time) (promql.Vector, error) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	defer func() { _ = engine.Close() }()
	q, err := engine.NewInstantQuery(ctx, s, nil, query, at)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", query, err)
	}
	defer q.Close()
	result := q.Exec(ctx)
	vector, err := result.Vector()
	if err != nil {
		return nil, fmt.Errorf("evaluating %s: %w", query, err)
	}
	return slices.Clone(vector), nil
}

// Querier implements storage.Queryable.
func (s *Store) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{next: -1}
		for _, one := range s.series {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.labels.Get(m.Name)) }) {
				set.series = append(set.series, one)
			}
		}
		slices.SortFunc(set.series, func(a, b *series) int { return strings.Compare(a.labels.String(), b.labels.String()) })
		return set
	}}, nil
}

// seriesSet iterates over series.
type seriesSet struct {
	series []*series
	next   int
}

func (s *seriesSet) Next() bool { s.next++; return s.next < len(s.series) }
func (s *seriesSet) At() storage.Series {
	return storage.NewListSeries(s.series[s.next].labels, s.series[s.next].samples)
}
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
