package page

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// statusView is what the status page shows.
type statusView struct {
	Self
	Log     Log
	Hosts   []Host
	Plots   []plot
	Samples int
}

// plot is a line over the time, with the same in words for those who do not see it.
type plot struct {
	Title, Unit string
	Now, Most   string // Most is the upper edge; the lower one is nothing
	Picture     template.HTML
	Start, End  int64
}

func (s *Site) serveStatus(w http.ResponseWriter, r *http.Request) error {
	self, err := s.src.Self(r.Context())
	if err != nil {
		return err
	}
	log, err := s.src.Log()
	if err != nil {
		return err
	}
	hosts, err := s.src.Hosts(r.Context())
	if err != nil {
		return err
	}
	samples := s.src.Samples()
	return s.serve(w, r, "status", Frame{Title: t("status.title"), Section: "status",
		Page: statusView{Self: self, Log: log, Hosts: hosts, Plots: plots(samples), Samples: len(samples)}})
}

// point is a value at a time, Unix ms.
type point struct {
	at int64
	v  float64
}

// plots draws what was measured. With fewer than two samples there is no line.
func plots(samples []Sample) (out []plot) {
	if len(samples) < 2 {
		return nil
	}
	var used, free []point
	lags := map[string][]point{}
	var names []string
	for i, x := range samples {
		if x.DiskUsed > 0 {
			used = append(used, point{x.At, float64(x.DiskUsed)})
		}
		if x.DiskFree > 0 {
			free = append(free, point{x.At, float64(x.DiskFree)})
		}
		for _, l := range x.Lag {
			if lags[l.Authority] == nil {
				lags[l.Authority] = make([]point, len(samples))
				for j, y := range samples {
					lags[l.Authority][j].at = y.At
				}
				names = append(names, l.Authority)
			}
			lags[l.Authority][i].v = float64(l.Behind)
		}
	}
	bytes := func(v float64) string { return size(int64(v)) }
	records := func(v float64) string { return count("records", int64(v)) }
	out = append(out, draw(t("plot.rate"), t("plot.rate.unit"), rates(samples), rate))
	last := len(samples) - 1
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(lags[b][last].v, lags[a][last].v) })
	for _, name := range names[:min(len(names), maxPlottedHosts)] {
		out = append(out, draw(t("plot.lag", name), "", lags[name], records))
	}
	if len(used) > 1 {
		out = append(out, draw(t("plot.used"), "", used, bytes))
	}
	if len(free) > 1 {
		out = append(out, draw(t("plot.free"), "", free, bytes))
	}
	return out
}

// rates are records a second, between each sample and the one before.
func rates(samples []Sample) []point {
	out := make([]point, len(samples))
	for i := len(samples) - 1; i >= 0; i-- {
		out[i].at = samples[i].At
		switch {
		case i > 0 && joined(samples[i-1].At, samples[i].At):
			out[i].v = max(0, float64(samples[i].Records-samples[i-1].Records)/float64(samples[i].At-samples[i-1].At)*1000)
		case i+1 < len(samples) && joined(samples[i].At, samples[i+1].At): // the first of a run: as from there to the next
			out[i].v = out[i+1].v
		}
	}
	return out
}

// rate writes a number that may be small.
func rate(v float64) string {
	if v >= 10 || v == 0 {
		return number(int64(v + 0.5))
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// maxPlottedHosts bounds the pictures of one page.
const maxPlottedHosts = 8

// plotGap is a time without a measurement, in ms, over which no line is drawn: nobody knows what was then.
const plotGap = 60_000

// joined tells whether a line leads from one measurement to the next.
func joined(before, after int64) bool { return after > before && after-before <= plotGap }

// The picture of a plot, in its own units.
const (
	plotWide, plotHigh = 600.0, 120.0
	plotPad            = 2.0
)

// draw makes a plot from nothing on, so that what hardly moves looks so.
func draw(title, unit string, points []point, write func(float64) string) plot {
	least, most := points[0].v, points[0].v
	for _, p := range points {
		least, most = min(least, p.v), max(most, p.v)
	}
	high := most
	if high == 0 {
		high = 1
	}
	first, end := points[0].at, points[len(points)-1].at
	span := max(1, float64(end-first))
	var line, area strings.Builder
	for i, p := range points {
		x := float64(p.at-first) / span * plotWide
		y := plotHigh - plotPad - p.v/high*(plotHigh-2*plotPad)
		begins := i == 0 || !joined(points[i-1].at, p.at)
		ends := i == len(points)-1 || !joined(p.at, points[i+1].at)
		if begins {
			fmt.Fprintf(&line, "M%.1f %.1f", x, y)
			fmt.Fprintf(&area, "M%.1f %gL%.1f %.1f", x, plotHigh, x, y)
		} else {
			fmt.Fprintf(&line, "L%.1f %.1f", x, y)
			fmt.Fprintf(&area, "L%.1f %.1f", x, y)
		}
		if begins && ends { // a dot, else it would not be seen
			fmt.Fprintf(&line, "h0.1")
		}
		if ends {
			fmt.Fprintf(&area, "L%.1f %gZ", x, plotHigh)
		}
	}
	out := plot{Title: title, Unit: unit, Now: write(points[len(points)-1].v), Start: first, End: end}
	if most > 0 {
		out.Most = write(most)
	}
	alt := template.HTMLEscapeString(t("plot.alt", title, out.Now, write(least), write(most)))
	out.Picture = template.HTML(fmt.Sprintf(`<svg class="plot" viewBox="0 0 %g %g" preserveAspectRatio="none" role="img" aria-label="%s"><path class="area" d="%s"/><path class="line" d="%s" vector-effect="non-scaling-stroke"/></svg>`,
		plotWide, plotHigh, alt, area.String(), line.String()))
	return out
}
