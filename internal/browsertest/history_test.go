//go:build !race

package browsertest

import (
	"encoding/json"
	"math"
	"path/filepath"

	"github.com/witan-adp/witan/internal/page"
	"github.com/witan-adp/witan/internal/store"
)

// plantHistory gives a daemon that has not started yet two hours of measurements, as one that has run would have: a backfill, a quiet time, a
// stop of some minutes, a host that falls behind and is caught up with.
func plantHistory(data string, hosts ...string) error {
	st, err := store.Open(store.Options{Dir: filepath.Join(data, "store")})
	if err != nil {
		return err
	}
	const every, all = 15_000, 476
	var b store.Batch
	now, records := nowMS(), 0.0
	for i := range all {
		at, x := now-int64(all-i)*every, float64(i)
		if i > 210 && i < 235 { // stopped
			continue
		}
		records += 60 + 45*math.Sin(x/17) + 14*math.Sin(x/5) + 420*math.Exp(-x/22)
		s := page.Sample{At: at, Records: int64(records), DiskUsed: 300<<10 + int64(records)*10, DiskFree: 59<<30 - int64(x*x)*9000}
		for n, host := range hosts {
			behind := 900*math.Exp(-x/25) + 14*math.Exp(-math.Pow((x-330-60*float64(n))/18, 2))
			s.Lag = append(s.Lag, page.HostLag{Authority: host, Behind: int64(behind) / int64(n+1)})
		}
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		b.Put(store.Sample(uint64(at/every)%480), raw)
	}
	if err := st.Commit(&b); err != nil {
		return err
	}
	return st.Close()
}
