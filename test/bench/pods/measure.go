package pods

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

// Starts measures how long single Pods of each variant take to start, in turns, and what happens meanwhile.
func (b *Bench) Starts(ctx context.Context, rounds int) (*result.Starts, error) {
	all := selectVariants(EmptyDir, EmptyDirService, HostPath, Inline, Bound, Fresh, FreshReplica, Certified)
	for _, v := range all {
		if err := b.prepare(ctx, v, 1); err != nil {
			return nil, err
		}
	}
	audit, err := b.auditFromNow()
	if err != nil {
		return nil, err
	}
	measured, err := b.rounds(ctx, all, rounds)
	if err != nil {
		return nil, err
	}
	events, err := audit.writes()
	if err != nil {
		return nil, err
	}
	refusals, err := audit.refusals()
	if err != nil {
		return nil, err
	}
	starts := &result.Starts{}
	for _, v := range all {
		m := measured[v.name]
		variantResult, err := b.variantResult(ctx, v, m.pods, refusals)
		if err != nil {
			return nil, err
		}
		starts.Variants = append(starts.Variants, variantResult)
		starts.Writes = append(starts.Writes, countWrites(events, v, rounds, m.periods))
		if v.name == Fresh {
			sorted := slices.SortedFunc(slices.Values(m.pods), func(a, b started) int { return cmp.Compare(a.milliseconds(), b.milliseconds()) })
			typical, slowest := sorted[len(sorted)/2], sorted[len(sorted)-1]
			starts.Timelines = []result.Timeline{
				timeline("typical", v, typical, m.files[typical.pod.Name], events), timeline("slowest", v, slowest, m.files[slowest.pod.Name], events),
			}
		}
	}
	return starts, nil
}

// measurement is what was observed of the Pods of a variant. files are the files of fresh claims, by the name of the
// Pod.
type measurement struct {
	pods    []started
	periods []period
	files   map[string]observedFiles
}

// rounds starts a Pod of each variant in turns. Each round begins with the next variant, because the cluster is still
// busy with the Pod before.
func (b *Bench) rounds(ctx context.Context, all []variant, rounds int) (map[string]*measurement, error) {
	measured := map[string]*measurement{}
	for _, v := range all {
		measured[v.name] = &measurement{files: map[string]observedFiles{}}
	}
	for round := range rounds {
		b.progress.Printf("starting Pods, round %d of %d", round+1, rounds)
		for i := range all {
			v := all[(i+round)%len(all)]
			m := measured[v.name]
			one, p, err := b.start(ctx, v, fmt.Sprintf("web-%d", round), 1, "", func(s []started) (err error) {
				if v.name == Fresh {
					m.files[s[0].pod.Name], err = b.files(ctx, s[0].pod)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			m.pods, m.periods = append(m.pods, one...), append(m.periods, p)
		}
		if err := b.clean(ctx, all...); err != nil { // at the end of the round, so that no removal disturbs a start
			return nil, err
		}
	}
	return measured, nil
}

// variantResult returns the durations and races of the Pods of a variant.
func (b *Bench) variantResult(ctx context.Context, v variant, pods []started, refusals []auditv1.Event) (result.Variant, error) {
	raced, err := b.races(ctx, v.namespace())
	if err != nil {
		return result.Variant{}, err
	}
	measured := result.Variant{Name: v.name, Races: []int{}}
	for i, s := range pods {
		measured.Milliseconds = append(measured.Milliseconds, s.milliseconds())
		if raced[s.pod.Name] || s.refused(refusals) {
			measured.Races = append(measured.Races, i)
		}
	}
	return measured, nil
}

// Bursts measures how long many Pods of each variant take to start at once on one node, in turns. emptyDir with a
// Service is what Kubernetes needs for the same Pods and Services without this operator, and a hostPath of a fresh
// claim and a Service what it needs for their claims, too.
func (b *Bench) Bursts(ctx context.Context, rounds, count int) (*result.Bursts, error) {
	all := selectVariants(EmptyDir, EmptyDirService, HostPath, Inline, Bound, Fresh, Certified)
	for _, v := range all {
		b.progress.Printf("preparing %d Pods with %s", count, v.name)
		if err := b.prepare(ctx, v, count); err != nil {
			return nil, err
		}
	}
	audit, err := b.auditFromNow()
	if err != nil {
		return nil, err
	}
	measured, periods := map[string]*result.Burst{}, map[string][]period{}
	for _, v := range all {
		measured[v.name] = &result.Burst{Name: v.name, Processor: map[string]float64{}}
	}
	for round := range rounds {
		for _, v := range all {
			b.progress.Printf("starting %d Pods with %s at once, round %d of %d", count, v.name, round+1, rounds)
			p, err := b.burst(ctx, v, fmt.Sprintf("burst-%d", round), count, measured[v.name])
			if err != nil {
				return nil, err
			}
			periods[v.name] = append(periods[v.name], p)
		}
	}
	events, err := audit.writes()
	if err != nil {
		return nil, err
	}
	bursts := &result.Bursts{Pods: count}
	if bursts.Agent, err = b.agentMemory(); err != nil {
		return nil, err
	}
	for _, v := range all {
		raced, err := b.races(ctx, v.namespace())
		if err != nil {
			return nil, err
		}
		measured[v.name].Races = countRaces(raced)
		measured[v.name].Writes = countWrites(events, v, rounds*count, periods[v.name])
		bursts.Variants = append(bursts.Variants, *measured[v.name])
	}
	return bursts, nil
}

// burst starts Pods at once, and adds the times and the CPU time to measured.
func (b *Bench) burst(ctx context.Context, v variant, name string, count int, measured *result.Burst) (period, error) {
	before, err := b.processorTimes()
	if err != nil {
		return period{}, err
	}
	pods, p, err := b.start(ctx, v, name, count, b.cluster.NodeName(1), func([]started) error {
		after, err := b.processorTimes()
		for component, seconds := range after {
			measured.Processor[component] += seconds - before[component]
		}
		return err
	})
	if err != nil {
		return period{}, err
	}
	last := 0.0
	for _, s := range pods {
		measured.All = append(measured.All, s.milliseconds())
		last = max(last, s.milliseconds())
	}
	measured.Last = append(measured.Last, last)
	return p, b.clean(ctx, v)
}

// countRaces counts the Pods of bursts.
func countRaces(raced map[string]bool) int {
	count := 0
	for name := range raced {
		if strings.HasPrefix(name, "burst") {
			count++
		}
	}
	return count
}
