package page

import (
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
	Title, Unit      string
	Now, Least, Most string
	Picture          template.HTML
	Start, End       int64
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

// plots draws what was measured. With fewer than two samples there is no line.
func plots(samples []Sample) (out []plot) {
	if len(samples) < 2 {
		return nil
	}
	at := make([]int64, 0, len(samples))
	var rates, used, free []float64
	var usedAt []int64 // the store tells its size only after a minute
	lags := map[string][]float64{}
	var names []string
	for i, x := range samples {
		at = append(at, x.At)
		rate := 0.0
		if i > 0 && x.At > samples[i-1].At {
			rate = max(0, float64(x.Records-samples[i-1].Records)/float64(x.At-samples[i-1].At)*1000)
		}
		rates, free = append(rates, rate), append(free, float64(x.DiskFree))
		if x.DiskUsed > 0 {
			usedAt, used = append(usedAt, x.At), append(used, float64(x.DiskUsed))
		}
		for _, l := range x.Lag {
			if lags[l.Authority] == nil {
				lags[l.Authority] = make([]float64, len(samples))
				names = append(names, l.Authority)
			}
			lags[l.Authority][i] = float64(l.Behind)
		}
	}
	rates[0] = rates[1]
	bytes := func(v float64) string { return size(int64(v)) }
	records := func(v float64) string { return count("records", int64(v)) }
	rate := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	out = append(out, draw(t("plot.rate"), t("plot.rate.unit"), at, rates, rate))
	last := len(samples) - 1
	slices.SortStableFunc(names, func(a, b string) int { return int(lags[b][last] - lags[a][last]) })
	for _, name := range names[:min(len(names), maxPlottedHosts)] {
		out = append(out, draw(t("plot.lag", name), "", at, lags[name], records))
	}
	if len(used) > 1 {
		out = append(out, draw(t("plot.used"), "", usedAt, used, bytes))
	}
	return append(out, draw(t("plot.free"), "", at, free, bytes))
}

// maxPlottedHosts bounds the pictures of one page.
const maxPlottedHosts = 8

// The picture of a plot, in its own units.
const (
	plotWide, plotHigh = 600.0, 120.0
	plotPad            = 6.0
)

func draw(title, unit string, at []int64, values []float64, write func(float64) string) plot {
	least, most := slices.Min(values), slices.Max(values)
	high := max(most, 1) // from nothing on: what hardly moves is to look so
	first, span := at[0], max(1, float64(at[len(at)-1]-at[0]))
	var line strings.Builder
	for i, v := range values {
		x := float64(at[i]-first) / span * plotWide
		y := plotHigh - plotPad - v/high*(plotHigh-2*plotPad)
		if i == 0 {
			line.WriteString("M")
		} else {
			line.WriteString("L")
		}
		fmt.Fprintf(&line, "%.1f %.1f", x, y)
	}
	alt := template.HTMLEscapeString(t("plot.alt", title, write(values[len(values)-1]), write(least), write(most)))
	picture := fmt.Sprintf(`<svg class="plot" viewBox="0 0 %g %g" preserveAspectRatio="none" role="img" aria-label="%s"><path class="area" d="%sL%g %gL0 %gZ"/><path class="line" d="%s" vector-effect="non-scaling-stroke"/></svg>`,
		plotWide, plotHigh, alt, line.String(), plotWide, plotHigh, plotHigh, line.String())
	return plot{Title: title, Unit: unit, Now: write(values[len(values)-1]), Least: write(least), Most: write(most), Picture: template.HTML(picture), Start: first, End: at[len(at)-1]}
}
